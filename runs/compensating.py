"""The compensate guard: a new, deliberate effect of a run that is at rest, and never of an abandoned one.

It is rare, so it takes its time: it locks the workspace before the run, as every stop of a scope does. The
stop of a scope comes before it and refuses it, or after it and lists it. A shut gate of a session or a
workspace doesn't matter by itself: its halt does, which a reviewer lifts (runs/halts.py).
"""

from __future__ import annotations

import secrets
from typing import Any, Protocol

from django.db.models import Exists, OuterRef, Q

from . import halts, permits
from .access import NotFound, demand
from .evidence import Line, record
from .guard import (
    HALTED,
    NOT_AT_REST,
    STALE,
    STOPPED,
    Ask,
    Known,
    Opened,
    Refusal,
    lock_run,
    refuse,
)
from .halts import COMPENSATE, Kinds
from .models import Permit, Press, Run, RunStatus, ScopeKind, Step, StepStatus, StopRequest, Workspace
from .scopes import standing_stop
from .store import Now, after, verb

AT_REST = (
    RunStatus.PAUSED,
    RunStatus.CANCELLED,
    RunStatus.UNKNOWN,
    RunStatus.COMPLETED,
    RunStatus.FAILED,
)


class Remedy(Protocol):
    """What the room above knows of a compensation, asked under the locks of its workspace and run."""

    kinds: Kinds
    """Names and classes of it and of the effect that it answers, for the policies that withhold them."""

    def known(self, run: Run) -> Known | None:
        """The answer for one that is not to be sent now; None when it may be."""

    def decide(self, run: Run, reason: str | None) -> tuple[str | None, list[Line]]:
        """Why it may not be sent: what the guard said, or a reason of its own; None when it may. And the
        evidence of what became of it by that.
        """

    def opened(self, run: Run, permit: Permit) -> tuple[Any, list[Line]]:
        """Use up its approvals and write that it is sent; returns it and the evidence of it."""


@verb
def compensate(ask: Ask, remedy: Remedy) -> Opened | Known | Refusal:
    """Ask to send a compensation, at the run's version of its approval (`ask.seen_version`).

    Opened: its approvals are used up and its permit is committed; look once more, then send. What was sent
    before is Known. Raises NotFound, NotAllowed, and what `remedy.opened` raises: nothing was kept then.
    """
    run = _locked(ask.run_id)
    demand(ask.actor, "write", run)
    known = remedy.known(run)
    if known is not None:
        return known
    reason, stop = _why_not(run, ask.seen_version, remedy.kinds)
    reason, lines = remedy.decide(run, reason)
    if reason is not None:
        if lines:
            record(run, *lines)
        return refuse(run, ask, reason, ask.boundary, stop=stop)
    step = _dispatched(run, ask)
    permit = permits.open_one(run, ask, step, COMPENSATE)
    subject, more = remedy.opened(run, permit)
    record(run, *lines, *more, permits.opened_line(permit, ask))
    return Opened(permit, step, subject)


def _locked(run_id: str) -> Run:
    workspace_id = Run.objects.filter(pk=run_id).values_list("workspace_id", flat=True).first()
    if workspace_id is None:
        raise NotFound("run")
    Workspace.objects.select_for_update(no_key=True).get(pk=workspace_id)
    return lock_run(run_id)


def _why_not(run: Run, version: int, kinds: Kinds) -> tuple[str | None, StopRequest | None]:
    """The guard on locked rows: why it fails, and the stop behind it where that is one of a scope."""
    if run.status not in AT_REST:
        return NOT_AT_REST, None
    if run.cancel_version != version:
        return STALE, None
    halt = halts.over(run, kinds)
    if halt is not None:
        return HALTED, halt.stop
    policy = halts.shut_for_kinds(run, kinds)
    return (STOPPED, standing_stop(policy)) if policy is not None else (None, None)


def _dispatched(run: Run, ask: Ask) -> Step:
    """A step of this attempt's own, held by whoever asked."""
    return Step.objects.create(
        run=run,
        key=ask.step_key,
        name=ask.step_name or ask.step_key,
        op_class=ask.op_class,
        status=StepStatus.DISPATCHED,
        worker=ask.worker,
        claim_token=ask.claim_token or secrets.token_hex(16),
        claim_version=ask.seen_version,
        lease_until=after(ask.lease_s),
        lease=ask.lease,
        attempt=1,
        dispatched_at=Now(),
    )


# the second look ------------------------------------------------------------------------------------


def gate_of_permit() -> Q:
    """The run rests still, at the permit's version, and nobody pressed Stop since: of a run that has ended
    that gives it no other version. Halts are asked by `is_halted`, in Python.
    """
    runs = Run.objects.filter(pk=OuterRef("run_id"), cancel_version=OuterRef("seen_version"))
    mine = {"stop__run": OuterRef("run_id"), "stop__scope": ScopeKind.RUN}
    pressed = Press.objects.filter(**mine, at__gte=OuterRef("opened_at"))
    return Q(guard=COMPENSATE) & Q(Exists(runs.filter(status__in=AT_REST))) & ~Q(Exists(pressed))


def is_halted(permit: Permit) -> bool:
    """Whether a halt or a shut policy came since the permit, of its own kind or of what it answers."""
    kinds = halts.kinds_of(permit)
    return halts.over(permit.run, kinds) is not None or halts.shut_for_kinds(permit.run, kinds) is not None
