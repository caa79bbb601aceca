"""Runs as rows of a list: chip, effects, stop; a fixed number of queries, however many rows there are."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count

from dashboard import words
from dashboard.pages.facts import KNOWN, marks
from dashboard.words import Term
from effects import delivery_moves
from effects.close import outcome, repairs_by_run
from effects.models import Effect, Settlement
from runs import gates
from runs.models import INCONSEQUENTIAL, Permit, Run, RunStatus, StopRequest
from runs.stops import RESUMED


@dataclass(frozen=True)
class RunRow:
    """One run of the list."""

    run: Run
    term: Term
    marks: list[str]
    effects: str
    stop: StopRequest | None
    elapsed_s: float

    @property
    def can_resume(self) -> bool:
        return bool(self.run.status == RunStatus.PAUSED)

    @property
    def stop_says(self) -> str:
        """Its mode; a pause that was resumed says so."""
        if self.stop is None:
            return ""
        return f"{self.stop.mode}, resumed" if self.stop.closed_because == RESUMED else self.stop.mode

    @property
    def can_stop(self) -> bool:
        return bool(self.run.status == RunStatus.ACTIVE)


def rows_of(runs: list[Run], now: datetime) -> Iterable[RunRow]:
    """Rows with their effects, stops and outcomes: five queries for the whole page."""
    ids = [run.pk for run in runs]
    settled: dict[str, Counter[str]] = defaultdict(Counter)
    counts = Effect.objects.filter(run__in=ids).values_list("run", "settlement").annotate(n=Count("pk"))
    for run_id, state, number in counts.order_by():
        settled[run_id][state] = number
    messages, repairs = delivery_moves.states_of(ids), repairs_by_run(ids)
    sent = set(
        Permit.objects.filter(run__in=ids)
        .exclude(op_class__in=INCONSEQUENTIAL)
        .values_list("run", flat=True)
        .distinct()
    )
    own = StopRequest.objects.filter(run__in=ids, scope="run").order_by("pk")
    stops = {stop.run_id: stop for stop in own}
    for run in runs:
        mine, stop = settled[run.pk], stops.get(run.pk)
        counted: dict[str, Any] = {"deliveries": messages[run.pk], "consequential": run.pk in sent}
        ending = outcome(run.status, list(mine), repairs[run.pk], **counted)
        term = words.run_chip(
            run.status,
            ending,
            quiet=bool(stop and stop.quiet_at),
            held_back=gates.holds_back(run.workspace, run),
        )
        elapsed = ((run.ended_at or now) - run.admitted_at).total_seconds()
        yield RunRow(run, term, marks(mine), effects_in_words(mine), stop, elapsed)


def effects_in_words(settlements: Counter[str]) -> str:
    """`5 known · 1 not applied · 2 unknown · 2 not started`, or that there is none."""
    parts = [
        (sum(settlements[state] for state in KNOWN) - settlements[Settlement.NOT_APPLIED], "known"),
        (settlements[Settlement.NOT_APPLIED], "not applied"),
        (settlements[Settlement.UNKNOWN], "unknown"),
        (settlements[Settlement.ACCEPTED_UNKNOWN], "accepted unknown"),
        (settlements[Settlement.DISPATCHED], "in flight"),
        (settlements[Settlement.DECLARED], "declared"),
        (settlements[Settlement.NOT_STARTED], "not started"),
    ]
    return " · ".join(f"{number} {word}" for number, word in parts if number) or "no effect"
