"""The API of unknowns: read them, have one asked about. What happened is said by people, on pages."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse
from ninja import Router
from pydantic import Field

from runs.access import NotFound
from runs.api import MAY_KEY, READ, WRITE, Limit
from runs.cursors import listed
from runs.fields import In, Moment, Note, Out, ShortName
from runs.idempotency import reply, send
from runs.problems import Problem
from runs.schemas import Page, ProblemOut
from runs.tokens import actor_of, spaces_of

from . import unknowns
from .asking import check_now, why_nobody
from .models import Resolution
from .unknowns import Said, Unknown, Wanted
from .verdicts import WHY_NOT, NotResolved

router = Router(by_alias=True)
RunId = Annotated[str, Field(max_length=40)]
LongCursor = Annotated[str, Field(max_length=200)]


class UnknownOut(Out):
    """Something that is, or was, unknown: an effect, a delivery or a compensation, by its own id.

    `due_at`: until when people should have found out. `next_check_at`: of the next look-up; null: none is to
    come. `cannot_ask`: why nobody can be asked at once, or "". `assignee`: the id of a person.
    """

    id: str
    matter: Literal["effect", "delivery", "compensation"]
    run_id: str
    key: str
    kind: str
    op_class: str = Field(serialization_alias="class")
    title: str
    target: str
    amount: str
    state: str
    ground: str
    contradicted: bool
    why: str
    unknown_since: datetime | None
    due_at: datetime | None
    overdue: bool
    settled_at: datetime | None
    checks: int
    next_check_at: datetime | None
    check_until: datetime | None
    cannot_ask: str
    assignee: str | None
    taken_at: datetime | None


class UnknownsOut(Page):
    """A page of what is unknown now."""

    items: list[UnknownOut]


class SaidOut(Out):
    """An evidence line about it: `payload` as it was recorded."""

    seq: int
    at: datetime
    kind: str
    actor: str
    ground: str
    permit_id: str
    payload: dict[str, Any]


class ResolutionOut(Out):
    """What a person said of it. Without `in_force_at` it waits for a second person, or was withdrawn."""

    id: str
    number: int
    verdict: str
    items: Any
    evidence: str
    lines: list[int]
    attachments: list[str]
    by: str
    second: str | None
    supersedes_id: str | None
    recorded_at: datetime
    in_force_at: datetime | None
    withdrawn_at: datetime | None
    settled_as: str


class UnknownDetailOut(UnknownOut):
    """With every answer so far (the newest 300), oldest first, and every verdict, newest first."""

    answers: list[SaidOut]
    resolutions: list[ResolutionOut]


class CheckedOut(Out):
    """What the provider said just now, what that means, and as what it stands now."""

    answer: str
    detail: str
    means: str
    unknown: UnknownOut


class ResolutionIn(In):
    """What a person would say on the page."""

    verdict: Literal["happened", "did not happen", "partly happened", "cannot be determined"]
    evidence: Note = ""


@router.get("/unknowns", response={200: UnknownsOut, READ: ProblemOut})
def list_unknowns(
    request: HttpRequest,
    run_id: RunId = "",
    kind: ShortName = "",
    overdue: bool | None = None,
    due_before: Moment | None = None,
    mine: bool = False,
    cursor: LongCursor = "",
    limit: Limit = 50,
) -> HttpResponse:
    """What is unknown now, what falls due first first. `kind`: its name, or "delivery". `mine`: what the
    person looks after who asks, or who made this token.
    """
    actor = actor_of(request)
    bound = actor.token.run_id if actor.token is not None else None
    if bound and run_id and bound != run_id:
        return send(reply(200, listed([], None)))
    who = actor.user.pk if actor.user else actor.token.created_by_id if actor.token else None
    wanted = Wanted(
        assignee=(who or -1) if mine else None,
        overdue=overdue,
        due_before=due_before,
        kind=kind,
        run_id=bound or run_id,
    )
    found, after = unknowns.open_in(spaces_of(actor), wanted, cursor=cursor, limit=limit)
    return send(reply(200, listed([_wire(one) for one in found], after)))


@router.get("/unknowns/{id:subject_id}", response={200: UnknownDetailOut, READ: ProblemOut})
def read_unknown(request: HttpRequest, subject_id: str) -> HttpResponse:
    """One unknown, or what became of it: its answers and the verdicts on it."""
    one = _find(request, subject_id)
    more = {
        "answers": [_said(said) for said in unknowns.answers(one)],
        "resolutions": [_resolution(made) for made in unknowns.resolutions(one.id)],
    }
    told = UnknownDetailOut.model_validate({**_told(one), **more})
    return send(reply(200, told.wire()))


@router.post(
    "/unknowns/{id:subject_id}/check", response={200: CheckedOut, WRITE: ProblemOut}, openapi_extra=MAY_KEY
)
def check_unknown(request: HttpRequest, subject_id: str) -> HttpResponse:
    """Have its provider asked now, whenever the next look-up is due; the line says who asked."""
    actor = actor_of(request)
    _find(request, subject_id)
    answer = check_now(actor=actor, subject_id=subject_id)
    if isinstance(answer, NotResolved):
        raise Problem("cannot-be-asked", answer.sentence, reason=answer.reason)
    now = UnknownOut.model_validate(_told(_find(request, subject_id)))
    told = CheckedOut(answer=answer.answer, detail=answer.detail, means=answer.means, unknown=now)
    return send(reply(200, told.wire()))


@router.post(
    "/unknowns/{id:subject_id}/resolutions",
    response={200: UnknownDetailOut, WRITE: ProblemOut},
    openapi_extra=MAY_KEY,
)
def resolve_unknown(request: HttpRequest, subject_id: str, body: ResolutionIn) -> HttpResponse:
    """Always refused: people say what happened, signed in, on its page, with evidence. No token can."""
    _find(request, subject_id)
    raise Problem(
        "people-only",
        "What became of an unknown is said by a person, on its page, with evidence; nothing was changed."
        " A report, a look-up or a webhook settles it too.",
    )


def _find(request: HttpRequest, subject_id: str) -> Unknown:
    """What is, or was, unknown; what never was is not found here."""
    one = unknowns.find(subject_id, actor_of(request))
    if one.unknown_since is None:
        raise NotFound("unknown")
    return one


def _told(one: Unknown) -> dict[str, Any]:
    derived = {
        "run_id": one.run.pk,
        "kind": one.kind_name,
        "cannot_ask": _cannot_ask(one),
        "assignee": f"user:{one.assignee.pk}" if one.assignee else None,
    }
    return {name: getattr(one, name) for name in UnknownOut.model_fields if name not in derived} | derived


def _cannot_ask(one: Unknown) -> str:
    why = why_nobody(one.matter, one.row) if one.is_open else "settled"
    return WHY_NOT[why] if why else ""


def _wire(one: Unknown) -> dict[str, Any]:
    return UnknownOut.model_validate(_told(one)).wire()


def _said(said: Said) -> dict[str, Any]:
    return {name: getattr(said, name) for name in SaidOut.model_fields}


def _resolution(made: Resolution) -> dict[str, Any]:
    people = {
        "by": f"user:{made.person_id}",
        "second": f"user:{made.second_id}" if made.second_id else None,
    }
    return {name: getattr(made, name) for name in ResolutionOut.model_fields if name not in people} | people
