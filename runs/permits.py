"""The row of a permit and its line, for each guard that opens one. Under the run's lock."""

from __future__ import annotations

from django.conf import settings

from .evidence import Line
from .guard import ORDINARY, Ask
from .models import Permit, Run, Step
from .store import after


def open_one(run: Run, ask: Ask, step: Step, guard: str) -> Permit:
    """Insert an OPEN permit of a dispatched step, under the token that holds it."""
    return Permit.objects.create(
        run=run,
        step=step,
        boundary=ask.boundary,
        guard=guard,
        op_class=ask.op_class,
        kind=ask.kind,
        effect_key=ask.effect_key,
        attempt=step.attempt,
        seen_version=ask.seen_version,
        token=step.claim_token or ask.claim_token,
        worker=ask.worker,
        permit_until=after(settings.ALLSTOP_PERMIT_S),
        lease_until=after(ask.lease_s),
        lease=ask.lease,
    )


def opened_line(permit: Permit, ask: Ask) -> Line:
    """`permit.opened`; it names its guard unless that is the ordinary one."""
    return Line(
        "permit.opened",
        ask.actor.id,
        {} if permit.guard == ORDINARY else {"guard": permit.guard},
        boundary=permit.boundary,
        carried_version=permit.seen_version,
        current_version=permit.seen_version,
        step_id=permit.step_id,
        permit_id=permit.pk,
        effect_key=permit.effect_key,
        worker=permit.worker,
    )
