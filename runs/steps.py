"""What a stop does to the steps of its run, in the stop's own transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from django.db.models import Exists, OuterRef, Q, QuerySet

from .evidence import AT_ONCE, Line
from .models import NOT_DISPATCHED, Permit, PermitState, Run, Step, StepStatus

TOLD = ("run_id", "status", "key", "name", "happened", "claim_version", "worker")


def _unsent() -> Q:
    """A dispatched step under none of whose permits anything was sent."""
    sent = Permit.objects.filter(step_id=OuterRef("pk")).exclude(state=PermitState.NOT_SENT)
    return Q(~Exists(sent), status=StepStatus.DISPATCHED)


def withhold(run: Run, but: Q | None = None) -> list[Step]:
    """Every not-dispatched step of a run that ends: WITHHELD, or PARTIAL where an effect happened.

    `but`: those that are left as they are (runs/cleanup.py). Returns the steps as they stood before.
    """
    return withhold_all([run.pk], but)


def withhold_all(run_ids: Sequence[str], but: Q | None = None) -> list[Step]:
    """The same of several runs, in key order of the steps."""

    def end(rows: QuerySet[Step]) -> None:
        Step.finish_partly(rows.filter(happened=True))
        Step.withhold(rows.filter(happened=False))

    return _each(_except(Q(status__in=NOT_DISPATCHED) | _unsent(), but), run_ids, end)


def hold(run: Run, but: Q | None = None) -> list[Step]:
    """A pause gives claims back before anything was sent and leaves the waiting steps as they are."""
    return hold_all([run.pk], but)


def hold_all(run_ids: Sequence[str], but: Q | None = None) -> list[Step]:
    """The same of several runs, in key order of the steps."""
    return _each(_except(Q(status=StepStatus.CLAIMED) | _unsent(), but), run_ids, Step.release)


def _except(which: Q, but: Q | None) -> Q:
    return which if but is None else which & ~but


def _each(which: Q, run_ids: Sequence[str], move: Callable[[QuerySet[Step]], object]) -> list[Step]:
    """A slice at a time, so that a run with a long queue is stopped as surely as any other.

    In key order: a heartbeat locks some of them too.
    """
    rows = Step.objects.select_for_update(no_key=True).order_by("pk")
    touched: list[Step] = []
    while True:
        after = touched[-1].pk if touched else ""
        steps = list(rows.filter(which, run__in=run_ids, pk__gt=after).only(*TOLD)[:AT_ONCE])
        if steps:
            move(Step.objects.filter(pk__in=[step.pk for step in steps]))
        touched += steps
        if len(steps) < AT_ONCE:
            return touched


def withheld_line(actor: str, step: Step, stop_id: str, version: int | None) -> Line:
    """The evidence of one step that was refused before dispatch."""
    kind = "step.partial" if step.happened else "step.withheld"
    return _line(kind, actor, step, stop_id, version)


def held_line(actor: str, step: Step, stop_id: str, version: int | None) -> Line:
    """The evidence of one claim that a pause gave back."""
    return _line("step.held", actor, step, stop_id, version)


def _line(kind: str, actor: str, step: Step, stop_id: str, version: int | None) -> Line:
    return Line(
        kind,
        actor,
        {"was": step.status, "step": step.key, "name": step.name},
        stop_id=stop_id,
        step_id=step.pk,
        carried_version=step.claim_version,
        current_version=version,
        worker=step.worker,
    )
