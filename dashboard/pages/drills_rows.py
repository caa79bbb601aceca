"""The drills in a list with their last results, and one drill with all its checks and its history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db.models import Max

from dashboard import words
from dashboard.drilling import catalogue, schedule
from dashboard.drilling.catalogue import Entry
from dashboard.drilling.models import IN_LINE
from dashboard.models import DrillRun, DrillSchedule
from dashboard.pages.drills_facts import NEVER, ended, names_for, said, title_of, who
from dashboard.words import Term
from runs.models import User

KINDS = {"situation": "Situation", "safety": "Safety", "evidence": "Evidence"}
MEANS = {
    "situation": "Did what the drill is about occur? If not, it shows nothing.",
    "safety": "By the ledger of the drill’s own provider.",
    "evidence": "By the lines that an operator reads.",
}
SHOWN = 20
Named = tuple[str, str]  # the kind of a check, and what it is about
Seen = tuple[str, bool]  # what was observed, if it was not just what was expected; whether it held


@dataclass(frozen=True)
class Row:
    """A drill of the list: its last result, and where it stands in line, with so many before it."""

    entry: Entry
    last: DrillRun | None
    now: DrillRun | None
    place: int

    @property
    def term(self) -> Term:
        """What it does now, or else how it ended."""
        if self.now is not None:
            return words.DRILL["running" if self.now.started_at else "waiting"]
        return words.DRILL[self.last.result if self.last else "never"]

    @property
    def says(self) -> str:
        """The last result in a sentence, and why, when it did not pass."""
        last = self.last
        if last is None or last.finished_at is None:
            return "Not run here yet."
        told = ended(words.DRILL[last.result].word, last.finished_at, last.runtime)
        return f"{told} {words.clean(last.why)}" if last.why and last.result != "passed" else told


def row_of(entry: Entry, last: Mapping[str, DrillRun], line: list[DrillRun]) -> Row:
    """`place`: how many are before it."""
    place = next((number for number, row in enumerate(line) if row.name == entry.name), None)
    now = None if place is None else line[place]
    return Row(entry, last.get(entry.name), now, place or 0)


@dataclass(frozen=True)
class Planned:
    """One schedule, in words."""

    what: str
    row: DrillSchedule
    who: str


class DrillList:
    """All drills, what runs, what waits, and what is planned: four queries."""

    def __init__(self, reader: User) -> None:
        line = list(DrillRun.objects.filter(IN_LINE).order_by("pk"))
        newest = DrillRun.objects.exclude(result="").values("name").annotate(last=Max("pk")).order_by()
        done = DrillRun.objects.filter(pk__in=newest.values("last")).defer("log", "steps")
        last = {row.name: row for row in done}
        self.rows = [row_of(entry, last, line) for entry in catalogue.ENTRIES]
        self.running = next((row for row in line if row.started_at), None)
        self.waiting = [row for row in line if not row.started_at]
        self.title = title_of(self.running.name) if self.running else ""
        planned = list(DrillSchedule.objects.order_by("pk"))
        names = names_for(reader, [row.by for row in line] + [row.by for row in planned])
        self.who = who(self.running, names) if self.running else ""
        self.planned = [Planned(named(row.which), row, who(row, names)) for row in planned]

    promise = "A pass shows the gates held in that drill; it is no promise about the next stop."

    @property
    def groups(self) -> list[tuple[str, list[Row]]]:
        """Failures, then scenarios."""
        parts = {"Failures": "failure", "Scenarios": "scenario"}
        return [(word, [row for row in self.rows if row.entry.kind == kind]) for word, kind in parts.items()]

    @property
    def empty(self) -> str:
        """What it means that no drill was run; nothing when one was."""
        return "" if any(row.last for row in self.rows) else NEVER

    @property
    def steps(self) -> list[dict[str, Any]]:
        return steps_of(self.running) if self.running else []

    @property
    def busy(self) -> int:
        return len(self.waiting) + bool(self.running)

    @property
    def summary(self) -> str:
        """For the page's status: how many passed."""
        passed = sum(row.last is not None and row.last.result == "passed" for row in self.rows)
        told = f"{passed} of {len(self.rows)} passed when they were last run"
        return f"{self.title} runs. {told}" if self.running else told


def named(which: str) -> str:
    """A drill's title, or all of them."""
    return f"All {len(catalogue.ENTRIES)} drills" if which == schedule.ALL else title_of(which)


def steps_of(row: DrillRun) -> list[dict[str, Any]]:
    """What was done so far, each with its moment."""
    return [{"at": datetime.fromisoformat(one["at"]), "said": words.clean(one["said"])} for one in row.steps]


@dataclass(frozen=True)
class CheckRow:
    """One expectation beside what was observed, and what was observed the time before."""

    what: str
    expected: str
    observed: str
    ok: bool
    before: str


class DrillPage:
    """One drill: one of its runs with its checks, beside the run before; and all its runs, newest first."""

    def __init__(self, entry: Entry, reader: User, at: str = "", before: str = "") -> None:
        self.entry = entry
        mine = DrillRun.objects.filter(name=entry.name).order_by("-pk")
        self.now = mine.filter(IN_LINE).first()
        ended = mine.exclude(result="")
        self.row = ended.filter(pk=at).first() if at else ended.first()
        self.previous = ended.filter(pk__lt=self.row.pk).first() if self.row else None
        found = list((ended.filter(pk__lt=before) if before else ended).defer("log", "steps")[: SHOWN + 1])
        names = names_for(reader, [row.by for row in [*found, self.row, self.now] if row])
        self.history = [(row, words.DRILL[row.result], who(row, names)) for row in found[:SHOWN]]
        self.older = found[SHOWN - 1].pk if len(found) > SHOWN else ""
        self.who = who(self.row, names) if self.row else ""
        self.waits_for = who(self.now, names) if self.now else ""

    @property
    def term(self) -> Term:
        return words.DRILL[self.row.result if self.row else "never"]

    @property
    def now_term(self) -> Term:
        return words.DRILL["running" if self.now and self.now.started_at else "waiting"]

    @property
    def says(self) -> str:
        if self.row is None or self.row.finished_at is None:
            return "Not run here yet."
        return said(self.term.word, self.row.finished_at, self.row.runtime)

    @property
    def steps(self) -> list[dict[str, Any]]:
        row = self.now or self.row
        return steps_of(row) if row else []

    @property
    def checks(self) -> list[tuple[str, str, list[CheckRow]]]:
        """The checks of the run that is shown, by kind, with the kind's word and meaning."""
        if self.row is None or not self.row.checks:
            return []
        earlier = observed_in(self.previous)
        return [
            (word, MEANS[kind], [check_row(kind, one, earlier) for one in self.row.checks.get(kind, [])])
            for kind, word in KINDS.items()
        ]

    @property
    def compared(self) -> str:
        """How it differs from the one before, in a sentence."""
        if self.row is None or self.previous is None or self.previous.finished_at is None:
            return "There is no earlier run to compare with."
        before = f"{self.previous.finished_at.astimezone(UTC):%-d %b %H:%M} UTC"
        rows = [row for _, _, part in self.checks for row in part]
        other = [row for row in rows if row.before]
        if self.previous.result != self.row.result:
            was = words.DRILL[self.previous.result].word.lower()
            return f"The run before, of {before}: {was}; {differ(len(other))}."
        return f"As the run before, of {before}; {differ(len(other))}."


def differ(number: int) -> str:
    """How many checks were observed otherwise."""
    if not number:
        return "every check was observed alike"
    return f"{words.count(number, 'check')} {'was' if number == 1 else 'were'} observed otherwise"


def observed_in(row: DrillRun | None) -> dict[Named, Seen]:
    """(kind, what) to what was seen."""
    return {
        (kind, one["what"]): seen_in(one)
        for kind in KINDS
        for one in (row.checks.get(kind, []) if row else [])
    }


def seen_in(one: Mapping[str, Any]) -> Seen:
    """What counts when two runs are compared: ids differ each time, and are expected to."""
    return ("" if one["observed"] == one["expected"] else one["observed"], one["ok"])


def check_row(kind: str, one: Mapping[str, Any], earlier: Mapping[Named, Seen]) -> CheckRow:
    """A check beside the one before; `before` is empty when it was the same, or there was none to compare."""
    what, expected, observed = (words.clean(one[field]) for field in ("what", "expected", "observed"))
    was = earlier.get((kind, one["what"]))
    if was is None:
        before = "not checked" if earlier else ""
    else:
        before = "" if was == seen_in(one) else words.clean(was[0]) or "as expected"
    return CheckRow(what, expected, observed, one["ok"], before)
