"""What happens to a compensation whose run is locked, until it is dispatched: moves, and the lines of them.

Who may decide stands in four_eyes.py, what carries it out in repair.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from runs import wake
from runs.access import SYSTEM
from runs.evidence import Line
from runs.models import Run, RunStatus, StopRequest
from runs.rules import AUTOMATIC, CompensationRule
from runs.store import Now

from .compensation import RESTORE_FILES, UNDECIDED
from .models import Compensation, CompensationState, Effect, Kind, Provider, Review
from .review_tables import Closed

STOPPED = (RunStatus.PAUSED, RunStatus.CANCELLED, RunStatus.UNKNOWN)  # a stop holds it, or ended it
RUN_TASK = "effects.tasks.repair"


def line_of(
    compensation: Compensation,
    kind: str,
    actor: str,
    told: Mapping[str, Any] | None = None,
    stop_id: str = "",
    permit_id: str = "",
) -> Line:
    """`compensation.proposed`, … in the stream of its run: under its own key, naming its effect."""
    named = {"compensation": compensation.pk, "effect": compensation.effect.key, "title": compensation.title}
    more: dict[str, Any] = {"stop_id": stop_id, "permit_id": permit_id}
    return Line(kind, actor, {**named, **(told or {})}, effect_key=compensation.key, **more)


def of_review(review: Review) -> Compensation:
    """The compensation that a review is about, as it is now."""
    row: Compensation = Compensation.objects.select_related("effect", "kind").get(pk=review.subject_id)
    return row


def undecided(run: Run) -> QuerySet[Any, Any]:
    """The proposed and the approved ones of a run, oldest first."""
    rows: QuerySet[Any, Any] = Compensation.objects.filter(run=run, state__in=UNDECIDED)
    return rows.select_related("effect", "kind").order_by("pk")


# the rules ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pressed:
    """Whether a stop of a run was recorded, and whether one was after its end."""

    ever: bool
    after_its_end: bool


def pressed(run: Run) -> Pressed:
    """Read now, in one query."""
    found = set(StopRequest.objects.filter(run=run).order_by().values_list("finished_before", flat=True))
    return Pressed(bool(found), True in found)


def is_automatic(
    run: Run, effect: Effect, kind: Kind | None, rule: CompensationRule, stops: Pressed | None = None
) -> bool:
    """Whether nobody needs to approve it: it changes local files (kind None: puts back what was there), by a
    kind that is as it was when the effect declared it, and no stop of its run was recorded.
    """
    local = kind.provider == Provider.WORKSPACE if kind else rule.kind == RESTORE_FILES
    if rule.policy != AUTOMATIC or not local or (kind and kind.updated_at > effect.declared_at):
        return False
    return not (stops or pressed(run)).ever


def forbidden_by(run: Run, rule: CompensationRule | None, stops: Pressed | None = None) -> str:
    """Why the rules don't let such a compensation run now: "rule" · "stopped" · "".

    A run that had ended when somebody pressed Stop counts as stopped: whoever pressed it wanted nothing more.
    """
    if rule is None:
        return "rule"
    if rule.after_a_stop:
        return ""
    return "stopped" if run.status in STOPPED or (stops or pressed(run)).after_its_end else ""


# what people decide -------------------------------------------------------------------------------


def approve(compensation: Compensation, actor: str, because: str) -> Line:
    """PROPOSED → APPROVED: our executor may take it, and hears of it after the commit."""
    Compensation.approve(compensation, Now())
    return _approved(compensation, actor, because)


def approve_all(compensations: Sequence[Compensation], actor: str, because: str) -> list[Line]:
    """The same of some that were proposed in this transaction, in one statement."""
    Compensation.approve(Compensation.objects.filter(pk__in=[one.pk for one in compensations]), Now())
    return [_approved(one, actor, because) for one in compensations]


def _approved(compensation: Compensation, actor: str, because: str) -> Line:
    wake_up = partial(wake.run_soon, RUN_TASK, compensation.pk)
    transaction.on_commit(wake_up, robust=True)
    return line_of(compensation, "compensation.approved", actor, {"because": because})


def granted(run: Run, review: Review, actor: str) -> list[Line]:
    """The n-th person said yes."""
    return [approve(of_review(review), actor, f"{review.needed} of {review.needed} approvals")]


def not_granted(run: Run, review: Review, actor: str, why: str) -> list[Line]:
    """What was approved is not any more; it is proposed again. Nothing when it was not approved."""
    compensation = of_review(review)
    if compensation.state != CompensationState.APPROVED:
        return []
    Compensation.withdraw_approval(compensation)
    return [line_of(compensation, "compensation.approval_withdrawn", actor, {"why": why})]


def closed(run: Run, review: Review, actor: str, reason: str, stop_id: str = "") -> list[Line]:
    """Its review was closed (`closed_as`), and with it what people could decide."""
    compensation = of_review(review)
    if compensation.state not in UNDECIDED:
        return []
    how, lines = review.closed_as, list[Line]()
    if how in (Closed.REJECTED, Closed.NOT_NEEDED):
        lines = not_granted(run, review, actor, reason)
        compensation = of_review(review)
    if how == Closed.REJECTED:
        Compensation.reject(compensation, actor, reason)
    elif how == Closed.NOT_NEEDED:
        Compensation.not_needed(compensation, actor, reason)
    elif how == Closed.EXPIRED:
        Compensation.expire(compensation, reason)
    else:
        Compensation.void(compensation, actor, reason)
    return [*lines, decided(compensation, actor, stop_id)]


def decided(compensation: Compensation, actor: str, stop_id: str = "") -> Line:
    """`compensation.rejected`, `.expired`, `.void`, `.not_needed`, as it stands now."""
    kind = f"compensation.{compensation.state.lower()}"
    return line_of(compensation, kind, actor, {"reason": compensation.reason}, stop_id)


def void(compensation: Compensation, reason: str, actor: str = SYSTEM.id, stop_id: str = "") -> list[Line]:
    """End one that has no review (it was approved by the rules alone)."""
    Compensation.void(compensation, actor, reason)
    return [decided(compensation, actor, stop_id)]


def at_version(run: Run) -> None:
    """After a restore the run has another version: what waits for people is asked again at that one."""
    rows = Compensation.objects.filter(run=run, state=CompensationState.PROPOSED)
    rows.update(run_version=run.cancel_version)
