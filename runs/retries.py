"""The boundary retry: a step is scheduled again, and falls due; the gate is asked both times.

The rows are the timers. What is refused leaves its own refusal with both versions, and no alert.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.db.models import Q

from . import receipts
from .evidence import Line, record
from .guard import (
    BLIND,
    LOST,
    Ask,
    Known,
    Refusal,
    View,
    lock_run,
    refuse,
    view,
    watched,
    why_not,
    why_not_step,
)
from .models import Boundary, Run, Step, StepStatus
from .store import Now, after, verb

WAITING = (StepStatus.RETRY_WAIT, StepStatus.PENDING)


@verb
def retry(
    ask: Ask, *, due_in_s: float, allowed: Q, also: Mapping[str, Q] | None = None, decision: str = ""
) -> Step | Refusal:
    """Schedule a FAILED step again; the gate is asked now, and again when it is due.

    `allowed`, `also`: conditions of the room above on the step's own row (it has effects, each NOT_APPLIED
    or DECLARED, …), the latter by the reason of their refusal. `decision`: a person's reason; without one
    a worker asks. A step that waits already is answered as it stands. Raises NotFound, NotAllowed.
    """
    ask = replace(ask, boundary=Boundary.RETRY)
    run = lock_run(ask.run_id)
    now = view(run, ask, action="resume" if decision else "write")
    answer = schedule(run, ask, now, due_in_s, {BLIND: allowed, **(also or {})}, decision)
    if isinstance(answer, Step):
        receipts.at_gate(run, ask, now.seen)
    return answer


def schedule(
    run: Run, ask: Ask, now: View, due_in_s: float, only_if: Mapping[str, Q], decision: str = ""
) -> Step | Refusal:
    """The move of it, for whoever holds the run's lock and has looked since."""
    reason = why_not(run, ask.seen_version, now.scopes_open) or why_not_step(now.step)
    if reason is None and now.step is not None and now.step.status in WAITING:
        return now.step
    rows = Step.objects.filter(*only_if.values(), pk=ask.step_id)
    if reason is None and not Step.wait_for_retry(rows, after(due_in_s), ask.seen_version):
        reason = _unmet(ask.step_id, only_if)
    if reason is not None:
        return refuse(run, ask, reason, Boundary.RETRY, now.step)
    step: Step = Step.objects.get(pk=ask.step_id)
    told = {"due_at": step.due_at.isoformat() if step.due_at else "", "tried": step.attempt}
    record(run, _line("retry.scheduled", ask, told | ({"reason": decision} if decision else {})))
    watched(run, ask, now)
    return step


def _unmet(step_id: str, only_if: Mapping[str, Q]) -> str:
    """The first condition that does not hold, by the reason that it is refused for."""
    unmet = (why for why, q in only_if.items() if not Step.objects.filter(q, pk=step_id).exists())
    return next(unmet, BLIND)


def _line(kind: str, ask: Ask, told: Mapping[str, Any] | None = None) -> Line:
    return Line(
        kind,
        ask.actor.id,
        told or {},
        boundary=Boundary.RETRY,
        carried_version=ask.seen_version,
        current_version=ask.seen_version,
        step_id=ask.step_id,
        worker=ask.worker,
    )


@verb
def fall_due(ask: Ask) -> Step | Known | Refusal:
    """A retry's time has come: through the gate again, or refused and recorded.

    A timer that is early, or fires again, finds nothing to do: Known, and nothing is recorded.
    """
    ask = replace(ask, boundary=Boundary.RETRY)
    run = lock_run(ask.run_id)
    now = view(run, ask)
    rows = Step.objects.filter(pk=ask.step_id, due_at__lte=Now())
    if not rows.exists():
        return Known("not_due", now.step)
    reason = why_not(run, ask.seen_version, now.scopes_open) or why_not_step(now.step)
    if reason is None and not Step.fall_due(rows):
        reason = LOST
    if reason is not None:
        return refuse(run, ask, reason, Boundary.RETRY, now.step)
    record(run, _line("retry.due", ask), last_seq=now.last_seq)
    watched(run, ask, now)
    return Step.objects.get(pk=ask.step_id)
