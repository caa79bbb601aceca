"""The API of a workspace's gate: read it, shut it as a stop is pressed, release it by a decision."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Router
from pydantic import Field

from runs import gates, problems
from runs.access import NotFound, demand_workspace
from runs.api import MAY_KEY, READ, WRITE
from runs.fields import In, Out, ShortName
from runs.gates import NotShut, OtherStop, Standing
from runs.idempotency import once, reply, send
from runs.schemas import ProblemOut
from runs.stop_schemas import StopIn, StopOut
from runs.tokens import actor_of, home_of, spaces_of

from . import stop_out
from .schemas import Reason
from .stop_api import PRESS, body_of, press, releasing, wish_in

router = Router(by_alias=True)
problems.NAMES.update({NotShut: "gate-not-shut", OtherStop: "other-stop"})


class ReleaseGateIn(In):
    """A decision to open the gate, with its reason. `stop_id`: the stop that it is about."""

    reason: Reason
    stop_id: str = Field(default="", max_length=40)


class GateOut(Out):
    """A gate as it stands. `refused_runs` are active and yet refused: pause and resume each to go on."""

    workspace_id: str
    gate: str
    epoch: int
    gate_at: datetime | None
    stop: StopOut | None
    paused_runs: int
    refused_runs: int


@router.get("/workspace/gate", response={200: GateOut, READ: ProblemOut})
def read_gate(request: HttpRequest, workspace_id: ShortName = "") -> HttpResponse:
    """The gate of the token's workspace; a signed-in person may name which."""
    spaces = spaces_of(actor_of(request))
    chosen = workspace_id or (spaces[0] if spaces else "")
    if chosen not in spaces:
        raise NotFound("workspace")
    demand_workspace(actor_of(request), "read", chosen)
    return send(reply(200, gate_out(gates.standing(chosen))))


@router.post(
    "/workspace/gate/shut",
    response={200: StopOut, 201: StopOut, PRESS: ProblemOut},
    openapi_extra=body_of(StopIn),
)
def shut_gate(request: HttpRequest) -> HttpResponse:
    """Shut the gate of a whole workspace. 201 a new stop, 200 joined, 503 NOT recorded. Needs no body."""
    return press(request, wish_in(request), gates.shut, workspace_id=home_of(actor_of(request)))


@router.post("/workspace/gate/release", response={200: GateOut, WRITE: ProblemOut}, openapi_extra=MAY_KEY)
def release_gate(request: HttpRequest, body: ReleaseGateIn) -> HttpResponse:
    """Open it again. This starts nothing: paused runs stay paused, new runs may be admitted."""
    actor, home = actor_of(request), home_of(actor_of(request))

    def release() -> Standing:
        with releasing():
            return gates.release(actor=actor, workspace_id=home, reason=body.reason, stop_id=body.stop_id)

    return once(request, release, lambda _: reply(200, gate_out(gates.standing(home))), required=False)


def gate_out(standing: Standing) -> dict[str, Any]:
    """A gate on the wire."""
    workspace, stop = standing.workspace, standing.stop
    told = {
        "workspace_id": workspace.pk,
        "gate": workspace.gate,
        "epoch": workspace.epoch,
        "gate_at": workspace.gate_at,
        "stop": stop_out.one(stop.pk) if stop else None,
        "paused_runs": standing.paused,
        "refused_runs": standing.stale,
    }
    return GateOut.model_validate(told).wire()
