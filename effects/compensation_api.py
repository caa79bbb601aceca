"""The API of compensations: propose one and read them. People decide, edit and carry on with it on pages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from ninja import Router
from pydantic import Field

from runs import access, cursors
from runs.access import Actor, NotFound
from runs.api import MAY_KEY, READ, WRITE, Cursor, Limit
from runs.fields import In, Note, Out, ShortName
from runs.idempotency import Reply, once, reply, send
from runs.problems import Problem
from runs.schemas import Page, ProblemOut
from runs.tokens import actor_of, spaces_of

from . import compensate
from .compensate import NotProposed
from .models import Compensation, Review
from .review_lists import with_given
from .review_tables import Subject
from .schemas import ReviewBrief, status_of

router = Router(by_alias=True)
Id = Annotated[str, Field(max_length=40)]


class ProposeIn(In):
    """Propose what was declared with the effect. `wish`: what those who decide should know of it."""

    wish: Note = ""


class CompensationOut(Out):
    """A compensation. `key` is its own, the same on every attempt; its body is not repeated, its digest is.

    `run_version`: the version of its run at which it may be sent. `queued`: Allstop will send it.
    `review`: the newest that people had of it; null where the rules let it run without one.
    """

    id: str
    run_id: str
    effect_id: str
    effect_key: str
    number: int
    kind: str
    op_class: str = Field(serialization_alias="class")
    key: str
    title: str
    target: str
    amount: str
    body_digest: str
    expected: str
    risks: str
    state: str
    queued: bool
    run_version: int
    proposed_by: str
    edits: int
    wishes: str
    decided_by: str
    reason: str
    attempt: int
    ground: str
    late: bool
    result: Any
    items: Any
    provider_ref: str
    why_unknown: str
    counted: int | None
    proposed_at: datetime
    decided_at: datetime | None
    dispatched_at: datetime | None
    settled_at: datetime | None
    unknown_since: datetime | None
    next_check_at: datetime | None
    check_until: datetime | None
    checks: int
    review: ReviewBrief | None


class CompensationsOut(Page):
    """A page of compensations."""

    items: list[CompensationOut]


class EditIn(In):
    """What a person would change on the page."""

    digest: Id = ""
    title: Note = ""
    target: Note = ""
    amount: Note = ""
    body: Annotated[str, Field(max_length=65_536)] = ""


class NotNeededIn(In):
    """Why a person would say that nothing has to be done."""

    reason: Note = ""


@router.post(
    "/effects/{id:effect_id}/compensations",
    response={200: CompensationOut, 201: CompensationOut, WRITE: ProblemOut},
    openapi_extra=MAY_KEY,
)
def propose_compensation(request: HttpRequest, effect_id: str, body: ProposeIn) -> HttpResponse:
    """Propose the compensation that was declared with an effect; people decide. 200: the one that is open."""
    actor = actor_of(request)

    def ask() -> Compensation | NotProposed:
        return compensate.propose(actor=actor, effect_id=effect_id, wish=body.wish)

    return once(request, ask, _answer, required=False)


def _answer(told: Compensation | NotProposed) -> Reply:
    if isinstance(told, Compensation):
        return reply(201, _told([told])[0])
    if told.open is not None:
        return reply(200, _told([told.open])[0])
    raise Problem("not-proposed", told.sentence, reason=told.reason)


@router.get("/compensations", response={200: CompensationsOut, READ: ProblemOut})
def list_compensations(
    request: HttpRequest,
    run_id: Id = "",
    effect_id: Id = "",
    state: ShortName = "",
    cursor: Cursor = "",
    limit: Limit = 50,
) -> HttpResponse:
    """The compensations that you may see, newest first; `state` as it is told."""
    actor = actor_of(request)
    rows = Compensation.objects.filter(run__workspace_id__in=spaces_of(actor))
    if actor.token is not None and actor.token.run_id is not None:
        rows = rows.filter(run_id=actor.token.run_id)
    wanted = {"run_id": run_id, "effect_id": effect_id, "state": state.upper()}
    rows = rows.filter(**{name: value for name, value in wanted.items() if value})
    found, after = cursors.page(rows.select_related("effect"), cursor, limit)
    return send(reply(200, cursors.listed(_told(found), after)))


@router.get("/compensations/{id:compensation_id}", response={200: CompensationOut, READ: ProblemOut})
def read_compensation(request: HttpRequest, compensation_id: str) -> HttpResponse:
    """One compensation: what would be sent, who decides, and what became of it."""
    return send(reply(200, _told([_find(actor_of(request), compensation_id)])[0]))


@router.post(
    "/compensations/{id:compensation_id}/edit",
    response={200: CompensationOut, WRITE: ProblemOut},
    openapi_extra=MAY_KEY,
)
def edit_compensation(request: HttpRequest, compensation_id: str, body: EditIn) -> HttpResponse:
    """Always refused: what people approve is written by the declaration, or by a person on the page."""
    _find(actor_of(request), compensation_id)
    raise Problem("people-only", "A person edits it on the page of its review; nothing was changed.")


@router.post(
    "/compensations/{id:compensation_id}/not-needed",
    response={200: CompensationOut, WRITE: ProblemOut},
    openapi_extra=MAY_KEY,
)
def skip_compensation(request: HttpRequest, compensation_id: str, body: NotNeededIn) -> HttpResponse:
    """Always refused: that nothing has to be done is decided by a person, signed in, on its page."""
    _find(actor_of(request), compensation_id)
    raise Problem("people-only", "A person decides that on the page of its review; nothing was changed.")


def _find(actor: Actor, compensation_id: str) -> Compensation:
    found = Compensation.objects.select_related("effect", "run").filter(pk=compensation_id).first()
    if found is None:
        raise NotFound("compensation")
    access.demand(actor, "read", found.run)
    return found  # type: ignore[no-any-return]


def told_of(compensation_id: str) -> dict[str, Any]:
    """One that the caller may see, as the API tells it."""
    return _told([Compensation.objects.select_related("effect").get(pk=compensation_id)])[0]


def _told(found: Sequence[Compensation]) -> list[dict[str, Any]]:
    """One query for their reviews, whatever their number."""
    ids = [one.pk for one in found]
    rows = Review.objects.filter(subject=Subject.COMPENSATION, subject_id__in=ids).order_by("pk")
    newest = {review.subject_id: review for review in with_given(rows)}
    return [_one(one, newest.get(one.pk)) for one in found]


def _one(compensation: Compensation, review: Any) -> dict[str, Any]:
    derived = {
        "effect_key": compensation.effect.key,
        "kind": compensation.kind_name,
        "queued": compensation.queued_at is not None,
        "review": _brief(review) if review is not None else None,
    }
    names = [name for name in CompensationOut.model_fields if name not in derived]
    told = {name: getattr(compensation, name) for name in names}
    return CompensationOut.model_validate(told | derived).wire()


def _brief(review: Any) -> ReviewBrief:
    told = {name: getattr(review, name) for name in ReviewBrief.model_fields if name != "status"}
    return ReviewBrief.model_validate(told | {"status": status_of(review)})
