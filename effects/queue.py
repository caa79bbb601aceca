"""What waits for our executor: queued effects that nobody took, and retries whose time has come.

The rows are the queue. A message that was lost, or dropped by a worker that was leaving, costs
seconds.
"""

from __future__ import annotations

from django.db.models import Exists, OuterRef, Q

from runs import gate, wake
from runs.access import EXECUTOR
from runs.guard import Ask, Known, Refusal
from runs.models import Boundary, Run, RunStatus, Step, StepStatus
from runs.models import Refusal as RefusalRow
from runs.store import Now, after

from .executor import worker_name
from .models import SENT_BY_US, Effect, Settlement

AGAIN_S = 5  # how long a message may take before it counts as lost
REFUSED_S = 30  # a retry that was refused while its run goes on asks again after this
ENDED = (StepStatus.WITHHELD, StepStatus.PARTIAL)  # what a stop makes of a step that waits for its retry
TO_SEND = (Settlement.DECLARED, Settlement.NOT_APPLIED)


def waiting(limit: int = 200) -> list[str]:
    """Effects queued for longer than a message takes; each is handed out once per AGAIN_S."""
    rows = Effect.objects.filter(
        queued_at__lte=after(-AGAIN_S),
        settlement__in=TO_SEND,
        step__status=StepStatus.PENDING,
        run__status=RunStatus.ACTIVE,
    )
    ids = list(rows.order_by("queued_at").values_list("pk", flat=True)[:limit])
    return [effect_id for effect_id in ids if _take_turn(effect_id)]


def _take_turn(effect_id: str) -> bool:
    mine = Effect.objects.filter(pk=effect_id, queued_at__lte=after(-AGAIN_S))
    return bool(mine.update(queued_at=Now()))


def retries_due(limit: int = 200) -> list[str]:
    """Steps whose retry is due; also those that a stop ended, whose timer leaves its refusal, once.

    Under a pause it leaves one too, and then waits: a resume finds it due.
    """
    told = RefusalRow.objects.filter(
        run=OuterRef("run_id"),
        boundary=Boundary.RETRY,
        step_key=OuterRef("key"),
        current_version=OuterRef("run__cancel_version"),
    )
    held = Q(status=StepStatus.RETRY_WAIT) & ~Q(run__status=RunStatus.ACTIVE) & Exists(told)
    rows = Step.objects.filter(due_at__lte=Now(), status__in=(StepStatus.RETRY_WAIT, *ENDED))
    return list(rows.exclude(held).order_by("due_at").values_list("pk", flat=True)[:limit])


def fall_due(step_id: str) -> Step | Known | Refusal:
    """A retry's time has come: through the gate again, and to our executor if it is ours to send."""
    step: Step = Step.objects.select_related("run").get(pk=step_id)
    ours = _ours(step) if step.status == StepStatus.RETRY_WAIT else []
    for effect_id in ours:  # before the gate: whoever dies in between leaves it queued
        Effect.objects.filter(pk=effect_id).update(queued_at=Now())
    answer = gate.fall_due(Ask(step.run_id, EXECUTOR, worker_name(), _seen(step), step_id=step.pk))
    if isinstance(answer, Refusal):
        _wait_longer(step)
    if not isinstance(answer, Step):
        return answer
    for effect_id in ours:
        wake.run_soon("effects.tasks.execute", effect_id)
    return answer


def _ours(step: Step) -> list[str]:
    rows = Effect.objects.filter(step=step, kind__provider__in=SENT_BY_US, settlement__in=TO_SEND)
    return list(rows.values_list("pk", flat=True))


def _seen(step: Step) -> int:
    """A timer holds no view of its own: it asks at the version of now, or shows that of its claim."""
    run: Run = step.run
    if run.status == RunStatus.ACTIVE:
        return int(run.cancel_version)
    return int(step.claim_version or run.cancel_version)


def _wait_longer(step: Step) -> None:
    """The refusal is recorded. A stop ended the timer; a pause keeps it as it is; under a shut scope
    it asks again later.
    """
    rows = Step.objects.filter(pk=step.pk)
    goes_on = Exists(Run.objects.filter(pk=OuterRef("run_id"), status=RunStatus.ACTIVE))
    rows.filter(goes_on, status=StepStatus.RETRY_WAIT).update(due_at=after(REFUSED_S))
    rows.filter(status__in=ENDED).update(due_at=None)
