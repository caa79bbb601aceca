"""The gate of a workspace: shut at once for all its runs, and released by a decision that starts nothing.

Shutting is a stop with scope workspace that stands until it is released. From its commit on no run is
admitted and no gate call of any run of the workspace can succeed: the ordinary guard reads gate and epoch
after its lock. What is in flight in those runs goes on, and is not listed by this stop: it fences no run.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

from .access import Actor, NotFound, demand_workspace
from .evidence import Line, record
from .models import Gate, Mode, Run, RunStatus, StopRequest, Workspace
from .presses import RELEASED, StopAnswer, Wish, close, next_number, pressed_before, record_press, wished
from .store import database_time, stop_verb, verb

SCOPE = "workspace"
HOLDS = f"mode: recorded as {Mode.PAUSE}; a shut gate holds runs and ends none"
RESTORED = "restore"  # a stop's `via` when a restore shut the gate


class NoReason(ValueError):
    """A release needs a reason. Nothing was changed."""


class NotShut(ValueError):
    """The gate of this workspace is open. Nothing was changed."""


class OtherStop(ValueError):
    """Another stop holds this gate by now: read it, then decide again. Nothing was changed."""


@dataclass(frozen=True)
class Standing:
    """A gate as it stands. `stop` holds it shut, None while it is open (or nobody recorded why not).

    `paused` runs wait for a resume of their own. `stale` runs are ACTIVE, yet every gate refuses them, since
    they were admitted before the gate was shut: a pause and a resume let each go on.
    """

    workspace: Workspace
    stop: StopRequest | None
    paused: int
    stale: int

    @property
    def shut(self) -> bool:
        return self.workspace.gate == Gate.SHUT


def standing_stops(workspace_id: str) -> QuerySet[StopRequest]:
    """The stop that holds the gate of this workspace, if any."""
    rows = StopRequest.objects.filter(workspace_id=workspace_id, scope=SCOPE, released_at__isnull=True)
    return rows.filter(superseded_by__isnull=True).order_by("-number")


def standing(workspace_id: str) -> Standing:
    """The gate now, and what a release would leave as it is. Raises NotFound."""
    workspace = Workspace.objects.filter(pk=workspace_id).first()
    if workspace is None:
        raise NotFound("workspace")
    runs = Run.objects.filter(workspace=workspace)
    stop = standing_stops(workspace_id).first() if workspace.gate == Gate.SHUT else None
    return Standing(
        workspace,
        stop,
        paused=runs.filter(status__in=[RunStatus.PAUSING, RunStatus.PAUSED]).count(),
        stale=held_back(runs, workspace).count(),
    )


def holds_back(workspace: Workspace, run: Run) -> bool:
    """Whether every gate refuses this run of it since the gate shut, though the run is active."""
    passed = workspace.gate == Gate.OPEN and workspace.epoch == run.admitted_epoch
    return bool(run.status == RunStatus.ACTIVE and not passed)


def held_back(runs: QuerySet[Run], workspace: Workspace) -> QuerySet[Run]:
    """Of these runs of the workspace, those that it holds back."""
    at_epoch = Q() if workspace.gate == Gate.SHUT else ~Q(admitted_epoch=workspace.epoch)
    return runs.filter(at_epoch, status=RunStatus.ACTIVE)


def _locked(workspace_id: str) -> Workspace:
    workspace = Workspace.objects.select_for_update(no_key=True).filter(pk=workspace_id).first()
    if workspace is None:
        raise NotFound("workspace")
    return workspace


# shut ---------------------------------------------------------------------------------------------


def shut(*, actor: Actor, workspace_id: str, wish: Wish) -> StopAnswer:
    """Shut the gate of a workspace, or join the stop that holds it. Never refused for a formality.

    Once this returns, no gate lets anything of the workspace begin. A check that passed in the
    milliseconds before the commit finds the gate shut at its second look. Raises NotFound, NotAllowed;
    OperationalError when the database can't answer: NOT recorded, or not known; the same key converges.
    """
    asked = wish.requested_mode
    ignored = [*wish.ignored, HOLDS] if asked not in ("", Mode.PAUSE) else wish.ignored
    return _shut(actor, workspace_id, replace(wish, mode=Mode.PAUSE, ignored=ignored), new_key(wish))


def new_key(wish: Wish) -> str:
    """The press's own key, else one that its repetitions after a lost wire share."""
    return wish.key or secrets.token_hex(16)


@stop_verb
def _shut(actor: Actor, workspace_id: str, wish: Wish, key: str) -> StopAnswer:
    workspace = _locked(workspace_id)
    demand_workspace(actor, "stop", workspace_id)
    where = Q(stop__workspace=workspace, stop__scope=SCOPE)
    again = pressed_before(actor, key, where, wish.mode, moves=False)
    if again is not None:
        return again
    stop = standing_stops(workspace_id).first() if workspace.gate == Gate.SHUT else None
    kind = "stop.joined" if stop else "gate.shut"
    stop = stop or shut_gate(workspace, actor, wish, database_time())
    press = record_press(stop, actor, wish, key, "joined" if kind == "stop.joined" else "recorded")
    record(workspace, _shut_line(kind, workspace, stop, actor, wish))
    return StopAnswer(stop, press)


def shut_gate(
    workspace: Workspace, actor: Actor, wish: Wish, now: datetime, *, epoch: int = 0
) -> StopRequest:
    """Shut it under its lock, at a new epoch (at least `epoch`), with the stop that stands for it."""
    workspace.epoch = max(workspace.epoch + 1, epoch)
    rows = Workspace.objects.filter(pk=workspace.pk)
    rows.update(gate=Gate.SHUT, epoch=workspace.epoch, gate_at=now)
    return StopRequest.objects.create(
        workspace=workspace,
        number=next_number(workspace.pk),
        scope=SCOPE,
        run_key="",
        gate_at=now,
        **wished(actor, wish, now),
    )


def _shut_line(kind: str, workspace: Workspace, stop: StopRequest, actor: Actor, wish: Wish) -> Line:
    told: dict[str, Any] = {
        "mode": wish.mode,
        "requested_mode": wish.requested_mode,
        "reason": wish.reason,
        "note": wish.note,
        "ignored": wish.ignored,
        "epoch": workspace.epoch,
    }
    return Line(kind, actor.id, told, stop_id=stop.pk)


# release ------------------------------------------------------------------------------------------


@verb
def release(*, actor: Actor, workspace_id: str, reason: str, stop_id: str = "") -> Standing:
    """Open the gate again. Starts nothing: paused runs stay paused, runs may be admitted.

    `stop_id`: the stop that the decision is about; a later one beats it. After a restore this is for an
    admin. Raises NotFound, NotAllowed, NoReason, NotShut, OtherStop.
    """
    workspace = _locked(workspace_id)
    stop = standing_stops(workspace_id).first()
    by_restore = stop is not None and stop.via == RESTORED
    demand_workspace(actor, "admin" if by_restore else "release", workspace_id)
    if not reason.strip():
        raise NoReason
    if workspace.gate != Gate.SHUT:
        raise NotShut
    if stop_id and (stop is None or stop.pk != stop_id):
        raise OtherStop
    Workspace.objects.filter(pk=workspace.pk).update(gate=Gate.OPEN)
    lines = [Line("gate.released", actor.id, {"reason": reason, "epoch": workspace.epoch}, stop_id=_id(stop))]
    if stop is not None:
        StopRequest.objects.filter(pk=stop.pk).update(released_at=database_time())
        close(stop, RELEASED)
        lines.append(Line("stop.closed", actor.id, {"because": RELEASED}, stop_id=stop.pk))
    record(workspace, *lines)
    return standing(workspace_id)


def _id(stop: StopRequest | None) -> str:
    return stop.pk if stop else ""
