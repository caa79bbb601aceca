"""Our own runtime: claim → gate → connect → second look → send → report. The only caller of `send()`.

A message says only "look at this effect"; the rows decide. Five deliveries of one message, or two
workers, come to one request. What happens between a permit and its report without an answer is
left to the permit's lease: nothing here guesses.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from django.conf import settings
from django.db import Error as DatabaseFailure
from django.db import close_old_connections, connection, connections
from django.db.models import Q

from runs import drain, gate
from runs.access import EXECUTOR
from runs.guard import Ask, Opened, Refusal, lock_run
from runs.models import Permit, PermitState, Step, StepStatus
from runs.store import one_transaction

from . import intents, outbound, providers, reviews, settle
from .models import SENT_BY_US, Effect, Settlement

log = logging.getLogger(__name__)

LEASE_S = 30.0
REPORT_TRIES = 6
REPORT_PAUSE_S = 0.2  # doubled after each try: about six seconds in all
RESULT_OF = {"applied": "succeeded", "partial": "partial", "not_applied": "failed"}

# A step that was withheld is asked for too, so that what came too late leaves its refusal.
WORTH_ASKING = Q(queued_at__isnull=False, step__status=StepStatus.PENDING) | Q(
    step__status=StepStatus.WITHHELD
)
TO_SEND = (Settlement.DECLARED, Settlement.NOT_APPLIED, Settlement.NOT_STARTED)


class NotOpen(Exception):
    """The second look did not say "open": nothing may be sent, and nothing was."""


def execute(effect_id: str) -> str:
    """Send one queued effect if the gate lets it; returns what came of it, for the log.

    "nothing to do" · "refused" · "not dispatched" · an outcome of settle.OUTCOMES. Raises what the
    database raises; a permit that is open then is left to its lease.
    """
    effect = _queued(effect_id)
    if effect is None:
        return "nothing to do"
    ask = Ask(
        effect.run_id,
        EXECUTOR,
        worker_name(),
        effect.run.cancel_version,
        op_class=effect.op_class,
        kind=effect.kind_name,
        step_id=effect.step_id,
        effect_key=effect.key,
        lease_s=LEASE_S,
    )
    step = gate.claim(ask)
    if isinstance(step, Refusal):
        return "refused"
    return _carry_out(replace(ask, claim_token=step.claim_token), effect)


def now() -> float:
    """Seconds of a clock that never goes back and, where there is one, runs on while the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def worker_name() -> str:
    """host:pid, as receipts and evidence name this process."""
    return f"{socket.gethostname()}:{os.getpid()}"[:120]


def _queued(effect_id: str) -> Effect | None:
    """The effect, while it is ours to send and its step is free; without a lock, so only a hint."""
    found: Effect | None = (
        Effect.objects.select_related("run", "step", "kind")
        .filter(pk=effect_id, kind__provider__in=SENT_BY_US)
        .filter(WORTH_ASKING, settlement__in=TO_SEND)
        .first()
    )
    return found


def _carry_out(ask: Ask, effect: Effect) -> str:
    began = now()  # before the gate is asked: our own count ends before the database's
    permit = _permit(ask, effect)
    if permit is None:
        if _still_ours(ask, StepStatus.CLAIMED):
            gate.release(ask)
        return "not dispatched"
    with lease_kept(ask):
        told = _send(effect, permit, began)
        report(permit, told)
    _end_step(ask, told.outcome)
    return told.outcome


def _end_step(ask: Ask, outcome: str) -> None:
    """A step that was not registered with its effect doesn't end with it: its holder ends it."""
    if not _still_ours(ask, StepStatus.DISPATCHED):
        return
    if outcome == "not_sent":
        gate.release(ask)
    else:
        result = RESULT_OF.get(outcome, "unknown")
        settle.finish_step(actor=ask.actor, step_id=ask.step_id, token=ask.claim_token, result=result)


def _still_ours(ask: Ask, status: str) -> bool:
    return Step.objects.filter(pk=ask.step_id, claim_token=ask.claim_token, status=status).exists()


def _permit(ask: Ask, effect: Effect) -> Permit | None:
    """The gate's permit, or None. Only a permit that is known to be committed is one."""
    try:
        answer = intents.dispatch_again(ask, effect.pk)
    except DatabaseFailure:
        return committed(ask)
    return answer.permit if isinstance(answer, Opened) else None


def committed(ask: Ask) -> Permit | None:
    """The COMMIT may have come through and only its answer was lost: ask by our own token, on
    another wire, behind whatever the lost one still holds."""
    connection.close()
    mine = {"token": ask.claim_token, "effect_key": ask.effect_key, "state": PermitState.OPEN}
    with one_transaction():
        lock_run(ask.run_id)
        found: Permit | None = Permit.objects.filter(step_id=ask.step_id, **mine).first()
    return found


def _send(effect: Effect, permit: Permit, began: float) -> settle.Told:
    assert effect.kind is not None  # _queued() chose it by its kind
    effect.attempt = Effect.objects.values_list("attempt", flat=True).get(pk=effect.pk)
    try:
        return providers.send(effect, effect.kind, partial(_look_again, effect, permit, began))
    except NotOpen as shut:
        return settle.Told("not_sent", detail=f"the second look said: {shut}")


def _look_again(effect: Effect, permit: Permit, began: float) -> None:
    """The last question, and before it: whether what we read before the gate is what people approved."""
    try:
        as_approved = reviews.effect_is_as_approved(effect, permit)
    except DatabaseFailure as error:
        raise NotOpen("nothing") from error
    if not as_approved:
        raise NotOpen("it is not what was approved")
    look_again(permit, began)


def look_again(permit: Permit, began: float) -> None:
    """The last question, directly before the first byte. Raises NotOpen, or Refused when time is up.

    No answer is not "open". A process that was frozen after the answer is told by its own clock.
    """
    end = began + settings.ALLSTOP_PERMIT_S
    if now() >= end:
        raise NotOpen("expired")
    try:
        look = gate.look(permit.pk, permit.token)
    except DatabaseFailure as error:
        raise NotOpen("nothing") from error
    if look.answer != "open":
        raise NotOpen(look.answer)
    if connection.vendor == "postgresql":  # a slow provider must not hold one of the pool's few
        close_old_connections()
    if now() >= end:
        raise outbound.Refused("the permit's time to begin ended before the first byte")


def report(permit: Permit, told: settle.Told) -> None:
    """Record what became of the call. An answer is precious: a database that is away is asked again."""
    for attempt in range(REPORT_TRIES):
        try:
            settle.report(actor=EXECUTOR, permit_id=permit.pk, token=permit.token, told=told)
            return
        except DatabaseFailure:  # of any kind: PostgreSQL calls it internal when it ends a silent transaction
            connection.close()
            if attempt + 1 == REPORT_TRIES:
                raise
            time.sleep(REPORT_PAUSE_S * 2**attempt)


# leases ------------------------------------------------------------------------------------------


@contextmanager
def lease_kept(ask: Ask) -> Iterator[None]:
    """While the call lasts, a thread keeps permit and step from being taken for lost."""
    over = threading.Event()
    beating = threading.Thread(target=_beat, args=(ask, over), name="allstop-lease", daemon=True)
    beating.start()
    try:
        yield
    finally:
        over.set()
        beating.join(5)


def _beat(ask: Ask, over: threading.Event) -> None:
    try:
        while not over.wait(ask.lease_s / 3):
            try:
                drain.heartbeat(
                    actor=ask.actor,
                    run_id=ask.run_id,
                    worker=ask.worker,
                    seen=ask.seen_version,
                    tokens=[ask.claim_token],
                )
            except DatabaseFailure:  # the next beat may come through; if none does, the lease ends
                connection.close()
                log.info("a lease was not renewed: %s", ask.claim_token[:8])
    finally:
        connections.close_all()
