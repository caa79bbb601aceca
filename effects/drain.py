"""One pass over a run: leases that ran out, the deadline, quiet. Resumes from rows alone."""

from __future__ import annotations

from runs import drain, stops, turns
from runs.access import SYSTEM
from runs.evidence import Line, record
from runs.guard import lock_run
from runs.models import BUSY, OperationClass, Permit, Run, RunStatus, Step, StepStatus, StopRequest
from runs.store import database_time, verb

from . import close, delivery_moves, repair_moves, reviews
from .models import CompensationState, DeliveryState, Effect, Settlement
from .settle import give_back, line_of, lose, step_line

LOST_SENDER = "worker {worker} was lost after the dispatch"
LOST_TURN = "worker lost; what the model turn spent is not reported"


@verb
def drain_run(run_id: str) -> str:
    """One pass over a run: leases that ran out, the deadline, quiet. Returns its status.

    A controller that dies resumes here from rows; running it twice changes nothing.
    """
    run = lock_run(run_id)
    fence = _pause_is_overdue(run)
    lines: list[Line] = []
    for permit in drain.lose_leases(run, all_of_them=fence):
        lines += lost(run, permit)
    for step in drain.lapsed_steps(run, all_of_them=fence):
        lines += lapsed(run, step, held=run.status == RunStatus.PAUSING)
    if lines:
        record(run, *lines)
    close.advance(run, SYSTEM.id, news=bool(lines))
    return str(run.status)


def _pause_is_overdue(run: Run) -> bool:
    """A pause never waits for ever: past its deadline every lease is fenced, and the run is held."""
    stop = stops.open_stop(run) if run.status == RunStatus.PAUSING else None
    if stop is None or not drain.deadline_passed(stop) or drain.is_quiet(run):
        return False
    rows = StopRequest.objects.filter(pk=stop.pk, timed_out_at__isnull=True)
    if not rows.update(timed_out_at=database_time()):
        return True
    busy = Step.objects.filter(run=run, status__in=BUSY).values_list("worker", flat=True)
    facts = {"workers": sorted(set(busy))}
    record(run, Line("stop.timed_out", SYSTEM.id, facts, stop_id=stop.pk))
    return True


def lost(run: Run, permit: Permit) -> list[Line]:
    """Nobody says what happened under this permit: what it was for is unknown."""
    lines = [
        Line(
            "permit.lost",
            SYSTEM.id,
            boundary=permit.boundary,
            step_id=permit.step_id,
            permit_id=permit.pk,
            effect_key=permit.effect_key,
            worker=permit.worker,
            payload=turns.lost(permit),
        )
    ]
    delivery = delivery_moves.of_permit(permit)
    if delivery is not None and delivery.state == DeliveryState.DISPATCHED:
        why = f"worker {permit.worker} was lost while it handed it over"
        lines.append(delivery_moves.lose(delivery, why, SYSTEM.id))
    compensation = repair_moves.of_permit(permit)
    if compensation is not None and compensation.state == CompensationState.DISPATCHED:
        lines += repair_moves.lose(compensation, LOST_SENDER.format(worker=permit.worker), SYSTEM.id)
    effect = Effect.objects.filter(permit=permit, settlement=Settlement.DISPATCHED).first()
    if effect is not None:
        lose(effect, LOST_SENDER.format(worker=permit.worker))
        lines.append(line_of(effect, SYSTEM.id, {"why": effect.why_unknown}, ""))
    return lines


def lapsed(run: Run, step: Step, *, held: bool) -> list[Line]:
    """A lease ran out: PENDING if nothing was dispatched, else what its effects say. `held`: by a pause,
    which keeps it for a resume unless it has a stop of its own."""
    if step.status == StepStatus.CLAIMED:
        return give_back(run, step, SYSTEM.id)
    doubtful = Effect.objects.filter(step=step, settlement__in=["DISPATCHED", "UNKNOWN"]).exists()
    if doubtful:
        Step.lose(step, "worker lost")
    elif held and step.stopped_at is None:
        Step.release(step)
    elif step.happened:
        Step.finish_partly(step, "worker lost")
    else:
        Step.fail(step, LOST_TURN if step.op_class == OperationClass.MODEL_TURN else "worker lost")
    return [step_line(step, SYSTEM.id), *reviews.step_ended(run, step, SYSTEM.id)]
