"""The API of retries: a worker asks for another try of a step, or an operator's tool decides on one."""

from __future__ import annotations

from typing import Annotated

from django.http import HttpRequest, HttpResponse
from ninja import Router
from pydantic import AfterValidator, Field

from runs.api import MAY_KEY, WRITE, find_step
from runs.fields import In, Note, ShortName, Version
from runs.guard import Refusal
from runs.idempotency import once, reply
from runs.models import Step
from runs.saying import words_in
from runs.schemas import ProblemOut, StepOut, step_out
from runs.tokens import actor_of

from . import retries
from .schemas import not_blank

router = Router(by_alias=True)


def _if_any(reason: str) -> str:
    """With none at all nobody decides: a worker asks."""
    return not_blank(reason) if reason else reason


class RetryIn(In):
    """Another try in `delay_s` seconds, unless it was sent `max_tries` times.

    With a `reason` it is a decision (scope resume:write): also where only a worker's word is known.
    """

    seen_version: Version
    worker: ShortName = ""
    delay_s: Annotated[float, Field(strict=True, ge=0, le=604_800)] = 0
    max_tries: Annotated[int, Field(strict=True, ge=1, le=100)] | None = None
    reason: Annotated[Note, AfterValidator(_if_any)] = ""


@router.post("/steps/{id:step_id}/retry", response={200: StepOut, WRITE: ProblemOut}, openapi_extra=MAY_KEY)
def retry_step(request: HttpRequest, step_id: str, body: RetryIn) -> HttpResponse:
    """Schedule a failed step again: `due_at` says when. The gate is asked now, and again when it is due.

    Refused unless every effect of it is known not to have happened, by more than a worker's word.
    """
    actor, why = actor_of(request), words_in(body.reason)
    step = find_step(actor, step_id, "resume" if why else "write")

    def ask() -> Step | Refusal:
        seen, delay_s = body.seen_version, body.delay_s
        if why:
            return retries.decide(actor=actor, step=step, seen=seen, reason=why, delay_s=delay_s)
        most = body.max_tries
        return retries.schedule(
            actor=actor, step=step, worker=body.worker, seen=seen, delay_s=delay_s, max_tries=most
        )

    return once(request, ask, lambda again: reply(200, step_out(again)), required=False)
