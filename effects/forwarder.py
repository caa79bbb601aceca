"""Our executor's part of forwarding a stop: gate → connect → second look → ask → report, as ever."""

from __future__ import annotations

from functools import partial

from django.db import Error as DatabaseFailure

from runs.access import EXECUTOR
from runs.forwarding import forward as ask_gate
from runs.guard import Ask, Opened
from runs.models import Permit

from . import providers, settle
from .drain import drain_run
from .executor import LEASE_S, NotOpen, committed, lease_kept, look_again, now, report, worker_name
from .forwards import CancelErrand, pending
from .models import Effect


def forward(effect_id: str) -> str:
    """Send one request to cancel, if the gate lets it; returns what came of it, for the log.

    "nothing to do" · "not dispatched" · an outcome of settle.OUTCOMES. Raises what the database raises.
    """
    found = Effect.objects.filter(pending(), pk=effect_id)
    asking: Effect | None = found.select_related("run", "step", "kind", "asks_about__kind").first()
    if asking is None:
        return "nothing to do"
    ask = Ask(
        asking.run_id,
        EXECUTOR,
        worker_name(),
        asking.step.claim_version or 0,  # of the stop that made it
        op_class=asking.op_class,
        kind=asking.kind_name,
        step_id=asking.step_id,
        claim_token=asking.step.claim_token,
        effect_key=asking.key,
        lease_s=LEASE_S,
    )
    return _carry_out(ask, asking)


def _carry_out(ask: Ask, asking: Effect) -> str:
    began = now()  # before the gate is asked: our own count ends before the database's
    permit = _permit(ask, asking)
    if permit is None:
        drain_run(ask.run_id)  # it may have been what the run still waited for
        return "not dispatched"
    with lease_kept(ask):
        told = _send(asking, permit, began)
        report(permit, told)
    return told.outcome


def _permit(ask: Ask, asking: Effect) -> Permit | None:
    """The gate's permit, or None. Only a permit that is known to be committed is one."""
    try:
        answer = ask_gate(ask, CancelErrand(asking))
    except DatabaseFailure:
        return committed(ask)
    return answer.permit if isinstance(answer, Opened) else None


def _send(asking: Effect, permit: Permit, began: float) -> settle.Told:
    assert asking.kind is not None  # it was made by its kind
    try:
        return providers.ask_to_cancel(asking, asking.kind, partial(look_again, permit, began))
    except NotOpen as shut:
        return settle.Told("not_sent", detail=f"the second look said: {shut}")
