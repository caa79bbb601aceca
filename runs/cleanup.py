"""The cleanup guard: what a worker may still tidy up while its run drains, and nothing else.

A step was declared `cleanup` while its run was ACTIVE. The run is PAUSING or CANCELLING, the worker
carries the version of the stop, and the class is one that the rules of the workspace name. A shut scope
above doesn't matter: tidying up is what a stop asks for.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Exists, OuterRef, Q

from .guard import ORDINARY, STALE, STOPPED, Ask
from .models import Permit, PermitState, Run, RunStatus, Step, StepStatus
from .rules import rules_of

CLEANUP = "cleanup"
DRAINS = (RunStatus.PAUSING, RunStatus.CANCELLING)


def admit(
    run: Run, ask: Ask, step: Step | None, reason: str | None, *, sends: bool = False
) -> tuple[str, str | None]:
    """The guard that a call passes or fails, and why it fails.

    `reason`: what the ordinary guard said, on the locked row. `sends`: the operation's own class counts too.
    """
    if reason is None or step is None or not step.cleanup or run.status not in DRAINS:
        return ORDINARY, reason
    classes = {step.op_class} | ({ask.op_class} if sends else set())
    reason = _why_not(run, ask.seen_version, step, classes)
    return CLEANUP, reason or (STOPPED if sends and _tried(run, ask) else None)


def _tried(run: Run, ask: Ask) -> bool:
    """This effect was sent, or may have been: after a stop every retry is refused, also in a cleanup step."""
    attempts = Permit.objects.filter(run=run, effect_key=ask.effect_key)
    return bool(ask.effect_key) and attempts.exclude(state=PermitState.NOT_SENT).exists()


def _why_not(run: Run, seen_version: int, step: Step, classes: set[str]) -> str | None:
    if not classes.issubset(rules_of(run.workspace_id).cleanup_classes):
        return STOPPED
    if run.cancel_version != seen_version:
        return STALE
    return STOPPED if step.status == StepStatus.FAILED else None  # a drain tries nothing again


def spared(run: Run) -> Q:
    """Steps that a pause or a cancel leaves as they are, since their holder may carry them out."""
    return spared_among([run.pk], run.workspace_id)


def spared_among(run_ids: Sequence[str], workspace_id: str) -> Q:
    """The same of several runs of one workspace."""
    declared = Step.objects.filter(run__in=run_ids, cleanup=True)
    if not declared.exists():
        return Q(pk__in=[])
    return Q(cleanup=True, op_class__in=rules_of(workspace_id).cleanup_classes) & ~Q(
        status__in=[StepStatus.WAITING_APPROVAL, StepStatus.RETRY_WAIT]
    )


def gate_of_permit() -> Q:
    """The second look of a permit of this guard: the run still drains, at the permit's version."""
    runs = Run.objects.filter(pk=OuterRef("run_id"), cancel_version=OuterRef("seen_version"))
    return Q(guard=CLEANUP) & Q(Exists(runs.filter(status__in=DRAINS)))
