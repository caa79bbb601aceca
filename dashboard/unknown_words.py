"""What the unknowns desk says: why something is unknown, what each verdict would mean, how it is recorded."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from dashboard import words
from effects.models import Ground, Matter, Verdict

# The first that fits tells the reason; what a worker wrote itself is matched by its own words.
REASONS: tuple[tuple[str, str], ...] = (
    (r"contradict|disagree|it was .+; a later answer", "contradicted"),
    (r"was lost|worker died|killed", "worker died"),
    (r"reported done|not verified|its look-ups ended", "reported done, not verified"),
    (r"gave up waiting|abandon", "given up"),
    (r"restor|backup", "restored from a backup"),
    (r"tim(ed|e) ?-?out|too slow|in time", "timeout"),
    (r"no answer|broke off|connection|reset|closed|response|reply|line was cut", "lost response"),
)
WHY_SAYS = {
    "contradicted": "Contradicted: pieces of evidence disagree.",
    "worker died": "Worker died: its lease ran out before it reported.",
    "reported done, not verified": "Reported done, and no look-up could verify it.",
    "given up": "Given up: nobody waited for its end.",
    "restored from a backup": "Restored from a backup: what was recorded later is missing here.",
    "timeout": "Timeout: no answer came in time.",
    "lost response": "Lost response: the request left, and no whole answer came.",
    "ambiguous answer": "Ambiguous answer: it does not say whether it happened.",
}
GROUND: dict[str, str] = {
    Ground.DECIDED: "by a person’s decision",
    Ground.REPORTED: "by its worker’s report",
    Ground.LOOKED_UP: "by look-up",
    Ground.WEBHOOK: "by provider webhook",
    Ground.INSPECTED: "by inspection",
}
VERDICT: dict[str, str] = {
    Verdict.HAPPENED: "it happened",
    Verdict.DID_NOT: "it did not happen",
    Verdict.PARTLY: "it partly happened",
    Verdict.CANNOT_TELL: "it cannot be determined",
}
THING: dict[str, str] = {Matter.DELIVERY: "message", Matter.COMPENSATION: "compensation"}
HAPPENED = {Matter.DELIVERY: "was handed over"}


def why_of(told: str, *, contradicted: bool = False) -> str:
    """Why it is unknown, in two or three words: a key of WHY_SAYS."""
    if contradicted:
        return "contradicted"
    said = told.casefold()
    return next((word for sign, word in REASONS if re.search(sign, said)), "ambiguous answer")


def thing_of(matter: str, kind_name: str) -> str:
    """What it is called inside a sentence: of the kind `bank.charge`, the charge."""
    if matter in THING:
        return THING[matter]
    last = re.split(r"[.:/]", kind_name)[-1].replace("_", " ").replace("-", " ").strip()
    return words.brief(last, 30).lower() if re.fullmatch(r"[A-Za-z ]+", last) else "effect"


@dataclass(frozen=True)
class Choice:
    """One verdict of the form: its radio, what it would mean, and the words of the button."""

    value: str
    word: str
    means: str
    button: str
    css: str


def choices(matter: str, thing: str, means: dict[str, str], *, correct: bool = False) -> list[Choice]:
    """The four verdicts, in the order of the form; of a message three. `correct`: it is settled already."""
    record = "Correct" if correct else "Record"
    did = HAPPENED.get(Matter(matter), "happened")
    said = {
        Verdict.HAPPENED: ("It happened", f"{record}: the {thing} {did}", "yes"),
        Verdict.DID_NOT: ("It did not happen", f"{record}: the {thing} {_did_not(matter)}", "no"),
        Verdict.PARTLY: ("It partly happened…", f"{record}: the {thing} partly happened", "part"),
        Verdict.CANNOT_TELL: ("Cannot be determined", f"{record}: it cannot be determined", "acc"),
    }
    if matter == Matter.DELIVERY:
        said |= {
            Verdict.HAPPENED: ("It was handed over", said[Verdict.HAPPENED][1], "yes"),
            Verdict.DID_NOT: ("It was not handed over", said[Verdict.DID_NOT][1], "no"),
        }
        del said[Verdict.PARTLY]
    return [
        Choice(str(verdict), word, means.get(verdict, ""), button, css)
        for verdict, (word, button, css) in said.items()
    ]


def _did_not(matter: str) -> str:
    return "was not handed over" if matter == Matter.DELIVERY else "did not happen"


def items_of(text: str) -> list[str]:
    """What was typed as parts, one a line."""
    return [line for line in (words.clean(one)[:300] for one in text.splitlines()) if line][:200]


def items_in_words(items: Any) -> str:
    """Which part it was, as it was recorded."""
    if items in (None, "", [], {}):
        return ""
    if isinstance(items, list):
        shown = [words.brief(one, 60) for one in items[:5]]
        left = len(items) - len(shown)
        return words.listed([*shown, f"{left} more"] if left else shown)
    if isinstance(items, dict):
        parts = [f"{words.brief(name, 40)}: {items_in_words(one) or 'none'}" for name, one in items.items()]
        return "; ".join(parts)
    return words.brief(items, 200)


# Where in the form each refusal belongs; those of MEANWHILE say that somebody came first.
FIELD = {
    "evidence": "evidence",
    "own_run": "evidence",
    "foreign": "evidence",
    "lost_holder": "evidence",
    "in_window": "verdict",
    "may_be_sent": "verdict",
    "items": "items",
    "verdict": "verdict",
    "same": "verdict",
    "form": "attach",
    "link": "attach",
    "too_big": "attach",
    "too_many": "attach",
}
MEANWHILE = frozenset({"changed", "settled"})
UNREACHED = re.compile(
    r"no answer|nothing was sent|no connection|could not be reached|broke off|the look-up failed"
)


def checked_says(answer: str, detail: str, means: str) -> str:
    """What "Check now" came to. A failed look-up is not an absence, and neither settles anything."""
    proved = {
        "happened": "it happened",
        "partly": "it partly happened",
        "did not happen": "it did not happen",
    }
    if means in proved:
        return f"The provider was asked: {proved[means]}."
    if answer == "absent":
        return "Not found. That is no proof yet; still unknown."
    if UNREACHED.search(detail):
        return "Provider could not be reached; still unknown."
    why = words.brief(detail, 160).rstrip(".")
    return f"The provider could not tell{f' ({why})' if why else ''}; still unknown."
