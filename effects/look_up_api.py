"""The API of look-ups that agents answer themselves: what is due, and what they saw. For tokens alone."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from ninja import Router
from pydantic import AfterValidator, Field

from runs import problems
from runs.access import Actor, NotAllowed, rights
from runs.api import KEYED, READ, WRITE
from runs.fields import Out, sized, visible
from runs.idempotency import Reply, once, reply, send
from runs.problems import not_allowed
from runs.schemas import ProblemOut
from runs.tokens import actor_of, home_of

from . import polled
from .compensation_api import CompensationOut, told_of
from .looked_up import LookedUpIn
from .models import Effect
from .polled import Turn
from .providers import own
from .schemas import EffectOut, effect_out

problems.NAMES.update({polled.NoTurn: "no-turn"})
router = Router(by_alias=True)
MOST = 50


class LookUpOut(Out):
    """A look-up that is due, and yours until `until`. `turn` goes back with the answer.

    `matter`: "effect", or "compensation": then `effect_id` is its own id, and `key` its own key.
    """

    turn: str
    until: datetime
    matter: str
    effect_id: str
    run_id: str
    key: str
    kind: str
    op_class: str = Field(serialization_alias="class")
    target: str
    title: str
    amount: str
    provider_ref: str
    attempt: int
    dispatched_at: datetime | None


class LookUpsOut(Out):
    """What is due, the longest due first; at most `limit`."""

    items: list[LookUpOut]


class LookUpAnswerIn(LookedUpIn):
    """What you saw, under the turn that the list gave you."""

    turn: Annotated[str, sized(80, 1), AfterValidator(visible)]


def _out(turn: Turn) -> dict[str, Any]:
    kind = turn.row.kind
    asked = own.question_of(turn.row, kind) if kind else {}
    mine = {"turn": turn.id, "until": turn.until, "matter": turn.matter}
    told = {**mine, **asked, "op_class": turn.row.op_class}
    return LookUpOut.model_validate(told).wire()


def _writer(request: HttpRequest) -> Actor:
    """An agent: people resolve unknowns on their pages, and take nobody's turn."""
    actor = actor_of(request)
    if actor.token is None:
        raise not_allowed()
    if "write" not in rights(actor, home_of(actor)):
        raise NotAllowed("write")
    return actor


@router.get("/look-ups", response={200: LookUpsOut, READ: ProblemOut})
def take_look_ups(
    request: HttpRequest,
    kind: Annotated[str, Field(max_length=120)] = "",
    limit: Annotated[int, Field(ge=1, le=MOST)] = 10,
) -> HttpResponse:
    """Take what is due of kinds whose agent answers (lookup.poll): each is yours for 30 seconds."""
    actor = _writer(request)
    turns = polled.take(actor, home_of(actor), kind, limit)
    return send(reply(200, {"items": [_out(turn) for turn in turns]}))


@router.post(
    "/effects/{id:effect_id}/look-ups", response={200: EffectOut, WRITE: ProblemOut}, openapi_extra=KEYED
)
def answer_look_up(request: HttpRequest, effect_id: str, body: LookUpAnswerIn) -> HttpResponse:
    """Say what you saw under the key. It counts as of when your turn began, on the ground "looked up"."""
    actor = _writer(request)

    def answer() -> str:
        return polled.answer(actor=actor, effect_id=effect_id, turn=body.turn, said=body.told())

    def told(settlement: str) -> Reply:
        return reply(200, effect_out(Effect.objects.defer("body").get(pk=effect_id)))

    return once(request, answer, told)


@router.post(
    "/compensations/{id:compensation_id}/look-ups",
    response={200: CompensationOut, WRITE: ProblemOut},
    openapi_extra=KEYED,
)
def answer_compensation(request: HttpRequest, compensation_id: str, body: LookUpAnswerIn) -> HttpResponse:
    """Say what you saw under a compensation's own key. It counts as of when your turn began."""
    actor = _writer(request)

    def answer() -> str:
        return polled.answer_of_compensation(
            actor=actor, compensation_id=compensation_id, turn=body.turn, said=body.told()
        )

    return once(request, answer, lambda state: reply(200, told_of(compensation_id)))
