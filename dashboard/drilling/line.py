"""The line of drills: who asks stands in it once, one of it runs, and whoever carries it out shows life.

The rows are the line. Every verb locks the workspace of drills first, so two presses, two servers and a
sweep come to one order; the schema forbids a second running one and a second of the same name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Q

from dashboard.drilling import room
from dashboard.drilling.models import IN_LINE, RUNNING, DrillResult, DrillRun, Via
from runs import wake
from runs.access import DRILLS, Actor, NotAllowed
from runs.evidence import Line, record
from runs.models import Workspace
from runs.store import Now, after, database_time, verb

TOPIC = "drills"
TASK = "dashboard.tasks.drill"
ALIVE_S = 15.0  # a worker that is silent for longer carries out nothing any more
STEPS, LOG, WHY = 200, 20_000, 500  # of one drill, at most: steps, characters, characters
NOBODY_CARRIES = "Whoever carried it out fell silent, so it shows nothing. Run it again."


@dataclass(frozen=True)
class Asked:
    """What a press came to: drills that stand in line by it, and those that stood there already."""

    new: list[str]
    joined: list[str]


@dataclass(frozen=True)
class Told:
    """How a drill ended, in its own words: see `DrillRun`."""

    result: str
    why: str = ""
    checks: dict[str, Any] = field(default_factory=dict)
    report: str = ""
    runtime: str = ""
    log: str = ""


def ask(*, actor: Actor, names: Sequence[str], via: str) -> Asked:
    """Put drills in line, each once. Raises NotAllowed for who may not start drills."""
    if actor.user is not None and not room.may_start(actor.user):
        raise NotAllowed("drill")
    room.workspace()
    if actor.user is not None:
        room.let_in(actor.user)
    return _ask(actor, names, via)


@verb
def _ask(actor: Actor, names: Sequence[str], via: str) -> Asked:
    space = _locked()
    there = set(DrillRun.objects.filter(IN_LINE, name__in=names).values_list("name", flat=True))
    new = [name for name in names if name not in there]
    for name in new:
        DrillRun.objects.create(name=name, via=via, by=actor.id)
    if new:
        record(space, Line("drill.asked", actor.id, {"drills": new, "via": via}))
    transaction.on_commit(partial(wake.run_soon, TASK), robust=True)
    _poke()
    return Asked(new, [name for name in names if name in there])


@verb
def begin() -> DrillRun | None:
    """Take the next one out of the line, unless one runs: it is yours for ALIVE_S seconds at a time."""
    _locked()
    if DrillRun.objects.filter(RUNNING).exists():
        return None
    first = DrillRun.objects.filter(IN_LINE).order_by("pk").first()
    if first is None:
        return None
    DrillRun.objects.filter(pk=first.pk).update(started_at=Now(), alive_until=after(ALIVE_S))
    _poke()
    return DrillRun.objects.get(pk=first.pk)


def go_on(row: DrillRun, steps: Iterable[str] = ()) -> bool:
    """Show life, and what was done meanwhile. False: it was taken for dead, its result no longer counts."""
    fresh = [{"at": database_time().isoformat(), "said": said} for said in steps]
    row.steps = [*row.steps, *fresh][:STEPS]
    mine = DrillRun.objects.filter(RUNNING, pk=row.pk)
    alive = bool(mine.update(steps=row.steps, token=row.token, alive_until=after(ALIVE_S)))
    if fresh:
        wake.poke([TOPIC], 0)
    return alive


@verb
def end(row_id: str, told: Told, release: str, *, if_silent: bool = False) -> bool:
    """Keep how it ended; False when it had ended before (it was taken for dead).

    if_silent: only when its worker has been silent for too long, asked under the lock.
    """
    space = _locked()
    silent = Q(alive_until__lt=Now()) if if_silent else Q()
    ended = DrillRun.objects.filter(IN_LINE & silent, pk=row_id).update(
        finished_at=Now(),
        result=told.result,
        why=told.why[:WHY],
        checks=told.checks,
        report=told.report[:200],
        runtime=told.runtime[:200],
        release=release[:60],
        log=told.log[-LOG:],
    )
    if ended:
        row = DrillRun.objects.get(pk=row_id)
        record(space, Line("drill.ended", row.by, {"drill": row.name, "id": row.pk, "result": told.result}))
    _poke()
    return bool(ended)


@verb
def keep(actor: Actor, name: str, told: Told, release: str) -> None:
    """Keep what a drill showed that somebody ran by the command, and not through the line."""
    space = _locked()
    row = DrillRun(name=name, via=Via.COMMAND, by=actor.id, result=told.result, release=release[:60])
    row.why, row.checks, row.report = told.why[:WHY], told.checks, told.report[:200]
    row.runtime, row.log = told.runtime[:200], told.log[-LOG:]
    row.started_at = row.finished_at = database_time()
    row.save(force_insert=True)
    record(space, Line("drill.ended", actor.id, {"drill": name, "id": row.pk, "result": told.result}))
    _poke()


def interrupt_silent(release: str) -> list[str]:
    """End those whose worker is silent for too long, and take their tokens back; the names of all found."""
    silent = DrillRun.objects.filter(RUNNING, alive_until__lt=Now())
    found = list(silent.values_list("pk", "name", "token"))
    for row_id, _, token in found:
        if end(row_id, Told(DrillResult.INTERRUPTED, NOBODY_CARRIES), release, if_silent=True):
            room.take_token(token)
    return [name for _, name, _ in found]


def waits() -> bool:
    """Whether somebody should take the next one: the wake-up may have been lost."""
    return DrillRun.objects.filter(IN_LINE).exists() and not DrillRun.objects.filter(RUNNING).exists()


def _locked() -> Workspace:
    return Workspace.objects.select_for_update(no_key=True).get(slug=DRILLS)


def _poke() -> None:
    transaction.on_commit(partial(wake.poke, [TOPIC], 0), robust=True)
