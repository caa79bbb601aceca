"""The API of model turns: what each spent, and the partial output of those that were cut off."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Router

from . import cursors
from .access import find_run
from .api import READ, Cursor, Limit
from .fields import Out
from .idempotency import reply, send
from .models import OperationClass, Permit
from .schemas import Page, ProblemOut
from .tokens import actor_of

router = Router(by_alias=True)


class TurnOut(Out):
    """A model turn. What nobody reported is null or ""; `partial_output` is null where there is none, or
    where the rules of the workspace drop it: then size (bytes) and digest (SHA-256) are what is left.
    """

    permit_id: str
    step_id: str
    worker: str
    state: str
    outcome: str
    opened_at: datetime
    ended_at: datetime | None
    model: str = ""
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost: str = ""
    partial_output: str | None = None
    output_size: int | None = None
    output_digest: str = ""
    output_kept: bool = False


class TurnsOut(Page):
    """A page of model turns."""

    items: list[TurnOut]


@router.get("/runs/{id:run_id}/turns", response={200: TurnsOut, READ: ProblemOut})
def list_turns(request: HttpRequest, run_id: str, cursor: Cursor = "", limit: Limit = 50) -> HttpResponse:
    """The model turns of a run, newest first."""
    run = find_run(actor_of(request), run_id)
    turns = Permit.objects.filter(run=run, op_class=OperationClass.MODEL_TURN).select_related("turn")
    permits, after = cursors.page(turns, cursor, limit)
    return send(reply(200, cursors.listed([_wire(permit) for permit in permits], after)))


OF_PERMIT = ("step_id", "worker", "state", "outcome", "opened_at", "ended_at")
OF_TURN = ("model", "tokens_in", "tokens_out", "cost", "output_size", "output_digest", "output_kept")


def _wire(permit: Permit) -> dict[str, Any]:
    told: dict[str, Any] = {name: getattr(permit, name) for name in OF_PERMIT}
    turn = getattr(permit, "turn", None)  # the reverse of a one-to-one raises where there is no row
    if turn is not None:
        told |= {name: getattr(turn, name) for name in OF_TURN}
        told["partial_output"] = turn.output if turn.output_kept else None
    return TurnOut(permit_id=permit.pk, **told).wire()
