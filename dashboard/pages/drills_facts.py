"""What other pages say of drills: the last one, in one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from django.urls import reverse

from dashboard.models import DrillRun

NEVER = "No drill has been run. You do not yet know whether Stop holds here."
WORD = {
    "passed": "Passed",
    "failed": "Failed",
    "inconclusive": "Inconclusive",
    "interrupted": "Interrupted",
}
NO_PROMISE = "This shows the gates held in this drill; it is no promise about the next stop."


@dataclass(frozen=True)
class LastDrill:
    """The drill that ended last. `word` is its result; `href` leads to the drills."""

    name: str
    word: str
    at: datetime
    runtime: str
    href: str

    @property
    def says(self) -> str:
        """`Passed 29 Nov on …`, and for a pass what it does not promise."""
        return said(self.word, self.at, self.runtime)


def said(word: str, at: datetime, runtime: str) -> str:
    """The result of a drill as a sentence: what it was, when, on what."""
    told = f"{word} {at.astimezone(UTC):%-d %b}" + (f" on {runtime}." if runtime else ".")
    return f"{told} {NO_PROMISE}" if word == WORD["passed"] else told


def last_drill() -> LastDrill | None:
    """The drill that ended last, of the whole installation; None when none has (then say NEVER)."""
    row = DrillRun.objects.exclude(result="").order_by("-finished_at").first()
    if row is None or row.finished_at is None:
        return None
    return LastDrill(row.name, WORD[row.result], row.finished_at, row.runtime, reverse("drills"))
