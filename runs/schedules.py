"""Stops at a moment to come: said by a clock on a wall somewhere, shown in UTC before they are kept.

One rule reads such a clock: the stop is pressed at the first moment at which the clock there shows that time,
or a later one. A time that exists twice is the first of the two; one that is skipped is the moment of the
skip. So no stop comes later than whoever asked for it could have meant.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.db.models import Q, QuerySet

from . import access, scopes, stops
from .access import SYSTEM, Actor, NotFound
from .evidence import Line, record
from .models import Policy, Run, ScheduledStop, ScopeKind, Session, StopRequest, Workspace
from .presses import StopAnswer, Wish
from .scopes import Target
from .store import alongside, database_time, verb

EXACT, TWICE, SKIPPED = "exact", "twice", "skipped"
READINGS: dict[str, str] = {
    EXACT: "",
    TWICE: "The clocks there show that time twice; the first of the two is taken.",
    SKIPPED: "The clocks there skip that time; the moment at which they skip it is taken.",
}
LONGEST = timedelta(days=366)
ROOM = 180  # characters of a form's key that are kept where it makes a second one


class UnknownZone(ValueError):
    """There is no such time zone. Name one as Europe/Berlin does."""


class NotAhead(ValueError):
    """That moment is over, or more than a year ahead. Nothing was kept."""


class Ended(ValueError):
    """This scheduled stop was pressed or withdrawn before. Nothing was changed."""


@dataclass(frozen=True)
class Moment:
    """`at` in UTC; `reading`: how the clock of the zone was read, a key of READINGS."""

    at: datetime
    reading: str = EXACT
    local: str = ""
    zone: str = ""


def read_clock(local: datetime, zone: str) -> Moment:
    """The moment of a clock on the wall there. `local` has no zone of its own. Raises UnknownZone."""
    try:
        there = ZoneInfo(zone)
    except (KeyError, OSError, ValueError) as error:  # not found, a folder, no name at all
        raise UnknownZone(zone) from error
    told = {"local": local.isoformat(timespec="seconds"), "zone": zone}
    early, late = (_utc(local, there, fold) for fold in (0, 1))
    if _shown(early, there) != local:
        return Moment(_skip(local, there, late, early), SKIPPED, **told)
    return Moment(early, EXACT if early == late else TWICE, **told)


def _utc(local: datetime, there: ZoneInfo, fold: int) -> datetime:
    return local.replace(tzinfo=there, fold=fold).astimezone(UTC)


def _shown(at: datetime, there: ZoneInfo) -> datetime:
    return at.astimezone(there).replace(tzinfo=None, fold=0)


def _skip(local: datetime, there: ZoneInfo, before: datetime, after: datetime) -> datetime:
    """The first whole second at which the clock there shows a later time: between these two."""
    while after - before > timedelta(seconds=1):
        middle = before + timedelta(seconds=(after - before) // timedelta(seconds=2))
        if _shown(middle, there) < local:
            before = middle
        else:
            after = middle
    return after


# deciding -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class What:
    """What a scheduled stop is of: scope workspace; policy with its id; session with its id or its key; run
    with its key. A run or a session need not be there yet."""

    scope: str
    id: str = ""
    run_key: str = ""
    session_key: str = ""


def schedule(*, actor: Actor, workspace_id: str, what: What, wish: Wish, when: Moment) -> ScheduledStop:
    """Keep a stop for a moment ahead. For whoever may stop there now; it is pressed by the system.

    The same `wish.key` of the same actor answers the one that is kept. Raises NotFound, NotAllowed, NotAhead.
    """
    return _schedule(actor, workspace_id, what, wish, when)


@verb
def _schedule(actor: Actor, workspace_id: str, what: What, wish: Wish, when: Moment) -> ScheduledStop:
    workspace = Workspace.objects.select_for_update(no_key=True).filter(pk=workspace_id).first()
    if workspace is None:
        raise NotFound("workspace")
    demand(actor, workspace_id, what)
    before = _by_key(workspace, actor, wish.key)
    again = before.filter(withdrawn_at__isnull=True).first()
    if again is not None:
        return again
    demand_ahead(when)
    made = ScheduledStop.objects.create(
        workspace=workspace,
        scope=what.scope,
        run_key=what.run_key,
        **_named(workspace_id, what),
        mode=wish.mode,
        reason=wish.reason,
        note=wish.note,
        deadline_s=wish.deadline_s,
        at=when.at,
        local=when.local,
        zone=when.zone,
        reading=when.reading,
        actor=actor.id,
        key=f"{wish.key[:ROOM]} #{number}" if (number := before.count()) else wish.key,
    )
    record(workspace, _line("stop.scheduled", made, actor.id))
    return ScheduledStop.objects.get(pk=made.pk)


def _by_key(workspace: Workspace, actor: Actor, key: str) -> QuerySet[ScheduledStop]:
    """Those that came by this key: one that was withdrawn is no answer to a form that is sent again."""
    mine = ScheduledStop.objects.filter(workspace=workspace, actor=actor.id)
    return mine.filter(Q(key=key) | Q(key__startswith=f"{key[:ROOM]} #")) if key else mine.none()


def demand(actor: Actor, workspace_id: str, what: What) -> None:
    """For whoever may stop there: of their own run, people of any role. Raises NotFound, NotAllowed."""
    mine = Run.objects.filter(workspace_id=workspace_id, key=what.run_key, owner=actor.user)
    if what.scope == ScopeKind.RUN and actor.user is not None and (run := mine.first()) is not None:
        access.demand(actor, "stop", run)
    else:
        scopes.demand(actor, "stop", workspace_id, what.scope)


def demand_ahead(when: Moment) -> None:
    """Raises NotAhead unless it lies in the year to come, by the database's clock."""
    now = database_time()
    if not now < when.at <= now + LONGEST:
        raise NotAhead


def _named(workspace_id: str, what: What) -> dict[str, str]:
    """The row of its scope, in this workspace. Raises NotFound."""
    models: dict[str, Any] = {ScopeKind.SESSION: Session, ScopeKind.POLICY: Policy}
    model = models.get(what.scope)
    if model is None:
        return {}
    if what.session_key:
        session, _ = Session.objects.get_or_create(workspace_id=workspace_id, key=what.session_key)
        return {"session_id": session.pk}
    if not model._default_manager.filter(pk=what.id, workspace_id=workspace_id).exists():
        raise NotFound(what.scope)
    return {f"{what.scope}_id": what.id}


def _line(kind: str, made: ScheduledStop, actor: str, stop_id: str = "", **more: str) -> Line:
    told = {
        "scheduled": made.pk,
        "scope": made.scope,
        "mode": made.mode,
        "at": made.at.isoformat(),
        "local": made.local,
        "zone": made.zone,
        "reading": made.reading,
        **more,
    }
    return Line(kind, actor, told, stop_id=stop_id)


@verb
def withdraw(*, actor: Actor, scheduled_id: str, reason: str = "") -> ScheduledStop:
    """Take a scheduled stop back before it is pressed. For whoever may stop there.

    Raises NotFound, NotAllowed, Ended.
    """
    workspace, made = _locked(scheduled_id)
    demand_of(actor, made)
    rows = ScheduledStop.objects.filter(waiting(), pk=made.pk)
    if not rows.update(withdrawn_at=database_time(), withdrawn_by=actor.id, withdrawn_why=reason):
        raise Ended
    record(workspace, _line("stop.withdrawn", made, actor.id, reason=reason))
    return ScheduledStop.objects.get(pk=made.pk)


def demand_of(actor: Actor, made: ScheduledStop) -> None:
    """As `demand`, of one that is kept."""
    try:
        demand(actor, made.workspace_id, What(made.scope, run_key=made.run_key))
    except NotFound as error:
        raise NotFound("scheduled stop") from error


def _locked(scheduled_id: str) -> tuple[Workspace, ScheduledStop]:
    found = ScheduledStop.objects.filter(pk=scheduled_id).first()
    if found is None:
        raise NotFound("scheduled stop")
    workspace = Workspace.objects.select_for_update(no_key=True).get(pk=found.workspace_id)
    return workspace, ScheduledStop.objects.get(pk=scheduled_id)


def waiting() -> Q:
    """Those that are neither pressed nor withdrawn."""
    return Q(pressed_at__isnull=True, withdrawn_at__isnull=True)


# its moment ---------------------------------------------------------------------------------------


def due(limit: int = 100) -> list[str]:
    """Ids of scheduled stops whose moment has come, the oldest first."""
    return list(_due().order_by("at").values_list("pk", flat=True)[:limit])


def _due() -> QuerySet[ScheduledStop]:
    return ScheduledStop.objects.filter(waiting(), at__lte=database_time())


def press(scheduled_id: str) -> StopAnswer | None:
    """Press a scheduled stop whose moment has come; None when there is nothing to press any more.

    Whoever dies in between leaves it due: the next press has the same key, and comes to the same stop. It is
    pressed whatever became of the person who wanted it: to stop is never the less careful choice.
    """
    made = _due().filter(pk=scheduled_id).first()
    if made is None:
        return None
    with alongside(lambda result: None):
        answer = _press(made)
        _pressed(scheduled_id, answer.stop.pk)
    return answer


def _press(made: ScheduledStop) -> StopAnswer:
    said = f"Scheduled for {made.at:%Y-%m-%d %H:%M:%S} UTC."
    note = f"{said} {made.note}".strip()
    told: dict[str, Any] = {"mode": made.mode, "reason": made.reason, "deadline_s": made.deadline_s}
    wish = Wish(note=note, key=f"scheduled:{made.pk}", **told)
    if made.scope == ScopeKind.RUN:
        named = {"workspace_id": made.workspace_id, "run_key": made.run_key}
        return stops.request_stop(actor=SYSTEM, wish=wish, **named)
    ids = {ScopeKind.SESSION: made.session_id, ScopeKind.POLICY: made.policy_id}
    target = Target(made.scope, ids.get(ScopeKind(made.scope)) or made.workspace_id)
    return scopes.request_scope_stop(actor=SYSTEM, wish=wish, target=target)


@verb
def _pressed(scheduled_id: str, stop_id: str) -> None:
    workspace, made = _locked(scheduled_id)
    stop = StopRequest.objects.get(pk=stop_id)
    rows = ScheduledStop.objects.filter(waiting(), pk=scheduled_id)
    if rows.update(pressed_at=database_time(), stop=stop):
        record(workspace, _line("stop.scheduled_pressed", made, SYSTEM.id, stop_id))
