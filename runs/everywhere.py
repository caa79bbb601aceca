"""A stop of all workspaces, by whoever runs this installation: one press, one stop in each of them.

The press is committed first. Then each workspace's gate is shut in a transaction of its own, and its runs
are stopped as by any stop of a workspace; what the request does not reach, the sweep does. A workspace that
is made while it stands is born shut.
"""

from __future__ import annotations

import logging
import secrets
import time
from datetime import datetime, timedelta

from django.db import DatabaseError
from django.db.models import Exists, OuterRef, Q, QuerySet

from . import fanout, releases, scopes, wake
from .access import Actor, NotAllowed
from .models import Press, Release, ScopeKind, StopRequest, User, WideStop, Workspace
from .presses import STRENGTH, Wish, arrived
from .releases import NoReason, NotFenced, NotStanding
from .saying import words_in
from .store import Now, alongside, database_time, stop_verb, verb

log = logging.getLogger(__name__)

VIA = "everywhere"  # how the stop of a workspace was pressed that came from here
ROOM = 240  # characters of a press's key that are kept where it makes a second stop
IN_REQUEST_S = 5.0  # so long the request goes on from gate to gate, and then to the runs


def runs_it_all(actor: Actor) -> bool:
    """Whether this is a person who runs the whole installation, read afresh."""
    if actor.user is None:
        return False
    return User.objects.filter(pk=actor.user.pk, is_active=True, is_superuser=True).exists()


def _demand(actor: Actor) -> None:
    if not runs_it_all(actor):
        raise NotAllowed("stop all workspaces")


def standing() -> QuerySet[WideStop]:
    """The stops of all workspaces that stand, the newest first."""
    return WideStop.objects.filter(released_at__isnull=True).order_by("-pk")


def request_wide_stop(*, actor: Actor, wish: Wish) -> WideStop:
    """Shut the gate of every workspace, or join the stops that hold them; then go on to the runs.

    Once this returns, it survives the death of every process. `shut_at` is set when every gate is shut.
    Raises NotAllowed for whoever does not run this installation.
    """
    wide = _press(actor, arrived(wish), wish.key or secrets.token_hex(16))
    try:
        _carry_on(wide.pk, IN_REQUEST_S)
    except Exception:
        log.exception("stop %s has not reached every workspace yet; the sweep goes on", wide.pk)
    wake.run_soon("effects.tasks.sweep")
    return WideStop.objects.get(pk=wide.pk)


@stop_verb
def _press(actor: Actor, wish: Wish, key: str) -> WideStop:
    _demand(actor)
    before = WideStop.objects.filter(Q(key=key) | Q(key__startswith=f"{key[:ROOM]} #"), actor=actor.id)
    holds = [wide for wide in before.filter(released_at__isnull=True) if _covers(wide, wish)]
    if holds:
        return holds[0]
    told = {"mode": wish.mode, "reason": wish.reason, "note": wish.note, "deadline_s": wish.deadline_s}
    told |= {"via": actor.via, "address": actor.address, "arrived_at": wish.arrived_at}
    number = before.count()
    own = f"{key[:ROOM]} #{number}" if number else key
    return WideStop.objects.get_or_create(actor=actor.id, key=own, defaults=told)[0]


def _covers(wide: WideStop, wish: Wish) -> bool:
    """What was released, or asked for less, is no answer to a press by the same key."""
    return STRENGTH[wide.mode] >= STRENGTH[wish.mode]


# carried out ----------------------------------------------------------------------------------------


def carry_on(wide_id: str) -> None:
    """The sweep's part of it: the gates. How each stop goes on to its runs is its own (fanout.carry_on)."""
    _shut_all(wide_id, time.monotonic() + fanout.IN_SWEEP_S)


def to_carry_on() -> list[str]:
    """Ids of stops of all workspaces with a workspace that was not reached, oldest first."""
    early = standing().filter(recorded_at__lte=database_time() - timedelta(seconds=IN_REQUEST_S))
    return [wide.pk for wide in early.order_by("pk") if wide.shut_at is None or _left(wide).exists()]


def _carry_on(wide_id: str, within_s: float) -> None:
    """The gates first, then the runs, as far as the time goes."""
    end = time.monotonic() + within_s
    _shut_all(wide_id, end)
    with alongside(lambda result: None):  # the caller's answer is that of its own press
        stops = StopRequest.objects.filter(wide=wide_id, fenced_at__isnull=True).order_by("pk")
        for stop_id in list(stops.values_list("pk", flat=True)):
            if (left := end - time.monotonic()) > 0:
                fanout.fence(stop_id, left)


def _shut_all(wide_id: str, end: float) -> None:
    wide = WideStop.objects.get(pk=wide_id)
    with alongside(lambda result: None):
        for workspace_id in list(_left(wide).order_by("pk").values_list("pk", flat=True)):
            if time.monotonic() > end:
                return
            _try_to_shut(wide_id, workspace_id)
        _all_shut(wide_id)


def _try_to_shut(wide_id: str, workspace_id: str) -> None:
    """One that can't be reached now keeps no other open; the sweep tries it again."""
    try:
        _shut(wide_id, workspace_id)
    except DatabaseError:
        log.exception("stop %s has not reached workspace %s yet; the sweep goes on", wide_id, workspace_id)


def _left(wide: WideStop) -> QuerySet[Workspace]:
    """Workspaces on whose standing stop this one was not pressed yet."""
    mine = Press.objects.filter(actor=wide.actor, key=_key(wide), stop__workspace=OuterRef("pk"))
    return Workspace.objects.filter(~Exists(mine))


def _key(wide: WideStop) -> str:
    return f"\N{RIGHTWARDS ARROW} {wide.pk}"  # no caller can send such a key


@stop_verb
def _shut(wide_id: str, workspace_id: str) -> None:
    """Press it on one workspace; again changes nothing. Not if people released it meanwhile."""
    workspace, _ = scopes.lock(scopes.Target(ScopeKind.WORKSPACE, workspace_id))
    wide = standing().select_for_update(no_key=True).filter(pk=wide_id).first()
    if wide is not None and _left(wide).filter(pk=workspace_id).exists():
        _shut_locked(wide, workspace, wide.arrived_at)


def _shut_locked(wide: WideStop, workspace: Workspace, arrived_at: datetime | None) -> None:
    wish = Wish(
        wide.mode, reason=wide.reason, note=wide.note, deadline_s=wide.deadline_s, arrived_at=arrived_at
    )
    actor = Actor(wide.actor, via=VIA, address=wide.address)
    answer = scopes.pressed(workspace, workspace, actor, wish, _key(wide))
    if answer.answer == "recorded":
        StopRequest.objects.filter(pk=answer.stop.pk).update(wide=wide)


@stop_verb
def _all_shut(wide_id: str) -> None:
    wide = WideStop.objects.select_for_update(no_key=True).get(pk=wide_id)
    if not _left(wide).exists():
        WideStop.objects.filter(pk=wide_id, shut_at__isnull=True).update(shut_at=Now())


def shut_at_birth(workspace: Workspace) -> None:
    """In the transaction that makes a workspace: its gate is shut while all workspaces are stopped."""
    held = standing().select_for_update(no_key=True)  # a release waits, and finds this workspace too
    found = sorted(held, key=lambda wide: -STRENGTH[wide.mode])
    if found:
        locked, _ = scopes.lock(scopes.Target(ScopeKind.WORKSPACE, workspace.pk))
        for wide in found:
            _shut_locked(wide, locked, None)  # nobody pressed it on a workspace that was not there


@verb
def make_workspace(*, slug: str, name: str) -> Workspace:
    """The workspace with this slug, made unless it is there: shut from the first while all are stopped."""
    workspace, made = Workspace.objects.get_or_create(slug=slug, defaults={"name": name})
    if made:
        shut_at_birth(workspace)
    return workspace


# released -------------------------------------------------------------------------------------------


def release_wide(*, actor: Actor, reason: str) -> list[WideStop]:
    """Release every stop of all workspaces, and the stop that it left in each; asked again, it goes on.

    Starts nothing. What held a workspace before stays in force, and where the rules ask for two people this
    is the wish of the first. Raises NotAllowed, NoReason, NotStanding, NotFenced.
    """
    _demand(actor)
    reason = words_in(reason)
    if not reason:
        raise NoReason
    wides = list(standing())
    if not wides:
        raise NotStanding
    _demand_fenced(wides)
    while True:
        for stop in list(_undecided(wides).order_by("pk")):
            if stop.fenced_at is None:  # it was born shut meanwhile
                fanout.fence(stop.pk)
            releases.release_with_all(actor=actor, stop_id=stop.pk, reason=reason)
        released = [_released(wide.pk) for wide in wides]
        if all(wide.released_at for wide in released):
            return released


def _undecided(wides: list[WideStop]) -> QuerySet[StopRequest]:
    """What they hold still, but for stops that wait for the second of two people."""
    waits = Release.objects.filter(stop=OuterRef("pk"), granted_at__isnull=True, void_at__isnull=True)
    return scopes_of(wides).filter(~Exists(waits))


def _demand_fenced(wides: list[WideStop]) -> None:
    stops = scopes_of(wides)
    done = stops.filter(fenced_at__isnull=False).count()
    if any(wide.shut_at is None for wide in wides) or done < stops.count():
        raise NotFenced(done, stops.count())


def scopes_of(wides: list[WideStop]) -> QuerySet[StopRequest]:
    """The stops of workspaces that came from these, and that hold a gate."""
    return StopRequest.objects.filter(scopes.in_force(), wide__in=wides)


@verb
def _released(wide_id: str) -> WideStop:
    """Unless a workspace was shut by it meanwhile: whoever does that holds this row."""
    wide = WideStop.objects.select_for_update(no_key=True).get(pk=wide_id)
    if not _undecided([wide]).exists():
        WideStop.objects.filter(pk=wide_id, released_at__isnull=True).update(released_at=Now())
    return WideStop.objects.get(pk=wide_id)
