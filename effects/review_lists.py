"""Which reviews wait for whom, in one query: by the rules that `approvals.objection` asks one by one."""

from __future__ import annotations

from typing import Any

from django.db.models import CharField, Count, Exists, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Concat

from runs.models import Press, Result, ScheduledStop, StopPart, StopRequest, Token, User
from runs.store import Now

from .models import Approval, Review
from .review_tables import ApprovalState


def open_in(workspace_id: str) -> QuerySet[Any, Any]:
    """The undecided reviews of a workspace whose time is not over."""
    rows: QuerySet[Any, Any] = Review.objects.filter(workspace_id=workspace_id, closed_at__isnull=True)
    return rows.filter(expires_at__gt=Now())


def for_person(user: User) -> Q:
    """Reviews that still lack an approval which this person, if they may review at all, could give."""
    tokens = Token.objects.filter(created_by=user)
    made = tokens.annotate(actor=Concat(Value("token:"), "pk", output_field=CharField())).values("actor")
    by_them = Q(actor=f"user:{user.pk}") | Q(actor__in=Subquery(made))
    given = Approval.objects.filter(review=OuterRef("pk"), person=user, state=ApprovalState.GIVEN)
    free = Q(granted_at__isnull=True) & ~_stopped(by_them) & ~Q(Exists(given))
    for who in ("proposer", "editor", "run__owner"):
        free &= Q(**{f"{who}__isnull": True}) | ~Q(**{who: user})
    return free


def _stopped(by_them: Q) -> Q:
    """Reviews of runs that they stopped, as `four_eyes.stoppers` says of one run: by a stop of its own, by
    one of a scope or of many runs that it was a part of, or by its parent's; pressed, or planned for later.
    """
    mine = StopRequest.objects.filter(run=OuterRef(OuterRef("run_id")))
    parts = StopPart.objects.filter(run=OuterRef(OuterRef("run_id"))).exclude(result=Result.NOT_PERMITTED)
    concerned = Q(stop__in=parts.values("stop"))
    concerned |= Q(stop__in=mine.values("pk")) | Q(stop__in=mine.values("parent_stop"))
    pressed, planned = (rows.filter(by_them, concerned) for rows in (Press.objects, ScheduledStop.objects))
    return Q(Exists(pressed)) | Q(Exists(planned))


def count_for(user: User, workspace_id: str) -> int:
    """How many wait for this person."""
    return int(open_in(workspace_id).filter(for_person(user)).count())


def with_given(rows: QuerySet[Any, Any]) -> QuerySet[Any, Any]:
    """Each with `given`: approvals that stand, or that were used."""
    standing = Q(approvals__state__in=[ApprovalState.GIVEN, ApprovalState.CONSUMED])
    counted: QuerySet[Any, Any] = rows.annotate(given=Count("approvals", filter=standing))
    return counted
