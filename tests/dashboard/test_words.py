"""The lexicon: complete, in one place, and free of words that outrun their evidence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dashboard import words
from dashboard.words import FORBIDDEN, Term
from effects.models import Settlement
from runs.models import Boundary, Mode, OperationClass, PermitState, RunStatus, StepStatus

ROOT = Path(__file__).resolve().parents[2]
TABLES = {"run": words.RUN, "outcome": words.OUTCOME, "settlement": words.SETTLEMENT}
TABLES |= {"step": words.STEP, "permit": words.PERMIT}
TERMS = [*[term for table in TABLES.values() for term in table.values()], words.LATE]
ICONS = set(re.findall(r'<symbol id="([^"]+)"', (ROOT / "static" / "icons.svg").read_text()))
STYLES = (ROOT / "static" / "allstop.css").read_text()

# Copied by hand from the contract, in its order: first match wins.
OUTCOMES = [
    "not ended",
    "abandoned",
    "awaiting verification",
    "compensation pending",
    "resumable pause",
    "ended with an accepted unknown",
    "completed",
    "failed",
    "partially completed",
    "stopped after safe settlement",
    "stopped before effect",
]


def test_every_status_that_the_machine_knows_has_its_words() -> None:
    assert set(words.RUN) - {"QUIET"} == set(RunStatus.values)
    assert set(words.STEP) == set(StepStatus.values)
    assert set(words.SETTLEMENT) == set(Settlement.values)
    assert set(words.PERMIT) == set(PermitState.values)
    assert list(words.OUTCOME) == OUTCOMES
    assert set(words.CLASS) == set(OperationClass.values)
    assert set(words.REFUSED) == set(Boundary.values)
    assert set(words.MODE) == set(Mode.values)


@pytest.mark.parametrize("term", TERMS, ids=lambda term: f"{term.value}-{term.css}")
def test_a_state_is_told_by_word_icon_and_shape_before_hue(term: Term) -> None:
    assert term.word
    assert term.sentence.endswith(".")
    assert term.icon in ICONS
    assert f".{term.css}" in STYLES or term.css in {"st-declared", "st-waiting", "st-paused"}  # plain


@pytest.mark.parametrize("term", TERMS, ids=lambda term: f"{term.value}-{term.css}")
def test_no_label_or_sentence_promises_more_than_we_know(term: Term) -> None:
    said = f"{term.word} {term.sentence}".lower()
    assert not [word for word in FORBIDDEN if word in said]


def test_no_page_says_a_forbidden_word() -> None:
    pages = [*ROOT.glob("templates/**/*.html"), *ROOT.glob("dashboard/**/*.py"), *ROOT.glob("static/*.js")]
    assert len(pages) > 20
    found = [
        (path.name, word)
        for path in pages
        if path.name != "words.py"
        for word in FORBIDDEN
        if word in path.read_text().lower()
    ]
    assert found == []


def test_a_sentence_without_its_facts_is_an_error_not_a_gap() -> None:
    with pytest.raises(KeyError):
        words.RUN["CANCELLING"].say(at="15:02:13")


def test_a_run_that_ended_wears_its_outcome_and_one_that_has_not_its_status() -> None:
    assert words.run_chip("ACTIVE", "not ended").word == "Running"
    assert words.run_chip("CANCELLING", "not ended").word == "Stopping"
    assert words.run_chip("CANCELLING", "not ended", quiet=True).word == "Quiet, reconciling"
    assert words.run_chip("UNKNOWN", "awaiting verification").word == "Awaiting verification"
    assert words.run_chip("CANCELLED", "stopped before effect").word == "Stopped before effect"
    assert words.run_chip("COMPLETED", "awaiting verification").word == "Awaiting verification"


def test_the_live_script_says_the_words_of_the_lexicon() -> None:
    script = (ROOT / "static" / "live.js").read_text()
    assert [word for word in words.FRESHNESS if f'"{word}"' not in script] == []
    assert words.UNKNOWN_WHETHER


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("pay\u202eevil\u2066", "payevil"),
        ("a\x00b\x1b[31m\nc", "a b [31m c"),
        ("\u200bname\ufeff", "name"),
        ("<b>&amp;", "<b>&amp;"),
        ("line\u2028two", "line two"),
        ("Zürich ✓ 東京 👩\u200d💻", "Zürich ✓ 東京 👩\u200d💻"),
    ],
)
def test_a_hostile_name_loses_what_could_deceive_and_keeps_the_rest(hostile: str, shown: str) -> None:
    assert words.clean(hostile) == shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.8, "0.8 s"), (41, "41 s"), (241, "4 min 01 s"), (12_660, "3 h 31 min"), (-3, "0 s")],
)
def test_a_span_names_its_two_largest_units(seconds: float, text: str) -> None:
    assert words.span(seconds) == text


def test_lists_and_counts_read_like_sentences() -> None:
    assert words.listed(["1 retry"]) == "1 retry"
    assert words.listed(["a", "b", "c"]) == "a, b and c"
    assert words.count(1, "retry", "retries") == "1 retry"
    assert words.count(2, "retry", "retries") == "2 retries"
