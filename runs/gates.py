"""The gate of a workspace, for those that know no other scope: names for what runs/scopes.py does with it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from django.db.models import QuerySet

from . import releases, scopes
from .access import Actor
from .models import Gate, Mode, Run, RunStatus, ScopeKind, StopRequest, Workspace
from .presses import StopAnswer, Wish
from .releases import NotStanding
from .scopes import RESTORED, Target

__all__ = [
    "RESTORED",
    "SCOPE",
    "NotShut",
    "OtherStop",
    "Standing",
    "holds_back",
    "release",
    "shut",
    "standing",
    "standing_stops",
]

SCOPE = ScopeKind.WORKSPACE


class NotShut(NotStanding):
    """The gate of this workspace is open. Nothing was changed."""


class OtherStop(ValueError):
    """Another stop holds this gate by now: read it, then decide again. Nothing was changed."""


@dataclass(frozen=True)
class Standing:
    """A gate as it stands; see `scopes.Standing`."""

    workspace: Workspace
    stop: StopRequest | None
    paused: int
    stale: int

    @property
    def shut(self) -> bool:
        return self.workspace.gate == Gate.SHUT


def standing_stops(workspace_id: str) -> QuerySet[StopRequest]:
    """The stop that holds the gate of this workspace, if any."""
    rows = StopRequest.objects.filter(scopes.in_force(), workspace_id=workspace_id, scope=SCOPE)
    return rows.exclude(observes=True).order_by("-number")


def standing(workspace_id: str) -> Standing:
    """The gate now, and what a release would leave as it is. Raises NotFound."""
    found = scopes.standing(_of(workspace_id))
    assert isinstance(found.scope, Workspace)
    return Standing(found.scope, found.stop, found.paused, found.stale)


def _of(workspace_id: str) -> Target:
    return Target(SCOPE, workspace_id)


def holds_back(workspace: Workspace, run: Run) -> bool:
    """Whether every gate refuses this run of it since the gate shut, though the run is active."""
    passed = workspace.gate == Gate.OPEN and workspace.epoch == run.admitted_epoch
    return bool(run.status == RunStatus.ACTIVE and not passed)


def shut(*, actor: Actor, workspace_id: str, wish: Wish) -> StopAnswer:
    """Stop a whole workspace, by a pause where no mode was asked for; see `scopes.request_scope_stop`."""
    wish = wish if wish.requested_mode else replace(wish, mode=Mode.PAUSE)
    return scopes.request_scope_stop(actor=actor, wish=wish, target=_of(workspace_id))


def release(*, actor: Actor, workspace_id: str, reason: str, stop_id: str = "") -> Standing:
    """Release the stop that holds the gate, if it is still `stop_id`; see `releases.release`.

    Raises what that raises, NotShut, OtherStop.
    """
    stop = standing_stops(workspace_id).first()
    if stop is None:
        scopes.demand(actor, "release", workspace_id, "workspace")
        raise NotShut
    scopes.demand(actor, "read", workspace_id, "workspace")
    if stop_id and stop.pk != stop_id:
        raise OtherStop
    releases.release(actor=actor, stop_id=stop.pk, reason=reason)
    return standing(workspace_id)
