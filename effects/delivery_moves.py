"""What becomes of a delivery: its holder's word, a lost lease, a stop, a resume. Moves of one locked run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from django.db.models import Exists, OuterRef, Q

from runs.access import Actor
from runs.evidence import AT_ONCE, Line
from runs.guard import stopped_since
from runs.models import (
    FINAL,
    Boundary,
    InFlight,
    Mode,
    Permit,
    PermitState,
    Run,
    RunStatus,
    Step,
    StopRequest,
)
from runs.store import Now, after

from . import contradictions
from .models import Channel, Delivery, DeliveryState, Ground

OURS = (Channel.WEBHOOK, Channel.EMAIL)
TOLD = 100  # so many are named in the line of a stop; each has its own record
# States in which nobody can say yet, or ever, whether it was handed over.
DOUBTFUL = (DeliveryState.DISPATCHED, DeliveryState.UNKNOWN)
UNSETTLED = (*DOUBTFUL, DeliveryState.ACCEPTED_UNKNOWN)
AGAIN_S = 5  # how long a message to our sender may take before it counts as lost


def of_permit(permit: Permit) -> Delivery | None:
    """The delivery that a permit was given for; another attempt may hold it by now."""
    if permit.boundary != Boundary.DELIVER:
        return None
    named = Q(permit=permit) | Q(run_id=permit.run_id, key=permit.effect_key)
    found: Delivery | None = Delivery.objects.filter(named).first()
    return found


def settle(run: Run, delivery: Delivery, permit: Permit, told: Any, late: bool, actor: Actor) -> list[Line]:
    """Move a delivery, and the step of this attempt, by its holder's word (settle.Told).

    An earlier attempt that handed it over after all counts; that one did not says nothing of the next.
    """
    was, over = delivery.state, told.outcome in ("applied", "partial")
    facts = {"late": late, "provider_ref": told.provider_ref[:300], "detail": told.detail[:300]}
    if not over and delivery.permit_id != permit.pk:
        return []
    if was not in UNSETTLED:
        return _against(run, delivery, permit, told.outcome, actor)
    facts["ground"] = Ground.REPORTED
    if over:
        Delivery.hand_over(delivery, **facts)
    elif told.outcome == "not_sent" and was == DeliveryState.DISPATCHED:
        return _taken_back(run, delivery, permit, actor)
    elif told.outcome != "unknown":
        Delivery.fail(delivery, **facts)
    elif was == DeliveryState.DISPATCHED:
        Delivery.lose(delivery, told.detail[:300] or "the holder could not say")
    else:
        return []
    end_step(permit.step_id, delivery.state)
    by = {"ground": Ground.REPORTED, "was": was}
    return [line_of(delivery, actor.id, permit.worker, permit=permit, **by)]


MEANS = {
    "applied": "happened",
    "partial": "happened",
    "not_applied": "did not happen",
    "not_sent": "did not happen",
}


def _against(run: Run, delivery: Delivery, permit: Permit, outcome: str, actor: Actor) -> list[Line]:
    """A late report of one that is settled: it may speak against that, or bear a person's decision out."""
    was, means, ground = delivery.state, MEANS.get(outcome, ""), delivery.ground or Ground.REPORTED
    if was in STEP_ENDS:
        end_step(permit.step_id, was)
    by: dict[str, Any] = {"ground": Ground.REPORTED, "was": was}
    if contradictions.bears_out(was, ground, means, Ground.REPORTED):
        Delivery.objects.filter(pk=delivery.pk, state=was).update(ground=Ground.REPORTED)
        return [line_of(delivery, actor.id, permit.worker, permit=permit, stood_on=ground, **by)]
    by_attempt = ground == Ground.REPORTED and was == DeliveryState.HANDED_OVER
    if by_attempt or not contradictions.disagrees(was, ground, means, Ground.REPORTED):
        return []
    contradict(run, delivery, f"it was {was.lower().replace('_', ' ')}; a late report says: {means}")
    return [line_of(delivery, actor.id, permit.worker, permit=permit, why=delivery.detail, **by)]


def contradict(run: Run, delivery: Delivery, why: str) -> None:
    """Settled → UNKNOWN: what is said of it does not agree."""
    Delivery.contradict(delivery, why[:300], late=run.status in FINAL)


def _taken_back(run: Run, delivery: Delivery, permit: Permit, actor: Actor) -> list[Line]:
    """Nothing was sent: queued again, unless a stop of its run, or of this step of it, came meanwhile."""
    Delivery.take_back(delivery, after(AGAIN_S) if delivery.channel in OURS else None)
    stopped = Step.objects.filter(pk=permit.step_id, stopped_at__isnull=False).exists()
    move = Delivery.withhold if stopped else what_stands(run)
    if move is not None:
        move(delivery)
    Step.withhold(Step.objects.filter(pk=permit.step_id))
    by = {"ground": Ground.REPORTED, "was": DeliveryState.DISPATCHED}
    return [line_of(delivery, actor.id, permit.worker, permit=permit, **by)]


def what_stands(run: Run) -> Callable[[Any], int] | None:
    """What the stop in force does to a queued delivery of this run; None when none is."""
    if run.status in (RunStatus.PAUSING, RunStatus.PAUSED):
        return Delivery.hold
    ended = run.status in (RunStatus.COMPLETED, RunStatus.FAILED)
    if run.status == RunStatus.ACTIVE or (ended and not stopped_since(run, run.cancel_version)):
        return None
    return Delivery.withhold


def lose(delivery: Delivery, why: str, actor: str) -> Line:
    """DISPATCHED → UNKNOWN: nobody says what happened to it."""
    Delivery.lose(delivery, why[:300])
    if delivery.permit_id is not None:
        step_ids = Permit.objects.filter(pk=delivery.permit_id).values_list("step_id", flat=True)
        end_step(step_ids.get(), delivery.state)
    return line_of(delivery, actor)


STEP_ENDS: dict[str, Callable[[Any], int]] = {
    DeliveryState.HANDED_OVER: Step.succeed,
    DeliveryState.NOT_HANDED_OVER: Step.fail,
    DeliveryState.UNKNOWN: Step.lose,
}


def end_step(step_id: str, state: str) -> None:
    """The step of an attempt ends with it."""
    STEP_ENDS[state](Step.objects.filter(pk=step_id))


def line_of(
    delivery: Delivery,
    actor: str,
    worker: str = "",
    *,
    permit: Permit | None = None,
    stop_id: str = "",
    ground: str = "",
    **told: Any,
) -> Line:
    """`delivery.queued`, `delivery.handed_over`, … as the delivery stands now."""
    return Line(
        f"delivery.{delivery.state.lower()}",
        actor,
        {"delivery": delivery.pk, "channel": delivery.channel, **told},
        boundary=Boundary.DELIVER,
        ground=ground,
        carried_version=permit.seen_version if permit else None,
        step_id=permit.step_id if permit else "",
        permit_id=permit.pk if permit else "",
        effect_key=delivery.key,
        stop_id=stop_id,
        worker=worker,
    )


# stops, ends and resumes -------------------------------------------------------------------------------


def stopped(run: Run, stop: StopRequest, actor: Actor) -> list[Line]:
    """What a stop does to the deliveries of its run, in its own transaction: hold, or withhold.

    What was handed over is listed; what is in flight becomes unknown with an abandon.
    """
    pause = stop.mode == Mode.PAUSE and not stop.finished_before
    sources = (
        (DeliveryState.QUEUED,)
        if pause
        else (DeliveryState.QUEUED, DeliveryState.HELD, DeliveryState.NOT_HANDED_OVER)
    )
    if stop.finished_before:
        list_in_flight(run, stop)
    if not Delivery.objects.filter(run=run).exists():
        return []
    lines = list(_each(run, sources, Delivery.hold if pause else Delivery.withhold, actor, stop.pk))
    if stop.mode == Mode.ABANDON and not stop.finished_before:
        lines += lose_all(run, actor.id, "we gave up waiting while it was being handed over")
    told = _handed_over(run)
    if told["handed_over"] or told["in_flight"]:
        lines.append(Line("delivery.listed", actor.id, told, stop_id=stop.pk))
    return lines


def concerned(run_ids: Sequence[str], scope_stop: StopRequest) -> list[str]:
    """Those of these runs with messages, or that ended with something in flight (`list_in_flight`)."""
    flying = Permit.objects.filter(run=OuterRef("pk"), state__in=[PermitState.OPEN, PermitState.LOST])
    messages = Exists(Delivery.objects.filter(run=OuterRef("pk")))
    rows = Run.objects.filter(messages | Q(Exists(flying), status__in=FINAL), pk__in=run_ids)
    return list(rows.values_list("pk", flat=True))


def _each(
    run: Run, sources: tuple[str, ...], move: Callable[[Any], int], actor: Actor, stop_id: str
) -> Iterator[Line]:
    """A slice at a time, in key order: a run with a long queue is stopped as surely as any other."""
    rows = Delivery.objects.filter(run=run, state__in=sources).order_by("pk").defer("body")
    last = ""
    while True:
        found = list(rows.filter(pk__gt=last)[:AT_ONCE])
        if found:
            move(Delivery.objects.filter(pk__in=[one.pk for one in found]))
            last = found[-1].pk
        for one in found:
            was, one.state = one.state, "HELD" if move is Delivery.hold else "WITHHELD"
            yield line_of(one, actor.id, stop_id=stop_id, was=was)
        if len(found) < AT_ONCE:
            return


def states_of(run_ids: Iterable[str]) -> dict[str, list[str]]:
    """Which states the deliveries of each run stand in (one query)."""
    found: dict[str, list[str]] = defaultdict(list)
    rows = Delivery.objects.filter(run_id__in=list(run_ids)).order_by()
    for run_id, state in rows.values_list("run_id", "state").distinct():
        found[run_id].append(state)
    return found


def list_in_flight(run: Run, stop: StopRequest) -> None:
    """A stop of a finished run lists what is being handed over, as any stop lists what is in flight."""
    permits = Permit.objects.filter(run=run, state__in=[PermitState.OPEN, PermitState.LOST])
    listed = (InFlight(stop=stop, permit=permit, state_then=permit.state) for permit in permits)
    InFlight.objects.bulk_create(listed, batch_size=AT_ONCE)


def _handed_over(run: Run) -> dict[str, Any]:
    """What no stop reaches any more: how many were handed over, and the first of them by key."""
    mine = Delivery.objects.filter(run=run)
    over = mine.filter(state=DeliveryState.HANDED_OVER).order_by("pk")
    flying = mine.filter(state__in=UNSETTLED).order_by("pk")
    return {
        "handed_over": over.count(),
        "keys": list(over.values_list("key", flat=True)[:TOLD]),
        "in_flight": list(flying.values_list("key", flat=True)[:TOLD]),
    }


def lose_all(run: Run, actor: str, why: str) -> list[Line]:
    """Every delivery in progress becomes UNKNOWN, at once."""
    rows = Delivery.objects.filter(run=run, state=DeliveryState.DISPATCHED).order_by("pk")
    return [lose(delivery, why, actor) for delivery in rows]


def resumed(run: Run, actor: str) -> list[Line]:
    """HELD → QUEUED at the version of the resume, in its transaction."""
    lines: list[Line] = []
    for channels, turn_at in ((OURS, Now()), ((Channel.OUTSIDE,), None)):
        held = Delivery.objects.filter(run=run, state=DeliveryState.HELD, channel__in=channels)
        rows = list(held.order_by("pk").defer("body"))
        for start in range(0, len(rows), AT_ONCE):
            some = rows[start : start + AT_ONCE]
            Delivery.queue_again(
                Delivery.objects.filter(pk__in=[one.pk for one in some]), run.cancel_version, turn_at
            )
        for one in rows:
            one.state = DeliveryState.QUEUED
            lines.append(line_of(one, actor, was=DeliveryState.HELD))
    return lines
