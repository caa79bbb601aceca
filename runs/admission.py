"""admit: a run begins, through the lock of the scopes above it. Nothing else is in that transaction."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django.db.models import F

from . import children, counts, refusals, scopes, stops
from .access import Actor, demand, demand_workspace
from .evidence import Line, canonical, digest, record
from .guard import STOPPED, Refusal
from .models import (
    Boundary,
    Gate,
    Policy,
    Reach,
    Run,
    RunStatus,
    Session,
    StopRequest,
    User,
    Worker,
    Workspace,
)
from .models import Refusal as RefusalRow
from .policies import over as policies_over
from .store import Now, after, verb


class RunKeyReused(ValueError):
    """A run with this key exists and was registered with other parameters. Use another key."""


@dataclass(frozen=True)
class NewRun:
    """What a runtime says of a run; fixed at admission."""

    key: str
    name: str = ""
    session: str = ""
    agent: str = ""
    runtime: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    ungateable: list[str] = field(default_factory=list)
    drill: bool = False
    silent_after_s: int = 900
    parent: str = ""

    @property
    def digest(self) -> str:
        """Without a parent, as it was before runs had one: a run of that time is attached to as ever."""
        told = {name: value for name, value in vars(self).items() if name != "parent" or value}
        return digest(canonical(told))


@dataclass(frozen=True)
class Admitted:
    """The run, new or attached to."""

    run: Run
    created: bool


def admit(
    *, actor: Actor, workspace_id: str, new: NewRun, owner: User | None = None, worker: str = ""
) -> Admitted | Refusal:
    """Register a run, or attach to the one with this key and the same parameters.

    Raises RunKeyReused, NotFound (the parent too), NotAllowed, TooDeep. A shut gate above is a Refusal;
    under a stopped parent, or when a stop waits for its key, it is born stopping.
    """
    named: dict[str, Any] = {"workspace_id": workspace_id, "key": new.session}
    if new.session and not Session.objects.filter(**named).exists():
        # in a transaction of its own: admission holds the scope's lock for one insert only
        demand_workspace(actor, "write", workspace_id)
        Session.objects.get_or_create(**named)
    return _admit(actor, workspace_id, new, owner, worker)


@verb
def _admit(
    actor: Actor, workspace_id: str, new: NewRun, owner: User | None, worker: str
) -> Admitted | Refusal:
    locked = Workspace.objects.select_for_update(no_key=True)
    workspace = locked.filter(pk=workspace_id).first()
    known = Run.objects.filter(workspace=workspace, key=new.key).first()
    if known is not None:
        demand(actor, "write", known)
        return _attach(known, new)
    demand_workspace(actor, "write", workspace_id)
    assert workspace is not None  # demand_workspace answered for its absence
    session = _lock_session(workspace, new.session)
    policies = _policies(workspace, new)
    above = [scope for scope in (workspace, session, *policies) if scope is not None]
    shut = next((scope for scope in above if scope.gate != Gate.OPEN), None)
    if shut is not None:
        return _refuse_admission(actor, workspace, new, worker, scopes.standing_stop(shut))
    ancestors = children.lock_ancestors(actor, workspace, new.parent)
    waiting, over = stops.waiting_for(workspace, new.key).first(), children.inherited(ancestors)
    mode = children.mode_at_birth(waiting, over)
    born = stops.BORN[mode] if mode else RunStatus.ACTIVE  # never ACTIVE when a stop holds it
    run = _insert(workspace, session, policies, new, owner, born, ancestors[-1] if ancestors else None)
    record(run, _admitted(run, actor, worker), *children.born_under(run, waiting, over), last_seq=0)
    _watched(run)
    if worker:
        Worker.objects.create(run=run, name=worker)
    return Admitted(Run.objects.get(pk=run.pk), created=True)


def _attach(run: Run, new: NewRun) -> Admitted:
    if run.parameters_digest != new.digest:
        raise RunKeyReused(new.key)
    return Admitted(run, created=False)


def _lock_session(workspace: Workspace, key: str) -> Session | None:
    if not key:
        return None
    return Session.objects.select_for_update(no_key=True).get(workspace=workspace, key=key)


def _policies(workspace: Workspace, new: NewRun) -> list[Policy]:
    """The policies that withhold runs with these labels; a run keeps their epochs. Those of effects bump
    nothing, so a run outlives their gates. Read after the workspace's lock, which each change
    of their gates holds too."""
    return policies_over(workspace.pk, new.labels, reach=Reach.RUNS)


def _watched(run: Run) -> None:
    """It was let in: count it for each stop that only observes and would have refused it."""
    for stop in scopes.observing(run.workspace_id):
        if scopes.would_hold(stop, run, sends=False):
            refusals.would_refuse(stop, Boundary.ADMIT)


def _insert(
    workspace: Workspace,
    session: Session | None,
    policies: list[Policy],
    new: NewRun,
    owner: User | None,
    born: str,
    parent: Run | None,
) -> Run:
    return Run.objects.create(
        workspace=workspace,
        session=session,
        parent=parent,
        parent_version=parent.cancel_version if parent else None,
        owner=owner,
        key=new.key,
        name=new.name or new.key,
        agent=new.agent,
        runtime=new.runtime,
        labels=new.labels,
        ungateable=new.ungateable,
        parameters_digest=new.digest,
        drill=new.drill,
        silent_after_s=new.silent_after_s,
        status=born,
        admitted_epoch=workspace.epoch,
        session_epoch=session.epoch if session else None,
        policy_epochs={policy.pk: policy.epoch for policy in policies},
        last_heard_at=Now(),
        ended_at=Now() if born == RunStatus.ABANDONED else None,
        silent_at=after(new.silent_after_s),
    )


def _admitted(run: Run, actor: Actor, worker: str) -> Line:
    facts: dict[str, Any] = {"key": run.key, "name": run.name, "session": run.session_id or ""}
    facts |= {"parent": run.parent_id} if run.parent_id else {}
    return Line(
        "run.admitted",
        actor.id,
        facts,
        boundary=Boundary.ADMIT,
        current_version=1,
        worker=worker,
    )


def _refuse_admission(
    actor: Actor, workspace: Workspace, new: NewRun, worker: str, stop: StopRequest | None
) -> Refusal:
    """Recorded in the workspace: one row for a stop with its count, of which only the first is evidence."""
    same: dict[str, Any] = {
        "workspace": workspace,
        "boundary": Boundary.ADMIT,
        "reason": STOPPED,
        "run_key": new.key,
    }
    same["stop"] = stop
    rows = RefusalRow.objects.filter(run__isnull=True, **same)
    if rows.update(count=F("count") + 1, last_at=Now()):
        count = rows.values_list("count", flat=True).get()
    else:
        count, told = 1, {"reason": STOPPED, "run_key": new.key}
        behind = stop.pk if stop else ""
        line = Line("admit.refused", actor.id, told, boundary=Boundary.ADMIT, worker=worker, stop_id=behind)
        RefusalRow.objects.create(**same, worker=worker, evidence_seq=record(workspace, line))
    counts.refused(Boundary.ADMIT, STOPPED)
    scope = stop.scope if stop else ""
    return Refusal(
        STOPPED, Boundary.ADMIT, None, None, "", stop.pk if stop else None, count=count, scope=scope
    )
