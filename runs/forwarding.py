"""The guard that forwards a stop: its provider is asked to cancel, where that was declared with the effect.

Only after a recorded cancel of that run, at the version that this stop gave it, and where the rules of the
workspace permit it; never for a pause, nor once the run was abandoned. A shut scope above doesn't matter:
what is asked for is an end, not new work. The step is held from the stop on, so the run is not quiet before
it was asked, or the lease ran out; the stop's deadline decides meanwhile as ever.
"""

from __future__ import annotations

from typing import Any, Protocol

from django.db.models import Exists, OuterRef, Q

from . import permits, receipts
from .evidence import Line, record
from .guard import LOST, NOT_FORWARDED, STALE, STOPPED, Ask, Known, Opened, Refusal, lock_run, refuse, view
from .models import Mode, Permit, Run, RunStatus, ScopeKind, Step, StepStatus, StopRequest
from .rules import rules_of
from .store import Now, after, verb

FORWARD = "forward"
CANCELLED = (  # a cancel was recorded of a run that stands here: it moved the run, or came after its end
    RunStatus.CANCELLING,
    RunStatus.CANCELLING_TIMEOUT,
    RunStatus.CANCELLED,
    RunStatus.COMPLETED,
    RunStatus.FAILED,
)


class Errand(Protocol):
    """What the room above knows of one request to cancel, asked under the run's lock."""

    stop_id: str

    def known(self, run: Run) -> Known | None:
        """The answer for one that is not to be sent now; None when it may be."""

    def moot(self, run: Run, step: Step) -> list[Line]:
        """End it, where nothing is left to be cancelled; the evidence of that, none where something is."""

    def opened(self, run: Run, permit: Permit) -> tuple[Any, list[Line]]:
        """Write that it is sent; returns it and the evidence of it."""


@verb
def forward(ask: Ask, errand: Errand) -> Opened | Known | Refusal:
    """Ask to send a request to cancel, by whoever holds its step. Opened: look once more, then send.

    Known: it was sent, it has to wait, or there is nothing to ask. Raises NotFound, NotAllowed.
    """
    run = lock_run(ask.run_id)
    now = view(run, ask)
    known = errand.known(run)
    if known is not None:
        return known
    assert now.step is not None  # it was made with the stop
    if ended := errand.moot(run, now.step):
        record(run, *ended, last_seq=now.last_seq)
        return Known("settled", None)
    mine = Step.objects.filter(pk=ask.step_id, claim_token=ask.claim_token, lease_until__gt=Now())
    held = bool(ask.claim_token) and mine.filter(status=StepStatus.CLAIMED).exists()
    reason = _why_not(run, ask.seen_version, errand.stop_id) or (None if held else LOST)
    if reason is not None:
        return refuse(run, ask, reason, ask.boundary, now.step)
    Step.dispatch(mine, after(ask.lease_s), ask.lease)
    permit = permits.open_one(run, ask, now.step, FORWARD)
    subject, lines = errand.opened(run, permit)
    record(run, *lines, permits.opened_line(permit, ask), last_seq=now.last_seq)
    receipts.at_gate(run, ask, now.seen)
    return Opened(permit, now.step, subject)


def _why_not(run: Run, version: int, stop_id: str) -> str | None:
    """The guard on a locked row."""
    if run.status not in CANCELLED:
        return STOPPED
    if run.cancel_version != version:
        return STALE
    stop = StopRequest.objects.filter(pk=stop_id, run=run, scope=ScopeKind.RUN, mode=Mode.CANCEL)
    if not stop.filter(superseded_by__isnull=True, version_after=version).exists():
        return STOPPED
    return None if rules_of(run.workspace_id).forward_stops else NOT_FORWARDED


def gate_of_permit() -> Q:
    """The second look: the run stands where a cancel left it, at the permit's version."""
    runs = Run.objects.filter(pk=OuterRef("run_id"), cancel_version=OuterRef("seen_version"))
    return Q(guard=FORWARD) & Q(Exists(runs.filter(status__in=CANCELLED)))
