"""Drills that are asked for again and again: set by an admin, due by the database's clock."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from dashboard.drilling import line, room
from dashboard.drilling.models import DrillSchedule, Every, Via
from runs.access import DRILLS, SYSTEM, Actor, NotAllowed
from runs.evidence import Line, record
from runs.models import Workspace
from runs.store import Now, database_time, verb

ALL, OFF = "all", "off"
STEP = {Every.DAILY: timedelta(days=1), Every.WEEKLY: timedelta(days=7)}


def put(*, actor: Actor, which: str, every: str, hour: int) -> None:
    """Have a drill, or ALL, asked for each day or week at this hour (UTC); OFF: no more.

    Raises NotAllowed; ValueError for another word than off, daily, weekly, or an hour that no day has.
    """
    if actor.user is None or not room.may_start(actor.user):
        raise NotAllowed("drill")
    if every not in (OFF, *Every.values) or not 0 <= hour < 24:
        raise ValueError("How often is off, daily or weekly; the hour is 0 to 23, UTC.")
    room.workspace()
    _put(actor, which, every, hour)


@verb
def _put(actor: Actor, which: str, every: str, hour: int) -> None:
    space = Workspace.objects.select_for_update(no_key=True).get(slug=DRILLS)
    if every == OFF:
        DrillSchedule.objects.filter(pk=which).delete()
    else:
        due = first_after(database_time(), hour)
        told = {"every": every, "next_at": due, "by": actor.id, "set_at": Now()}
        DrillSchedule.objects.update_or_create(pk=which, defaults=told)
    record(space, Line("drill.scheduled", actor.id, {"drill": which, "every": every, "hour": hour}))


def first_after(now: datetime, hour: int) -> datetime:
    """The next time that it is this hour, UTC."""
    today = now.replace(hour=hour, minute=0, second=0, microsecond=0)
    return today if today > now else today + timedelta(days=1)


def after_this(due: datetime, every: str, now: datetime) -> datetime:
    """The time after `due` that is still to come: what was missed meanwhile is not made up for."""
    step = STEP[Every(every)]
    missed = max(0, (now - due) // step)
    return due + (missed + 1) * step


def ask_due(names: Sequence[str]) -> list[str]:
    """Put in line what is due; `names`: all drills there are. The names that were due."""
    due = DrillSchedule.objects.filter(next_at__lte=Now()).order_by("pk")
    asked: list[str] = []
    for which in due.values_list("which", flat=True):
        if _take(which):
            asked += names if which == ALL else [which]
    once = [name for name in dict.fromkeys(asked) if name in names]
    if once:
        line.ask(actor=SYSTEM, names=once, via=Via.SCHEDULE)
    return once


@verb
def _take(which: str) -> bool:
    """Move it on to its next time; False when another process was quicker."""
    Workspace.objects.select_for_update(no_key=True).get(slug=DRILLS)
    row = DrillSchedule.objects.filter(pk=which, next_at__lte=Now()).first()
    if row is None:
        return False
    later = after_this(row.next_at, row.every, database_time())
    return bool(DrillSchedule.objects.filter(pk=which).update(next_at=later))
