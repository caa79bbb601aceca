"""The wire's shapes of stops: what a press may say, and what a stop, its runs and its release look like."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt

from .children import Reach
from .fields import In, Moment, Out
from .models import InFlight
from .schemas import Page

Scope = Literal["step", "run", "session", "workspace", "policy", "bulk"]


class StopIn(BaseModel):
    """What a stop may say. Nothing of it is needed, and nothing unreadable refuses it."""

    model_config = ConfigDict(extra="allow")
    mode: Literal["pause", "cancel", "abandon"] = "cancel"
    reason: str = ""
    note: str = ""
    deadline_s: StrictInt = 60
    requested_at: datetime | None = None


class StopOfScopeIn(StopIn):
    """A stop of a session, workspace or policy, which stands: when people look at it again, when it ends by
    itself, and whether it only counts what it would refuse.
    """

    review_at: datetime | None = None
    ends_at: datetime | None = None
    observe: bool = False


class AnyStopIn(StopOfScopeIn):
    """A stop of whatever `scope` says. Without it: of the run with this key, registered or not."""

    scope: Literal["run", "step", "session", "workspace", "policy", "runs"] = "run"
    run_key: str = ""
    step: str = Field(default="", description="With scope step: its id.")
    session: str = Field(default="", description="With scope session: its key, also before it has a run.")
    policy: str = Field(default="", description="With scope policy: its id or its name.")
    run_ids: list[str] = Field(default=[], description="With scope runs: their ids, at most 5,000.")
    selection: dict[str, Any] = Field(default={}, description="With scope runs: how they were chosen.")


class InFlightOut(Out):
    """A permit that was open or lost when the run was fenced."""

    permit_id: str
    step_id: str
    effect_key: str
    boundary: str
    opened_at: datetime
    state_then: str
    state_now: str


def in_flight_out(row: InFlight) -> InFlightOut:
    permit = row.permit
    return InFlightOut(
        permit_id=permit.pk,
        step_id=permit.step_id,
        effect_key=permit.effect_key,
        boundary=permit.boundary,
        opened_at=permit.opened_at,
        state_then=row.state_then,
        state_now=permit.state,
    )


class ChildOut(Out):
    """A run that was registered as a child."""

    run_id: str
    key: str
    name: str
    status: str


class ChildrenOut(Out):
    """Whom a stop reaches beside its run. `registered`: direct children; `reached`: those that it was
    passed on to by now; `pending`: those still to come, also if the server dies meanwhile.
    """

    registered: int
    reached: int
    pending: int
    items: list[ChildOut]
    not_covered: list[str]


def children_out(reach: Reach | None) -> ChildrenOut | None:
    """The reach of a stop on the wire."""
    if reach is None:
        return None
    items = [ChildOut(run_id=run.pk, key=run.key, name=run.name, status=run.status) for run in reach.items]
    return ChildrenOut(**{**vars(reach), "items": items})


class RunsOfStop(Out):
    """How far a stop of a scope, or of chosen runs, has come: `done` of `total` runs were reached, and what
    it came to for how many. In a list `total` is null until all were.
    """

    done: int
    total: int | None
    results: dict[str, int]


class StopOut(Out):
    """A stop request and, after a press, what that press came to. In lists `children` is null.

    `scope_stop_id`: the stop of a scope, or of chosen runs, that this stop of a run is a part of. `refused`:
    what it has refused, also by the stops of its runs; `would_refuse`: what one that observes would have.
    """

    id: str
    number: int
    scope: str
    scope_name: str
    run_id: str | None
    run_key: str
    step_id: str | None
    session_id: str | None
    policy_id: str | None
    scope_stop_id: str | None
    mode: str
    requested_mode: str
    reason: str
    note: str
    created: bool
    joined: bool
    already_finished: bool
    waiting: bool
    presses: int
    recorded_at: datetime
    gate_at: datetime | None
    fenced_at: datetime | None
    quiet_at: datetime | None
    timed_out_at: datetime | None
    closed_at: datetime | None
    closed_because: str
    superseded_by_id: str | None
    deadline_at: datetime | None
    ends_at: datetime | None
    observes: bool
    review_at: datetime | None
    released_at: datetime | None
    refused: int
    would_refuse: int
    runs: RunsOfStop | None
    version_before: int | None
    version_after: int | None
    in_flight: list[InFlightOut]
    children: ChildrenOut | None
    ignored: list[str]
    sentence: str


class ForcedOut(Out):
    """A stop whose deadline was to pass now; `forced`: this call let it pass."""

    forced: bool
    stop: StopOut


class StopsOut(Page):
    """A page of stops."""

    items: list[StopOut]


class PartOut(Out):
    """One run of a stop: what it came to, the run as it is now, and the stop that carries it there."""

    run_id: str
    run_key: str
    run_name: str
    run_status: str
    result: str
    stop_id: str | None
    stop_closed_at: datetime | None
    at: datetime | None


class PartsOut(Page):
    """A page of the runs of a stop."""

    items: list[PartOut]


class ReleaseOut(Out):
    """A decision about a standing stop. `granted_at` null: it waits for a second person."""

    asked_by: str
    asked_at: datetime
    reason: str
    granted_by: str
    granted_at: datetime | None


class ReleasedOut(Out):
    """`released`: the gate is open, and nothing was started. False: a second person has to grant it."""

    released: bool
    release: ReleaseOut
    stop: StopOut


class ReviewAtIn(In):
    """When people look at a standing stop again."""

    review_at: Moment
