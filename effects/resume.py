"""resume(): a decision of its own. It starts nothing; workers claim again at the new version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runs import stops
from runs.access import Actor, NotFound, demand
from runs.evidence import Line, record
from runs.guard import lock_run
from runs.models import Gate, Policy, Run, RunStatus, Session, Workspace
from runs.store import verb

from . import close
from .models import Effect, Settlement

SAFE, SKIP, WAIT = "safe to run", "skip, settled", "must wait"
ANSWERS: dict[str, str] = {
    Settlement.DECLARED: SAFE,
    Settlement.NOT_APPLIED: SAFE,
    Settlement.CONFIRMED: SKIP,
    Settlement.PARTIAL: SKIP,
    Settlement.NOT_STARTED: SKIP,
    Settlement.ACCEPTED_UNKNOWN: SKIP,
    Settlement.DISPATCHED: WAIT,
    Settlement.UNKNOWN: WAIT,
}
WHY: dict[str, str] = {
    "draining": "It is still draining. It can be resumed once it is paused.",
    "ended": "This run has ended. Start a new run from its evidence.",
    "running": "There is nothing to resume: the run may start new work.",
    "superseded": "Another stop came since this page was opened. Read it, then decide again.",
    "gate": "A stop of its workspace, session or policy is in force. Release that first.",
    "must wait": "An effect is in progress or unknown. Settle it first: a resume never sends it again.",
}


@dataclass(frozen=True)
class Item:
    """One effect and what a resumed worker may do with its key."""

    key: str
    title: str
    settlement: str
    answer: str


@dataclass(frozen=True)
class Resumed:
    """The run is ACTIVE again at `run.cancel_version`; `items` is what was decided upon."""

    run: Run
    items: list[Item]


@dataclass(frozen=True)
class NotResumed:
    """The refusal is the list: which effect stands in the way. `reason` is a key of WHY."""

    run: Run
    reason: str
    items: list[Item]

    @property
    def sentence(self) -> str:
        return WHY[self.reason]


def plan(run: Run) -> list[Item]:
    """Per effect: safe to run · skip, settled · must wait (one query)."""
    rows = Effect.objects.filter(run=run).order_by("pk")
    return [Item(e.key, e.title, e.settlement, ANSWERS[e.settlement]) for e in rows]


@verb
def resume(*, actor: Actor, run_id: str, stop_id: str = "", reason: str = "") -> Resumed | NotResumed:
    """Make a PAUSED run ACTIVE again, at a new version and the scopes' current epochs.

    `stop_id`: the stop that the decision is about; a later stop beats it. Raises NotFound,
    NotAllowed. Settled effects are never sent again, whatever a worker asks.
    """
    epochs, open_gates = _lock_scopes(run_id)
    run = lock_run(run_id)
    demand(actor, "resume", run)
    items = plan(run)
    stop = stops.open_stop(run)
    why = _why_not(run, stop.pk if stop else "", stop_id, open_gates, items)
    if why is not None:
        return NotResumed(run, why, items)
    Run.resume(run, epochs)
    run = Run.objects.get(pk=run.pk)
    told = {"reason": reason, "effects": [vars(item) for item in items]}
    lines = [Line("run.resumed", actor.id, told, stop_id=stop_id, current_version=run.cancel_version)]
    if stop is not None:
        stops.close(stop, "resumed")
        lines.append(Line("stop.closed", actor.id, {"because": "resumed"}, stop_id=stop.pk))
    record(run, *lines)
    close.tell(run)
    return Resumed(run, items)


def _why_not(run: Run, current: str, meant: str, open_gates: bool, items: list[Item]) -> str | None:
    by_status = {RunStatus.ACTIVE: "running", RunStatus.PAUSING: "draining", RunStatus.PAUSED: None}
    why = by_status.get(RunStatus(run.status), "ended")
    if why is not None:
        return why
    if meant and current != meant:
        return "superseded"
    if not open_gates:
        return "gate"
    return "must wait" if any(item.answer == WAIT for item in items) else None


def _lock_scopes(run_id: str) -> tuple[dict[str, Any], bool]:
    """Lock policies, workspace and session in that order; their epochs, and whether all are open."""
    run = Run.objects.filter(pk=run_id).first()
    if run is None:
        raise NotFound("run")
    locked: list[Any] = list(
        Policy.objects.select_for_update(no_key=True).filter(pk__in=list(run.policy_epochs)).order_by("pk")
    )
    policies = {policy.pk: policy.epoch for policy in locked}
    workspace = Workspace.objects.select_for_update(no_key=True).get(pk=run.workspace_id)
    locked.append(workspace)
    epochs: dict[str, Any] = {"admitted_epoch": workspace.epoch, "policy_epochs": policies}
    if run.session_id:
        session = Session.objects.select_for_update(no_key=True).get(pk=run.session_id)
        locked.append(session)
        epochs["session_epoch"] = session.epoch
    return epochs, all(scope.gate == Gate.OPEN for scope in locked)
