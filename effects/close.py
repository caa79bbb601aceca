"""The ending: outcome(), a pure function of the rows, and the moves that close a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db import transaction

from runs import drain, steps, stops, wake
from runs.access import SYSTEM
from runs.evidence import Line, record
from runs.models import (
    BUSY,
    INCONSEQUENTIAL,
    Permit,
    PermitState,
    Run,
    RunStatus,
    Step,
    StopRequest,
)
from runs.store import database_time

from .delivery_moves import DOUBTFUL, UNSETTLED
from .models import SETTLED, Compensation, Delivery, Effect, Settlement

NOT_ENDED = "not ended"
ABANDONED = "abandoned"
AWAITING_VERIFICATION = "awaiting verification"
COMPENSATION_PENDING = "compensation pending"
RESUMABLE_PAUSE = "resumable pause"
ACCEPTED_UNKNOWN = "ended with an accepted unknown"
COMPLETED = "completed"
FAILED = "failed"
PARTIALLY_COMPLETED = "partially completed"
SAFE_SETTLEMENT = "stopped after safe settlement"
BEFORE_EFFECT = "stopped before effect"

IN_MOTION = {
    RunStatus.ACTIVE,
    RunStatus.PAUSING,
    RunStatus.CANCELLING,
    RunStatus.CANCELLING_TIMEOUT,
}
DELIVERY_AS_EFFECT = {"HANDED_OVER": "CONFIRMED", "NOT_HANDED_OVER": "NOT_APPLIED"}


@dataclass(frozen=True)
class Repair:
    """A compensation's state; `open`: FAILED, with neither a decision nor a later row."""

    state: str
    open: bool = False


def outcome(
    status: str,
    effects: Sequence[str],
    repairs: Sequence[Repair] = (),
    *,
    deliveries: Sequence[str] = (),
    consequential: bool = False,
) -> str:
    """Exactly one value, first match wins. `consequential`: a permit of such a class existed."""
    known = {str(state) for state in effects} | {DELIVERY_AS_EFFECT.get(d, d) for d in deliveries}
    states = {repair.state for repair in repairs}
    pending = bool(states & {"PROPOSED", "APPROVED", "DISPATCHED"}) or any(
        repair.state == "FAILED" and repair.open for repair in repairs
    )
    accepted = "ACCEPTED_UNKNOWN" in known | states
    ladder = (
        (status in IN_MOTION, NOT_ENDED),
        (status == RunStatus.ABANDONED, ABANDONED),
        (bool(known & {"DISPATCHED", "UNKNOWN"}) or "UNKNOWN" in states, AWAITING_VERIFICATION),
        (pending, COMPENSATION_PENDING),
        (status == RunStatus.PAUSED, RESUMABLE_PAUSE),
        (accepted, ACCEPTED_UNKNOWN),
        (status == RunStatus.COMPLETED, COMPLETED),
        (status == RunStatus.FAILED, FAILED),
        (bool(known & {"CONFIRMED", "PARTIAL"}), PARTIALLY_COMPLETED),
        (consequential, SAFE_SETTLEMENT),
        (True, BEFORE_EFFECT),
    )
    return next(value for holds, value in ladder if holds)


def repairs_by_run(run_ids: Iterable[str]) -> dict[str, list[Repair]]:
    """The compensations of each run (one query). One that failed is open until a later one, or a decision."""
    rows = Compensation.objects.filter(run__in=list(run_ids)).order_by("effect", "-number")
    found: dict[str, list[Repair]] = defaultdict(list)
    newest = ""
    for run_id, effect_id, state in rows.values_list("run_id", "effect_id", "state"):
        found[run_id].append(Repair(state, open=effect_id != newest))
        newest = effect_id
    return found


def repairs_of(run: Run) -> list[Repair]:
    """The same of one run."""
    return repairs_by_run([run.pk])[run.pk]


def outcome_of(run: Run) -> str:
    """The outcome of a run from its rows (four queries)."""
    effects = list(Effect.objects.filter(run=run).values_list("settlement", flat=True))
    deliveries = list(Delivery.objects.filter(run=run).order_by().values_list("state", flat=True).distinct())
    sent = Permit.objects.filter(run=run).exclude(op_class__in=INCONSEQUENTIAL).exists()
    return outcome(run.status, effects, repairs_of(run), deliveries=deliveries, consequential=sent)


# moves of a locked run --------------------------------------------------------------------------

_at_rest: list[Callable[[Run], bool]] = []


def when_at_rest(move: Callable[[Run], bool]) -> None:
    """Have `move` called, under the run's lock, whenever a run came to rest or something of it became known;
    whether it recorded anything. Registered once, when a room loads.
    """
    if move not in _at_rest:
        _at_rest.append(move)


def rest(run: Run) -> bool:
    """What the others do with a run that is at rest, or ended by its runtime's word."""
    told = [move(run) for move in _at_rest]
    return any(told)


def advance(run: Run, actor: str, *, news: bool = True) -> None:
    """Whatever the rows allow now: quiet, timed out, settled. The caller holds the run's lock.

    `news`: the caller recorded something that a report may have to tell.
    """
    before = run.status
    if run.status in (RunStatus.CANCELLING, RunStatus.CANCELLING_TIMEOUT):
        if drain.is_quiet(run):
            _come_to_rest(run, actor)
        else:
            _time_out(run, actor)
    elif run.status == RunStatus.PAUSING and drain.is_quiet(run):
        _hold(run, actor)
    elif run.status == RunStatus.UNKNOWN and not _unsettled(run):
        Run.settle(run)
        record(run, Line("run.cancelled", actor, current_version=run.cancel_version))
        _close_stop(run, "its run is final")
    if run.status == RunStatus.UNKNOWN and not _undecided(run):
        _close_stop(run, "what is unknown was accepted")
    if rest(run) or news or run.status != before:
        tell(run)


def _unsettled(run: Run) -> bool:
    """Whether an effect, or a delivery, which counts as one, is not known yet."""
    effects = Effect.objects.filter(run=run).exclude(settlement__in=SETTLED)
    return effects.exists() or Delivery.objects.filter(run=run, state__in=UNSETTLED).exists()


def _undecided(run: Run) -> bool:
    """Whether something is unknown that two people have not accepted as that."""
    known = [*SETTLED, Settlement.ACCEPTED_UNKNOWN]
    effects = Effect.objects.filter(run=run).exclude(settlement__in=known)
    return effects.exists() or Delivery.objects.filter(run=run, state__in=DOUBTFUL).exists()


def _come_to_rest(run: Run, actor: str) -> None:
    """Quiet: declared intents never start; then CANCELLED, or UNKNOWN while one is unsettled."""
    named = _note_quiet(run)
    left = steps.withhold(run)  # cleanup that nobody took in time
    lines = [steps.withheld_line(actor, step, named["stop_id"], run.cancel_version) for step in left]
    lines += never_start(run, actor)
    lines.append(Line("stop.quiet", actor, **named))
    unsettled = _unsettled(run)
    (Run.rest_unknown if unsettled else Run.settle)(run)
    record(run, *lines, Line("run.unknown" if unsettled else "run.cancelled", actor, **named))
    if not unsettled:
        _close_stop(run, "its run is final")


def _hold(run: Run, actor: str) -> None:
    """Quiet under a pause: held until a resume decision. Unknown effects stay unknown meanwhile."""
    named = _note_quiet(run)
    Run.hold(run)
    record(run, Line("stop.quiet", actor, **named), Line("run.paused", actor, **named))


def _note_quiet(run: Run) -> dict[str, Any]:
    stop = stops.open_stop(run)
    if stop is not None:
        StopRequest.objects.filter(pk=stop.pk, quiet_at__isnull=True).update(quiet_at=database_time())
    return {"stop_id": stop.pk if stop else "", "current_version": run.cancel_version}


def never_start(run: Run, actor: str) -> list[Line]:
    """DECLARED → NOT_STARTED for a run that ends, where no permit may have been sent under."""
    declared = Effect.objects.filter(run=run, settlement=Settlement.DECLARED)
    named = list(declared.order_by("pk").values_list("step_id", "key"))
    if named:
        Effect.never_start(declared)
    return [Line("effect.not_started", actor, step_id=step_id, effect_key=key) for step_id, key in named]


def _time_out(run: Run, actor: str) -> None:
    stop = stops.open_stop(run)
    if stop is None or run.status != RunStatus.CANCELLING or not drain.deadline_passed(stop):
        return
    Run.time_out(run)
    StopRequest.objects.filter(pk=stop.pk).update(timed_out_at=database_time())
    still = Permit.objects.filter(run=run, state=PermitState.OPEN)
    busy = Step.objects.filter(run=run, status__in=BUSY)
    facts = {
        "open_permits": list(still.values_list("pk", flat=True)),
        "workers": sorted(set(busy.values_list("worker", flat=True))),
    }
    record(run, Line("stop.timed_out", actor, facts, stop_id=stop.pk))


def _close_stop(run: Run, because: str) -> None:
    stop = stops.open_stop(run)
    if stop is not None:
        stops.close(stop, because)
        record(run, Line("stop.closed", SYSTEM.id, {"because": because}, stop_id=stop.pk))


def tell(run: Run) -> None:
    transaction.on_commit(partial(wake.run_soon, "dashboard.tasks.issue_report", run.pk), robust=True)
