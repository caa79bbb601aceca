"""The workers of a run: what each confirmed, at which boundary, when it was heard; and who is still at it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property

from dashboard import words
from dashboard.pages.facts import Facts
from dashboard.pages.stages import clock, holds
from runs import receipts
from runs.models import Receipt, RunStatus, Worker

SILENT = timedelta(seconds=30)
NAMED = 3  # so many by name, the rest by number


@dataclass(frozen=True)
class WorkerRow:
    """A worker and what it last said; silence is told as silence. `points`: its receipts, in words."""

    worker: Worker
    state: str
    silent: bool
    points: str


class Workers:
    """The panel: those behind first, and how many of all hold the version of the stop."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    @cached_property
    def rows(self) -> list[WorkerRow]:
        given = receipts.of(self.facts.run, self.facts.workers)
        return [row_of(worker, given[worker.name], self.facts) for worker in self.facts.workers]

    @property
    def silent(self) -> int:
        """Of how many of the workers shown nothing is heard."""
        return sum(row.silent for row in self.rows)

    @property
    def silence(self) -> str:
        """What silence says, and what it does not; whoever returns is refused only under a stop."""
        if not self.silent:
            return ""
        if self.facts.stop is None or self.facts.run.status == RunStatus.ACTIVE:
            return words.SILENT if self.silent == 1 else words.SILENT_MANY
        return words.SILENCE if self.silent == 1 else words.SILENCE_OF_MANY

    @property
    def head(self) -> str:
        """2 of 3 confirmed v4; before a stop, how many were heard of."""
        facts, stop = self.facts, self.facts.stop
        shown, total = len(self.rows), facts.workers_total
        told = f"{shown} of {total}, those behind first" if total > shown else f"{total} heard of"
        if stop is None or not total or not stop.version_after:
            return told
        confirmed = f"{facts.workers_holding} of {total} confirmed v{stop.version_after}"
        return f"{confirmed}; {shown} shown, those behind first" if total > shown else confirmed


def row_of(worker: Worker, given: list[Receipt], facts: Facts) -> WorkerRow:
    """`holds v4`, `holds v3`, or `silent`."""
    silent = is_silent(worker, facts)
    version = worker.confirmed_version
    state = "silent" if silent else f"holds v{version}" if version else "heard"
    points = ", ".join(f"{receipt.boundary} v{receipt.version}" for receipt in given)
    return WorkerRow(worker, state, silent, points)


def is_silent(worker: Worker, facts: Facts) -> bool:
    return facts.now - worker.last_heard_at > SILENT and facts.run.ended_at is None


def late(facts: Facts) -> str:
    """Past the deadline: who is still at it and answers, and who did not confirm. One sentence each."""
    stop = facts.stop
    if stop is None or facts.run.status != RunStatus.CANCELLING_TIMEOUT:
        return ""
    busy = [at for at in receipts.still_in(facts.run) if at.heard_at and facts.now - at.heard_at <= SILENT]
    living = [
        words.STILL_IN.format(
            worker=words.brief(at.worker),
            step=f"“{words.brief(at.step)}”",
            since=f"{clock(at.since)} UTC",
            ago=words.span(int((facts.now - at.heard_at).total_seconds())),
        )
        for at in busy[:NAMED]
        if at.heard_at
    ]
    deadline = f"{clock(stop.deadline_at)}" if stop.deadline_at else "its deadline"
    behind = _unconfirmed(facts, {at.worker for at in busy})
    return words.late(living, len(busy) - len(living), behind, deadline)


def _unconfirmed(facts: Facts, living: set[str]) -> str:
    stop = facts.stop
    silent = [w.name for w in facts.workers if stop and not holds(w, stop) and w.name not in living]
    rest = facts.workers_total - facts.workers_holding - len(silent[:NAMED]) - len(living)
    more = [f"{rest} more"] if rest > 0 and not living else []
    return words.listed([words.brief(name) for name in silent[:NAMED]] + more)
