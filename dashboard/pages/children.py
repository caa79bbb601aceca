"""The child runs of a run, and what a stop of it does not reach."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dashboard import words
from dashboard.pages.facts import Facts
from dashboard.words import Term
from runs import children
from runs.models import Run, RunStatus, StopRequest

SHOWN = 20


@dataclass(frozen=True)
class ChildRow:
    """One child as it stands now."""

    run: Run
    term: Term


class Children:
    """The panel; empty for a run that has none. Those that may still start work come first."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    @property
    def total(self) -> int:
        return self.facts.children.total()

    @cached_property
    def rows(self) -> list[ChildRow]:
        if not self.total:
            return []
        rows = Run.objects.filter(parent=self.facts.run).order_by("status", "-pk")[:SHOWN]
        return [ChildRow(run, words.RUN[run.status]) for run in rows]

    @property
    def left_out(self) -> int:
        return self.total - len(self.rows)

    @property
    def says(self) -> str:
        """How far the stop went on to them."""
        stop, running = self.facts.stop, self.facts.children[RunStatus.ACTIVE]
        if stop is None or stop.gate_at is None:
            return "A stop of this run is passed on to each of them. A resume of it resumes none."
        going = f"{words.count(running, 'child run')} may still start work. " if running else ""
        return f"{_reached(stop)} {going}A resume of this run resumes none of them."

    @property
    def not_covered(self) -> list[str]:
        return [words.clean(told) for told in children.not_covered(self.facts.run)]


def _reached(stop: StopRequest) -> str:
    reached = children.reached(stop)
    told = f"Stop #{stop.number} was passed on to {words.count(reached, 'run')}"
    return f"{told}." if stop.passed_on_at else f"{told} so far; the rest follows."
