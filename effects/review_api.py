"""The API of reviews: read by whoever reads runs. Nobody decides here: tokens never count."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse
from ninja import Router
from pydantic import Field

from runs import access, cursors
from runs.access import Actor, NotFound
from runs.api import MAY_KEY, READ, WRITE, Cursor, Limit
from runs.fields import In, Note, Out, ShortName
from runs.idempotency import reply, send
from runs.problems import Problem
from runs.schemas import Page, ProblemOut
from runs.tokens import actor_of, spaces_of

from .models import Approval, Review
from .review_tables import ApprovalState
from .schemas import ReviewBrief, status_of

router = Router(by_alias=True)
RunId = Annotated[str, Field(max_length=40)]


class ApprovalOut(Out):
    """One person's yes. `by` is the id of a person; `digest` is what they approved."""

    id: str
    by: str
    state: str
    digest: str
    comment: str
    given_at: datetime
    ended_at: datetime | None
    why: str


class ReviewOut(ReviewBrief):
    """A review with its approvals. `because`: agent · rules · both asked for it.

    `subject`: effect · compensation, whose id is `subject_id`; the effect is then the one that it answers.
    """

    subject: str
    subject_id: str
    because: str
    digest: str
    evidence_seq: int
    asked_by: str
    asked_at: datetime
    granted_at: datetime | None
    closed_at: datetime | None
    closed_by: str
    reason: str
    stop_id: str | None
    approvals: list[ApprovalOut]


class ReviewsOut(Page):
    """A page of reviews."""

    items: list[ReviewOut]


class DecisionIn(In):
    """What a person would decide on the page."""

    decision: Literal["approve", "reject", "revoke"]
    reason: Note = ""


@router.get("/reviews", response={200: ReviewsOut, READ: ProblemOut})
def list_reviews(
    request: HttpRequest,
    run_id: RunId = "",
    effect_key: ShortName = "",
    waiting: bool | None = None,
    cursor: Cursor = "",
    limit: Limit = 50,
) -> HttpResponse:
    """The reviews that you may see, newest first; `waiting`: those that nothing closed, or the others."""
    actor = actor_of(request)
    rows = Review.objects.filter(workspace_id__in=spaces_of(actor))
    if actor.token is not None and actor.token.run_id is not None:
        rows = rows.filter(run_id=actor.token.run_id)
    wanted = {"run_id": run_id, "effect_key": effect_key}
    rows = rows.filter(**{name: value for name, value in wanted.items() if value})
    if waiting is not None:
        rows = rows.filter(closed_at__isnull=waiting)
    found, after = cursors.page(rows, cursor, limit)
    return send(reply(200, cursors.listed(_told(found), after)))


@router.get("/reviews/{id:review_id}", response={200: ReviewOut, READ: ProblemOut})
def read_review(request: HttpRequest, review_id: str) -> HttpResponse:
    """One review: what is asked, of how many, until when, and what each person said."""
    return send(reply(200, _told([_find(actor_of(request), review_id)])[0]))


@router.post(
    "/reviews/{id:review_id}/decisions", response={200: ReviewOut, WRITE: ProblemOut}, openapi_extra=MAY_KEY
)
def decide_review(request: HttpRequest, review_id: str, body: DecisionIn) -> HttpResponse:
    """Always refused: people decide, signed in, on the page of the review. No token can have that right."""
    _find(actor_of(request), review_id)
    raise Problem(
        "people-only",
        "Tokens never count as approvals. A person decides on the review's page; nothing was changed.",
    )


def _find(actor: Actor, review_id: str) -> Review:
    review = Review.objects.select_related("run").filter(pk=review_id).first()
    if review is None:
        raise NotFound("review")
    access.demand(actor, "read", review.run)
    return review


def _told(reviews: Sequence[Review]) -> list[dict[str, Any]]:
    """Two queries, whatever the number of reviews."""
    given: dict[str, list[Approval]] = defaultdict(list)
    for approval in Approval.objects.filter(review__in=[one.pk for one in reviews]).order_by("pk"):
        given[approval.review_id].append(approval)
    return [_one(review, given[review.pk]) for review in reviews]


def _one(review: Review, approvals: Sequence[Approval]) -> dict[str, Any]:
    counted = sum(one.state in (ApprovalState.GIVEN, ApprovalState.CONSUMED) for one in approvals)
    derived = {
        "status": status_of(review),
        "given": counted,
        "because": review.asked_because,
        "stop_id": review.stop_id or None,
        "approvals": [_approval(one) for one in approvals],
    }
    told = {name: getattr(review, name) for name in ReviewOut.model_fields if name not in derived}
    return ReviewOut.model_validate(told | derived).wire()


def _approval(one: Approval) -> dict[str, Any]:
    names = [name for name in ApprovalOut.model_fields if name != "by"]
    return {"by": f"user:{one.person_id}", **{name: getattr(one, name) for name in names}}
