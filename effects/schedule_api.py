"""The API of scheduled stops: a moment by a clock somewhere, told in UTC before it is kept."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse
from ninja import Router
from pydantic import Field, StrictBool

from runs import cursors, policies, schedules
from runs.access import Actor, NotFound, demand_workspace
from runs.api import MAY_KEY, READ, WRITE, Cursor, Limit
from runs.fields import In, Moment, Note, OptionalKey, Out, ShortName
from runs.idempotency import Reply, once, reply, send
from runs.models import ScheduledStop, ScopeKind, Session
from runs.presses import DEADLINE_S, Wish
from runs.problems import NAMES, invalid
from runs.schedules import READINGS, Ended, NotAhead, UnknownZone, What
from runs.schemas import Page, ProblemOut
from runs.tokens import actor_of, home_of, spaces_of

router = Router(by_alias=True)
NAMES[Ended] = "scheduled-stop-ended"
Local = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?$")]


class ScheduleIn(In):
    """A stop for a moment to come: `at`, or `local` by the clocks of `zone`. `preview` keeps nothing."""

    scope: Literal["run", "session", "workspace", "policy"]
    run_key: OptionalKey = ""
    session: OptionalKey = ""
    policy: OptionalKey = Field(default="", description="Its id or its name.")
    mode: Literal["pause", "cancel", "abandon"] = "cancel"
    reason: ShortName = ""
    note: Note = ""
    deadline_s: Annotated[int, Field(strict=True, ge=1, le=86_400)] = DEADLINE_S
    at: Moment | None = None
    local: Local | None = None
    zone: ShortName = ""
    preview: StrictBool = False


class WithdrawIn(In):
    """Why it is not wanted any more."""

    reason: Note = ""


NO_REASON = WithdrawIn()


class ScheduledOut(Out):
    """A scheduled stop. `id` is null in a preview. `reading`: exact, twice or skipped; `says` tells it.

    `state`: waiting, pressed (then `stop_id` is its stop) or withdrawn.
    """

    id: str | None
    workspace_id: str
    scope: str
    run_key: str
    session_id: str | None
    policy_id: str | None
    mode: str
    reason: str
    note: str
    deadline_s: int
    at: datetime
    local: str
    zone: str
    reading: str
    says: str
    state: str
    actor: str
    created_at: datetime | None
    pressed_at: datetime | None
    withdrawn_at: datetime | None
    withdrawn_why: str
    stop_id: str | None


class ScheduledListOut(Page):
    """A page of scheduled stops."""

    items: list[ScheduledOut]


@router.post(
    "/scheduled-stops",
    response={200: ScheduledOut, 201: ScheduledOut, WRITE: ProblemOut},
    openapi_extra=MAY_KEY,
)
def add_scheduled_stop(request: HttpRequest, body: ScheduleIn) -> HttpResponse:
    """Keep a stop for a moment to come. With `preview` its moment is told in UTC, nothing kept (200)."""
    actor, home = actor_of(request), home_of(actor_of(request))
    demand_workspace(actor, "stop", home)
    when = _when(body)

    def keep() -> ScheduledStop:
        what, wish = _what(home, body), _wish(body)
        try:
            if body.preview:
                schedules.demand_ahead(when)
                return _unkept(home, actor, what, wish, when)
            return schedules.schedule(actor=actor, workspace_id=home, what=what, wish=wish, when=when)
        except NotAhead as error:
            raise invalid("at", f"{when.at:%Y-%m-%d %H:%M:%S} UTC is not in the year ahead") from error

    def answer(made: ScheduledStop) -> Reply:
        return reply(200 if body.preview else 201, scheduled_out(made))

    return once(request, keep, answer, required=False)


def _when(body: ScheduleIn) -> schedules.Moment:
    """Raises Problem unless it is said in exactly one way that can be read."""
    if (body.at is None) == (body.local is None):
        raise invalid("at", 'Say when: either "at", or "local" with "zone"')
    if body.at is not None:
        return schedules.Moment(body.at)
    try:
        return schedules.read_clock(datetime.fromisoformat(body.local or ""), body.zone)
    except UnknownZone as error:
        raise invalid("zone", "There is no such time zone; name one as Europe/Berlin does") from error
    except (ValueError, OverflowError) as error:
        raise invalid("local", "There is no such date or time") from error


def _what(home: str, body: ScheduleIn) -> What:
    """What is to be stopped, in the token's workspace. Raises NotFound, Problem."""
    scope = ScopeKind(body.scope)
    named = {ScopeKind.RUN: body.run_key, ScopeKind.SESSION: body.session, ScopeKind.POLICY: body.policy}
    if scope == ScopeKind.WORKSPACE:
        return What(scope)
    name = named[scope]
    if not name:
        raise invalid("run_key" if scope == ScopeKind.RUN else scope, f"Which {scope}? Name it")
    if scope == ScopeKind.RUN:
        return What(scope, run_key=name)
    if scope == ScopeKind.SESSION:
        return What(scope, session_key=name)
    found = policies.named(home, name)
    if found is None:
        raise NotFound("policy")
    return What(scope, found.pk)


def _wish(body: ScheduleIn) -> Wish:
    return Wish(mode=body.mode, reason=body.reason or "other", note=body.note, deadline_s=body.deadline_s)


def _unkept(home: str, actor: Actor, what: What, wish: Wish, when: schedules.Moment) -> ScheduledStop:
    """What would be kept, without an id."""
    ids: dict[str, str | None] = {f"{what.scope}_id": what.id} if what.id else {}
    if what.session_key:
        found = Session.objects.filter(workspace_id=home, key=what.session_key).first()
        ids = {"session_id": found.pk if found else None}
    told = {"at": when.at, "local": when.local, "zone": when.zone, "reading": when.reading}
    wished = {"mode": wish.mode, "reason": wish.reason, "note": wish.note, "deadline_s": wish.deadline_s}
    named = {"scope": what.scope, "run_key": what.run_key, "actor": actor.id, "workspace_id": home, **ids}
    return ScheduledStop(id="", **named, **told, **wished)


def scheduled_out(made: ScheduledStop) -> dict[str, Any]:
    """A scheduled stop on the wire."""
    state = "pressed" if made.pressed_at else "withdrawn" if made.withdrawn_at else "waiting"
    created_at = made.created_at if made.pk else None  # the database gives it when it is kept
    derived = {"id": made.pk or None, "state": state, "says": _says(made), "created_at": created_at}
    told = {name: getattr(made, name) for name in ScheduledOut.model_fields if name not in derived}
    return ScheduledOut.model_validate(told | derived).wire()


def _says(made: ScheduledStop) -> str:
    said = f"At {made.at:%Y-%m-%d %H:%M:%S} UTC"
    there = f", which is {made.local} in {made.zone}" if made.zone and made.reading != "skipped" else ""
    return f"{said}{there}. {READINGS[made.reading]}".strip()


@router.get("/scheduled-stops", response={200: ScheduledListOut, READ: ProblemOut})
def list_scheduled_stops(
    request: HttpRequest, waiting: bool | None = None, cursor: Cursor = "", limit: Limit = 50
) -> HttpResponse:
    """The scheduled stops that you may see, newest first. `waiting`: those whose moment is to come."""
    actor = actor_of(request)
    bound = actor.token is not None and actor.token.run_id is not None
    rows = ScheduledStop.objects.filter(workspace_id__in=[] if bound else spaces_of(actor))
    if waiting is not None:
        still = {"pressed_at__isnull": True, "withdrawn_at__isnull": True}
        rows = rows.filter(**still) if waiting else rows.exclude(**still)
    found, after = cursors.page(rows, cursor, limit)
    return send(reply(200, cursors.listed([scheduled_out(one) for one in found], after)))


@router.get("/scheduled-stops/{id:scheduled_id}", response={200: ScheduledOut, READ: ProblemOut})
def read_scheduled_stop(request: HttpRequest, scheduled_id: str) -> HttpResponse:
    """One scheduled stop as it stands now."""
    return send(reply(200, scheduled_out(_find(actor_of(request), scheduled_id))))


def _find(actor: Actor, scheduled_id: str) -> ScheduledStop:
    found = ScheduledStop.objects.filter(pk=scheduled_id).first()
    if found is None or (actor.token is not None and actor.token.run_id is not None):
        raise NotFound("scheduled stop")
    demand_workspace(actor, "read", found.workspace_id)
    return found


@router.post(
    "/scheduled-stops/{id:scheduled_id}/withdraw",
    response={200: ScheduledOut, WRITE: ProblemOut},
    openapi_extra=MAY_KEY,
)
def withdraw_scheduled_stop(
    request: HttpRequest, scheduled_id: str, body: WithdrawIn = NO_REASON
) -> HttpResponse:
    """Take it back before its moment. A stop that was pressed is released, or resumed, not withdrawn."""
    actor, reason = actor_of(request), body.reason

    def withdraw() -> ScheduledStop:
        _find(actor, scheduled_id)
        return schedules.withdraw(actor=actor, scheduled_id=scheduled_id, reason=reason)

    return once(request, withdraw, lambda made: reply(200, scheduled_out(made)), required=False)
