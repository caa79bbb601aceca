"""Every outcome there is, told four times: by the page, the JSON, the PDF and the list. All say the same."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from dashboard import reports, words
from dashboard.reports import schema
from dashboard.reports.frozen import document
from effects.drain import drain_run
from runs.models import Run
from tests.dashboard.report_scenes import SCENES
from tests.dashboard.scenes import browser, text_of
from tests.dashboard.test_report_pdf import reader_of, sentences, squeezed, text_in
from tests.worlds import World, fresh

pytestmark = pytest.mark.django_db(transaction=True)
SCHEMA = Path(__file__).parents[2] / "docs" / "report.schema.json"
# Copied by hand from the contract: of each outcome, whether a version is issued, and whether it is final.
STATES = {
    "not ended": (True, False),
    "abandoned": (True, False),
    "awaiting verification": (True, False),
    "compensation pending": (True, False),
    "resumable pause": (False, False),
    "ended with an accepted unknown": (True, True),
    "completed": (True, True),
    "failed": (True, True),
    "partially completed": (True, True),
    "stopped after safe settlement": (True, True),
    "stopped before effect": (True, True),
}


def test_the_schema_that_is_checked_in_is_that_of_the_code() -> None:
    assert SCHEMA.read_text() == schema.text(), "rewrite it: dashboard/reports/schema.py says how"


@pytest.mark.parametrize("outcome", STATES)
def test_page_json_pdf_and_list_agree_in_every_state(outcome: str) -> None:
    issued, final = STATES[outcome]
    w = World()
    run = SCENES[outcome](w)
    drain_run(run.pk)
    assert (reports.issue(run.pk) is not None) is issued
    told, alice = reports.read(run.pk), browser(w.alice)
    assert (told["outcome"], told["final"], told["draft"]) == (outcome, final, not issued)
    jsonschema_rs.validator_for(json.loads(SCHEMA.read_text())).validate(told)
    page = squeezed(html.unescape(text_of(alice.get(f"/runs/{run.pk}/report").content.decode())))
    paper = text_in(reader_of(fresh(run)))
    expected = [*sentences(told), *figures(told)]
    assert len(expected) > 10
    for said in map(squeezed, expected):
        assert said in page, f"the page does not say {said}"
        assert said in paper, f"the PDF does not say {said}"
    row = alice.get("/reports/").content.decode()
    assert (f'/runs/{run.pk}/report?version=1"' in row) is issued
    if issued:
        assert words.OUTCOME[outcome].word in row or outcome == "not ended"
        assert (">final<" in row, ">not final<" in row) == (final, not final)


def figures(told: dict[str, Any]) -> list[str]:
    """Numbers and rows that stand in tables."""
    known = f"{told['known']} of {told['of']}" if told["of"] else "None was sent"
    rows = [told["word"], f"Effects known {known}"]
    rows += [text for row in told["manifest"]["rows"] for text in (row["key"], row["ground"])]
    rows += [row["says"] for part in ("workers", "late", "turns") for row in told[part]["rows"]]
    rows += [row["became"] for row in told["in_flight"]["rows"]]
    rows += [row["says"] for row in told["repairs"]["rows"]]
    rows += [row["says"] for row in told["measures"]]
    rows += [told[part]["says"] for part in ("in_flight", "log", "workers", "late")]
    return [text for text in rows if text]


def test_the_states_are_all_there_are() -> None:
    assert set(STATES) == set(words.OUTCOME) == set(SCENES)


def test_the_json_that_no_schema_knows_is_refused(w: World) -> None:
    run: Run = w.run()
    told = document(reports.build(run.pk)) | {"more": 1}
    assert not jsonschema_rs.validator_for(schema.schema()).is_valid(told)


@pytest.fixture
def w() -> World:
    return World()
