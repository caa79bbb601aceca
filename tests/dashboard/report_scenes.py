"""One run for each outcome that rows can have today, brought about by the verbs where there is one."""

from __future__ import annotations

from collections.abc import Callable

from django.db import transaction

from effects import drain, ends, resume
from effects.models import Effect
from runs import stops
from runs.evidence import Line, record
from runs.models import Run
from tests.effects import compensations
from tests.worlds import World, fresh, lapse

Scene = Callable[[World], Run]


def not_ended(w: World) -> Run:
    """The deadline passed while a charge was in flight."""
    run = w.run()
    w.opened(run)
    w.stop(run, deadline_s=0)
    drain.drain_run(run.pk)
    return fresh(run)


def abandoned(w: World) -> Run:
    """Given up after the deadline passed, with the charge still in flight."""
    run = not_ended(w)
    w.stop(run, by=w.bob, mode="abandon")
    return fresh(run)


def awaiting_verification(w: World) -> Run:
    """One charge confirmed, one whose answer was lost, one step withheld, one attempt refused twice."""
    run = w.run(ungateable=["web search"])
    first, second = w.opened(run, "charge:1"), w.opened(run, "charge:2")
    w.claimed(run, "later")
    w.report(first, provider_ref="ch_1")
    w.stop(run, reason="wrong input", note="price list is last month’s")
    w.stop(run, by=w.bob)
    w.refused(run, "charge:3")
    w.refused(run, "charge:3")
    w.report(second, "unknown", detail="timeout")
    return fresh(run)


def resumable_pause(w: World) -> Run:
    """A claim was given back, one step waits, one charge happened before."""
    run = w.run()
    w.report(w.opened(run))
    w.claimed(run, "next")
    w.stop(run, mode="pause")
    drain.drain_run(run.pk)
    return fresh(run)


def paused_then_cancelled(w: World) -> Run:
    """A refusal while it was paused; then Bob cancelled."""
    run = w.run()
    opened = w.opened(run)
    w.stop(run, mode="pause")
    w.refused(fresh(run), "charge:8", seen_version=1)
    w.stop(run, by=w.bob, mode="cancel")
    w.report(opened)
    return fresh(run)


def resumed_then_completed(w: World) -> Run:
    """A night's pause, one more charge in the morning, and the end."""
    run = resumable_pause(w)
    assert isinstance(resume.resume(actor=w.bob, run_id=run.pk, reason="morning"), resume.Resumed)
    w.report(w.opened(fresh(run), "charge:morning"))
    ends.complete(actor=w.agent, run_id=run.pk, seen=3)
    return fresh(run)


def late_pause(w: World) -> Run:
    """A pause whose deadline somebody forced: a charge is unknown."""
    run = w.run()
    w.opened(run)
    stop = w.stop(run, mode="pause", deadline_s=3600).stop
    stops.force_deadline(actor=w.bob, stop_id=stop.pk)
    drain.drain_run(run.pk)
    return fresh(run)


def accepted_unknown(w: World) -> Run:
    run = awaiting_verification(w)
    effect = Effect.objects.get(run=run, settlement="UNKNOWN")
    with transaction.atomic():
        Effect.accept_unknown(effect)
        record(run, Line("effect.accepted_unknown", w.bob.id, effect_key=effect.key))
    return fresh(run)


def completed(w: World) -> Run:
    run = w.run()
    w.report(w.opened(run))
    ends.complete(actor=w.agent, run_id=run.pk, seen=1, summary="all booked")
    return fresh(run)


def failed(w: World) -> Run:
    """The runtime gave up while a charge was in flight, and its holder said later that it was not sent."""
    run = w.run()
    opened = w.opened(run)
    ends.fail(actor=w.agent, run_id=run.pk, summary="out of memory")
    w.report(opened, "not_sent")
    return fresh(run)


def partially_completed(w: World) -> Run:
    """Three charges: one before the stop, one in flight that happened, one that did not."""
    run = w.run()
    charges = [w.opened(run, f"charge:{number}") for number in (1, 2, 3)]
    w.report(charges[0], provider_ref="ch_1")
    w.stop(run)
    w.report(charges[1], "partial", items=["line 1", "line 2"])
    w.report(charges[2], "not_applied")
    return fresh(run)


def compensation_pending(w: World) -> Run:
    """Stopped with everything settled; a refund of what happened waits for people."""
    effect = compensations.a_charge(w, "CANCELLED")
    compensations.proposed(effect, w.bob)
    return fresh(effect.run)


def safe_settlement(w: World) -> Run:
    run = w.run()
    opened = w.opened(run)
    w.stop(run)
    w.report(opened, "not_sent")
    return fresh(run)


def before_effect(w: World) -> Run:
    run = w.run()
    w.claimed(run, "read", op_class="read")
    w.stop(run)
    drain.drain_run(run.pk)
    return fresh(run)


def lost_worker(w: World) -> Run:
    """A stop, then the lease of the charge ran out."""
    run = w.run()
    opened = w.opened(run)
    w.stop(run)
    lapse(opened.permit, opened.step)
    drain.drain_run(run.pk)
    return fresh(run)


SCENES: dict[str, Scene] = {
    "not ended": not_ended,
    "abandoned": abandoned,
    "awaiting verification": awaiting_verification,
    "compensation pending": compensation_pending,
    "resumable pause": resumable_pause,
    "ended with an accepted unknown": accepted_unknown,
    "completed": completed,
    "failed": failed,
    "partially completed": partially_completed,
    "stopped after safe settlement": safe_settlement,
    "stopped before effect": before_effect,
}
