"""The API of a workspace's rules: read by whoever reads runs, written by admins' tokens."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from ninja import Router
from pydantic import Field

from . import rules
from .access import Actor, NotFound, demand_workspace
from .api import READ, WRITE
from .fields import ShortName
from .idempotency import Reply, reply, send
from .problems import Problem
from .rules import Rules, RulesChanged, Standing
from .schemas import ProblemOut
from .tokens import actor_of, home_of, spaces_of

router = Router(by_alias=True)
Read = Annotated[int, Field(strict=True, ge=0, le=2**31 - 2)]


class RulesIn(Rules):
    """All rules; what is left out is set to its default. `version` is the one that was read (0: none)."""

    version: Read

    def rules(self) -> Rules:
        return Rules.model_validate(self.model_dump(exclude={"version"}, by_alias=True))


class RulesOut(Rules):
    """The rules in force. `version` is 0 while nobody changed the defaults."""

    workspace_id: str
    version: int
    changed_by: str
    changed_at: datetime | None


@router.get("/rules", response={200: RulesOut, READ: ProblemOut})
def read_rules(request: HttpRequest, workspace_id: ShortName = "") -> HttpResponse:
    """The rules of the token's workspace; a signed-in person may name which."""
    actor = actor_of(request)
    found = _chosen(actor, workspace_id)
    demand_workspace(actor, "read", found)
    return send(_told(rules.standing(found)))


def _chosen(actor: Actor, workspace_id: str) -> str:
    spaces = spaces_of(actor)
    chosen = workspace_id or (spaces[0] if spaces else "")
    if chosen not in spaces:
        raise NotFound("workspace")
    return chosen


@router.put("/rules", response={200: RulesOut, WRITE: ProblemOut})
def put_rules(request: HttpRequest, body: RulesIn) -> HttpResponse:
    """Put rules in place of those of `version`. Stale: 409, and what is there stays."""
    actor = actor_of(request)
    try:
        put = rules.change_rules(
            actor=actor, workspace_id=home_of(actor), version=body.version, rules=body.rules()
        )
    except RulesChanged as error:
        raise _changed(error.standing) from error
    return send(_told(put))


def _changed(standing: Standing) -> Problem:
    detail = "Somebody else changed the rules meanwhile. Read them, then send your change with their version."
    return Problem("rules-changed", detail, rules=_wire(standing))


def _told(standing: Standing) -> Reply:
    return reply(200, _wire(standing))


def _wire(standing: Standing) -> dict[str, Any]:
    told = {name: value for name, value in vars(standing).items() if name != "rules"}
    return RulesOut.model_validate({**standing.rules.kept, **told}).model_dump(mode="json", by_alias=True)
