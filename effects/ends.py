"""How a run ends by its runtime's word: complete() and fail(). A stop that came first wins."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Q

from runs import drain, steps, stops
from runs.access import Actor, NotFound, demand
from runs.evidence import Line, record
from runs.guard import STALE, STOPPED, Refusal, lock_run
from runs.models import Evidence, Mode, Run, RunStatus, StopRequest
from runs.store import verb

from . import close, delivery_moves, repair_moves, reviews
from .models import Effect, Ground, Settlement
from .settle import line_of, lose


class NotQuiet(ValueError):
    """A permit is open, or a step is still claimed or dispatched: report and finish those first."""


@verb
def complete(*, actor: Actor, run_id: str, seen: int, worker: str = "", summary: str = "") -> Run | Refusal:
    """The runtime's word that the run completed, at the version it saw. Races with a stop end one way.

    Raises NotFound, NotAllowed, NotQuiet. A stop that came first is a Refusal.
    """
    run = _lock_to_end(actor, run_id)
    if run.status == RunStatus.COMPLETED:
        return run
    reason = STOPPED if run.status != RunStatus.ACTIVE else STALE if run.cancel_version != seen else None
    if reason is not None:
        return _too_late(run, actor, worker, "completion", reason, seen)
    if not drain.is_quiet(run):
        raise NotQuiet(run_id)
    lines = _end(run, actor)
    Run.complete(run, seen, summary)
    record(run, *lines, Line("run.completed", actor.id, {"summary": summary}, carried_version=seen))
    close.tell(run)
    return Run.objects.get(pk=run.pk)


@verb
def fail(*, actor: Actor, run_id: str, worker: str = "", summary: str = "") -> Run | Refusal:
    """The runtime's word that the run failed; always allowed from ACTIVE.

    Effects in progress become UNKNOWN at once. Raises NotFound, NotAllowed.
    """
    run = _lock_to_end(actor, run_id)
    if run.status == RunStatus.FAILED:
        return run
    if run.status != RunStatus.ACTIVE:
        return _too_late(run, actor, worker, "failure", STOPPED, run.cancel_version)
    why = "the run failed while it was in progress"
    lines = _end(run, actor) + _lose_all(run, actor, why) + delivery_moves.lose_all(run, actor.id, why)
    Run.fail(run, summary)
    record(run, *lines, Line("run.failed", actor.id, {"summary": summary}))
    close.rest(run)
    close.tell(run)
    return Run.objects.get(pk=run.pk)


def _lock_to_end(actor: Actor, run_id: str) -> Run:
    if not Run.objects.filter(pk=run_id).exists():
        raise NotFound("run")
    run = lock_run(run_id)
    demand(actor, "write", run)
    return run


def _too_late(run: Run, actor: Actor, worker: str, what: str, reason: str, seen: int) -> Refusal:
    """A stop (or another end) came first: say which, once per pair of versions."""
    line = Line(
        f"{what}.refused",
        actor.id,
        {"reason": reason, "status": run.status},
        carried_version=seen,
        current_version=run.cancel_version,
        worker=worker,
    )
    told = Evidence.objects.filter(
        stream=run.pk, kind=line.kind, carried_version=seen, current_version=run.cancel_version
    )
    if not told.exists():
        record(run, line)
    stop = stops.open_stop(run)
    return Refusal(reason, what, seen, run.cancel_version, run.status, stop.pk if stop else None)


def _end(run: Run, actor: Actor) -> list[Line]:
    """The run ends by its runtime's word: withhold what was never dispatched."""
    touched = steps.withhold(run)
    lines = [steps.withheld_line(actor.id, step, "", run.cancel_version) for step in touched]
    return lines + reviews.ended(run, actor) + close.never_start(run, actor.id)


def _lose_all(run: Run, actor: Actor, why: str, *, ask: bool = True) -> list[Line]:
    """Every effect in progress becomes UNKNOWN, at once."""
    lines = []
    for effect in Effect.objects.filter(run=run, settlement=Settlement.DISPATCHED):
        lose(effect, why, ask=ask)
        lines.append(line_of(effect, actor.id, {"why": effect.why_unknown}, Ground.REPORTED))
    return lines


def stopped(run: Run, stop: StopRequest, actor: Actor) -> list[Line]:
    """What a stop does to the effects of its run, in its own transaction; only an abandon ends any."""
    return _abandon(run, actor) if stop.mode == Mode.ABANDON and not stop.finished_before else []


def concerned(run_ids: Sequence[str], scope_stop: StopRequest) -> list[str]:
    """Those of these runs of which an abandon ends an effect. The others' reports are found by themselves."""
    if scope_stop.mode != Mode.ABANDON:
        return []
    alive = Q(settlement__in=[Settlement.DECLARED, Settlement.DISPATCHED]) | Q(next_check_at__isnull=False)
    rows = Effect.objects.filter(alive, run__in=run_ids).order_by()
    ids = rows.values_list("run_id", flat=True).distinct()
    return list(ids.union(repair_moves.alive(run_ids)))


def _abandon(run: Run, actor: Actor) -> list[Line]:
    """We ask nobody any more."""
    lines = close.never_start(run, actor.id)
    why = "we gave up waiting while it was in progress"
    lines += _lose_all(run, actor, why, ask=False) + repair_moves.lose_all(run, why, actor.id, ask=False)
    Effect.objects.filter(run=run, next_check_at__isnull=False).update(next_check_at=None)
    close.tell(run)
    return lines
