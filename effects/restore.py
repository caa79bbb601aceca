"""After a backup was loaded: nothing from before it may go on, and what was in flight is unknown.

Moves for the one transaction of a restore (dashboard/restore.py). Whatever was recorded between the backup
and now is missing here: stops too. So every gate is shut, every version leaps, and people open again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from django.db.models import Exists, F, OuterRef, Q

from runs import drain, halts, scopes, stops
from runs.access import Actor
from runs.evidence import Line, record
from runs.guard import lock_run
from runs.models import (
    BUSY,
    FINAL,
    Mode,
    Permit,
    PermitState,
    Restore,
    Run,
    RunStatus,
    Step,
    StopRequest,
    Workspace,
)
from runs.presses import STRENGTH, SUPERSEDED, Wish
from runs.store import database_time

from . import compensation_moves, repair_moves, reviews
from .compensation import UNDECIDED
from .drain import lapsed, lost
from .models import Compensation, CompensationState, Effect, Settlement
from .settle import line_of, lose

LEAP = 1_000_000  # no version that anybody was given since the backup is as high
HELD = (RunStatus.ACTIVE, RunStatus.PAUSING)
RESTORER = Actor("system:restore", via=scopes.RESTORED)
COMPENSATED = (*UNDECIDED, CompensationState.DISPATCHED)  # what the time between may have changed
WHY = "in progress when the backup was taken"
GIVEN_BEFORE = "given before the backup was restored; it may have been used since"
SLICE = 200


@dataclass
class Tally:
    """What a restore left behind, counted; `gates` are the stops that people release, by workspace."""

    runs: int = 0
    paused: int = 0
    permits: int = 0
    effects: int = 0
    gates: list[StopRequest] = field(default_factory=list)


@dataclass(frozen=True)
class Before:
    """How far the database that is replaced had come: no version or epoch is given a second time."""

    versions: Mapping[str, int] = field(default_factory=dict)
    epochs: Mapping[str, int] = field(default_factory=dict)


def put_to_rest(restore: Restore, before: Before) -> Tally:
    """Shut every gate, pause or fence every open run, call everything in flight unknown."""
    tally = Tally()
    for workspace in Workspace.objects.select_for_update(no_key=True).order_by("pk"):
        stop = _shut(workspace, restore, before.epochs.get(workspace.pk, 0))
        tally.gates.append(stop)
        for run_id in _concerned(workspace):
            _rest(lock_run(run_id), stop, restore, before.versions.get(run_id, 0), tally)
        _is_fenced(stop)
    return tally


def _shut(workspace: Workspace, restore: Restore, epoch: int) -> StopRequest:
    earlier = list(scopes.stops_of(workspace).filter(scopes.in_force()))
    told = {"taken_at": restore.taken_at.isoformat(), "digest": restore.digest}
    note = f"backup of {restore.taken_at:%Y-%m-%d %H:%M:%S} UTC"
    wish = Wish(mode=_mode(earlier), reason=scopes.RESTORED, note=note)
    stop = scopes.shut_gate(workspace, workspace, RESTORER, wish, database_time(), epoch=epoch + 1)
    lines = [
        Line("backup.restored", RESTORER.id, told, stop_id=stop.pk),
        scopes.shut_line(workspace, stop, RESTORER, wish),
        *halts.set_halt(stop),
    ]
    for one in earlier:
        lines += [*scopes.void_wish(one, RESTORER), scopes.supersede(one, stop, SUPERSEDED)]
    beside = StopRequest.objects.filter(scopes.in_force(), workspace=workspace).exclude(pk=stop.pk)
    lines += [line for one in beside.order_by("pk") for line in scopes.void_wish(one, RESTORER)]
    record(workspace, *lines)
    return stop


def _mode(earlier: list[StopRequest]) -> str:
    """A pause, or what was asked for before and stands: a cancel that reached half its runs goes on."""
    modes = [stop.mode for stop in earlier if not stop.observes]
    return max([Mode.PAUSE, *modes], key=lambda mode: STRENGTH[mode])


def _is_fenced(stop: StopRequest) -> None:
    """Each run was held by the restore itself; what a stronger mode means for it is still to come."""
    if stop.mode == Mode.PAUSE:
        StopRequest.objects.filter(pk=stop.pk).update(fenced_at=database_time())


def _concerned(workspace: Workspace) -> Iterator[str]:
    """Runs that have not ended, and ended ones with something in flight or to decide; a slice at a time."""
    mine = {"run_id": OuterRef("pk")}
    flying = Q(Exists(Permit.objects.filter(**mine, state=PermitState.OPEN)))
    flying |= Q(Exists(Step.objects.filter(**mine, status__in=BUSY)))
    flying |= Q(Exists(Effect.objects.filter(**mine, settlement=Settlement.DISPATCHED)))
    flying |= Q(Exists(Compensation.objects.filter(**mine, state__in=COMPENSATED)))
    rows = Run.objects.filter(~Q(status__in=FINAL) | flying, workspace=workspace).order_by("pk")
    last = ""
    while ids := list(rows.filter(pk__gt=last).values_list("pk", flat=True)[:SLICE]):
        yield from ids
        last = ids[-1]


def _rest(run: Run, stop: StopRequest, restore: Restore, version: int, tally: Tally) -> None:
    """One run: leases lost, effects unknown, version far beyond; held if it was at work."""
    was, before = run.status, run.cancel_version
    lines = _lose_all(run, tally) + reviews.void_all(run, GIVEN_BEFORE)
    _leap(run, version)
    if was in HELD:
        lines += _held(run, stop, tally)
    run = Run.objects.get(pk=run.pk)
    compensation_moves.at_version(run)
    told = {"was": was, "taken_at": restore.taken_at.isoformat()}
    line = Line(
        "run.restored",
        RESTORER.id,
        told,
        stop_id=stop.pk,
        carried_version=before,
        current_version=run.cancel_version,
    )
    record(run, *lines, line)
    tally.runs += 1


def _lose_all(run: Run, tally: Tally) -> list[Line]:
    lines: list[Line] = []
    held = run.status in (*HELD, RunStatus.PAUSED)
    while permits := drain.lose_leases(run, all_of_them=True):
        tally.permits += len(permits)
        for permit in permits:
            lines += lost(run, permit)
    while steps := drain.lapsed_steps(run, all_of_them=True):
        for step in steps:
            lines += lapsed(run, step, held=held)
    for effect in Effect.objects.filter(run=run, settlement=Settlement.DISPATCHED):
        lose(effect, WHY)
        lines.append(line_of(effect, RESTORER.id, {"why": WHY}, ""))
    lines += repair_moves.lose_all(run, WHY, RESTORER.id)
    tally.effects += sum(line.kind == "effect.unknown" for line in lines)
    return lines


def _leap(run: Run, version: int) -> None:
    """Beyond every version of the backup, and of the database that it replaces.

    ACTIVE and PAUSING are moved to PAUSED by their own transition; in any other status the run stays,
    and only its version leaps. A run that has ended is given no version any more.
    """
    rows = Run.objects.filter(pk=run.pk)
    if run.status in FINAL:
        return
    if version > run.cancel_version:
        rows.advance({"cancel_version": version})
    if run.status in HELD:
        Run.restore(run)
    else:
        rows.advance({"cancel_version": F("cancel_version") + LEAP})


def _held(run: Run, stop: StopRequest, tally: Tally) -> list[Line]:
    """It is quiet by force. A pause of its own, from before, stays in force and says since when."""
    tally.paused += 1
    own = stops.open_stop(run)
    if own is not None:
        StopRequest.objects.filter(pk=own.pk, quiet_at__isnull=True).update(quiet_at=database_time())
    return stops.followed(run, stop, RESTORER)
