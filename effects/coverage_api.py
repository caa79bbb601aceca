"""The API of coverage: what the gates of a workspace see, and what they can't."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from ninja import Router
from pydantic import Field

from runs.access import NotFound, demand_workspace
from runs.api import READ
from runs.coverage import DAYS
from runs.fields import Out, ShortName
from runs.idempotency import reply, send
from runs.schemas import ProblemOut
from runs.tokens import actor_of, spaces_of

from . import coverage
from .coverage import Coverage

router = Router(by_alias=True)
Days = Annotated[int, Field(ge=1, le=365)]


class RuntimeOut(Out):
    """A runtime with an agent, as runs name themselves. `never`: workers that were seen at no gate.

    Of the workers on open runs, `confirmed` hold the run's version of now; `behind` an older one, or none.
    `unnamed`: runs on which no worker gave its name. Silence is no proof that a worker stopped.
    """

    runtime: str
    agent: str
    runs: int
    open_runs: int
    unnamed: int
    workers: int
    never: int
    confirmed: int
    behind: int
    last_heard_at: datetime | None


class KindUseOut(Out):
    """A kind of effect in use. One that is not registered is opaque: nobody can look it up."""

    name: str
    registered: bool
    op_class: str = Field(serialization_alias="class")
    provider: str
    can_look_up: bool
    effects: int
    unknown: int
    last_at: datetime | None


class ToolOut(Out):
    """A tool that runs outside of every gate, by its runs' own word."""

    name: str
    runs: int
    open_runs: int
    newest_run_id: str


class CoverageOut(Out):
    """What is seen of runs that are open, or were admitted or heard of since then. `more`: there is more."""

    workspace_id: str
    since: datetime
    as_of: datetime
    runtimes: list[RuntimeOut]
    kinds: list[KindUseOut]
    opaque_kinds: list[KindUseOut]
    ungateable: list[ToolOut]
    more: bool


@router.get("/coverage", response={200: CoverageOut, READ: ProblemOut})
def read_coverage(request: HttpRequest, workspace_id: ShortName = "", days: Days = DAYS) -> HttpResponse:
    """What the gates of the token's workspace see, and what they can't; a person may name which."""
    actor = actor_of(request)
    spaces = spaces_of(actor)
    chosen = workspace_id or (spaces[0] if spaces else "")
    if chosen not in spaces or (actor.token is not None and actor.token.run_id is not None):
        raise NotFound("workspace")
    demand_workspace(actor, "read", chosen)
    return send(reply(200, coverage_out(chosen, coverage.of_workspace(chosen, days))))


def coverage_out(workspace_id: str, found: Coverage) -> dict[str, Any]:
    """A coverage on the wire."""
    seen = found.seen
    told = CoverageOut(
        workspace_id=workspace_id,
        since=seen.since,
        as_of=seen.as_of,
        runtimes=[RuntimeOut(**vars(one)) for one in seen.runtimes],
        kinds=[KindUseOut(**vars(one)) for one in found.registered],
        opaque_kinds=[KindUseOut(**vars(one)) for one in found.opaque],
        ungateable=[ToolOut(**vars(one)) for one in seen.tools],
        more=seen.more or found.more,
    )
    return told.wire()
