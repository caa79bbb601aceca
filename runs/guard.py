"""The ordinary guard: what is locked, then looked at, before anything may begin.

The run row is locked first; everything else is read in a statement of its own, whose snapshot is
younger than the lock (docs/decisions/0003-lock-then-look.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from django.db.models import Exists, F, Max, OuterRef, Q, Subquery

from . import counts, policies, receipts, refusals, scopes
from .access import Actor, NotFound, demand_granted, granted
from .evidence import Line, record
from .models import (
    Boundary,
    Evidence,
    Gate,
    OperationClass,
    Permit,
    Policy,
    Reach,
    Run,
    RunStatus,
    ScopeKind,
    Session,
    Step,
    StopRequest,
    Workspace,
)
from .models import Refusal as RefusalRow
from .presses import stop_of, stops_in_order
from .store import Now

ORDINARY, DELIVER = "ordinary", "deliver"  # under which guard a permit was given
STOPPED, STALE, LOST = "stopped", "stale_version", "lost_claim"
BLIND, UNVERIFIED, USED_UP, NOT_DUE = "blind_retry", "unverified", "tries_used_up", "not_due"
STEP_STOPPED = "step_stopped"  # the words for STOPPED where the stop is of this step alone
KIND_STOPPED = "kind_stopped"  # and where a policy withholds effects like this one
FORGOTTEN = "key_forgotten"  # the provider may not know the key of the first attempt any more
NOT_APPROVED = "not_approved"  # people said no, or nobody said yes in time
# Of a compensation alone (runs/compensating.py).
NOT_AT_REST, HALTED, NOT_SURE = "not_at_rest", "halted", "not_sure"
NO_RULE = "no_rule"  # of what is sent by a rule alone (runs/forwarding.py)
NOT_FORWARDED = "not_forwarded"  # of a request to cancel (runs/forwarding.py)
WHAT_TO_DO = {
    STOPPED: "Do not send. Release what you hold and end this run's work; it may not start more.",
    STEP_STOPPED: "Do not send, and do nothing more of this step. Its run goes on: other steps may begin.",
    KIND_STOPPED: "Do not send. A policy withholds effects like this one. Its run goes on with other work.",
    STALE: "Do not send. Read the run again, then claim again at its current version.",
    LOST: "Do nothing. This claim is not yours any more; another worker may hold the step.",
    BLIND: "Do not send. It has not failed with every effect of it known not to have happened.",
    UNVERIFIED: "Do not send. No provider says that it did not happen: look it up, or ask a person.",
    FORGOTTEN: "Do not send. The provider may have forgotten this key, so a repeat may not be harmless.",
    USED_UP: "Do not send. It was tried as often as it may be; a person may decide on another try.",
    NOT_DUE: "Do not send yet. A retry of this step is scheduled; ask again when it is due.",
    NOT_FORWARDED: "Do not send. The rules of the workspace forward no stop to a provider.",
    NOT_APPROVED: "Do not send. People decided against it, or not in time; its review says who and why.",
    NOT_AT_REST: "Do not send. A compensation starts for a run at rest, and never for an abandoned one.",
    HALTED: "Do not send. Compensations are halted here until a reviewer lifts that.",
    NO_RULE: "Do not send. No rule permits it.",
    NOT_SURE: "Do not send. What it answers is not known to have happened any more: verify that first.",
}
PEOPLE_FIRST = "people_first"  # no refusal: the gate asks people before it answers
LEASE_S = 30.0
ENDED = (RunStatus.COMPLETED, RunStatus.FAILED)  # by the runtime's own word


@dataclass(frozen=True)
class Refusal:
    """The gate said no, and why; `what_to_do` is for the worker. Recorded before it is returned."""

    reason: str
    boundary: str
    carried_version: int | None
    current_version: int | None
    run_status: str
    stop_id: str | None = None
    step_id: str | None = None
    effect_key: str = ""
    count: int = 1
    scope: str = ""  # of the stop behind it
    run_goes_on: bool = False  # that stop holds one step, or effects of a kind; the run may do other work

    @property
    def what_to_do(self) -> str:
        if self.run_goes_on:
            return WHAT_TO_DO[STEP_STOPPED if self.scope == ScopeKind.STEP else KIND_STOPPED]
        return WHAT_TO_DO[self.reason]


@dataclass(frozen=True)
class Known:
    """The key is known: `settled` (skip it; here is its result) or `must_wait`. No refusal."""

    answer: str
    subject: Any


@dataclass(frozen=True)
class Waiting(Known):
    """People decide first (`answer` is "waiting"). The intent is committed; ask again with the same key."""

    step: Step
    review: Any


@dataclass(frozen=True)
class Opened:
    """A permit was opened: look once more, then send."""

    permit: Permit
    step: Step
    subject: Any = None


@dataclass(frozen=True)
class Ask:
    """What a worker shows at a boundary. A step is named by id + token, or by a new key."""

    run_id: str
    actor: Actor
    worker: str
    seen_version: int
    boundary: str = Boundary.DISPATCH
    op_class: str = OperationClass.EXTERNAL_WRITE
    kind: str = ""  # of the effect that it is for, if it is known
    step_id: str = ""
    claim_token: str = ""
    step_key: str = ""
    step_name: str = ""
    effect_key: str = ""
    lease_s: float = LEASE_S
    queued: bool = False  # a message queued at `seen_version`: the end of its run doesn't shut its gate

    @property
    def lease(self) -> timedelta:
        return timedelta(seconds=self.lease_s)


class Intent(Protocol):
    """What a room above wants done in the same transaction, under the run's lock."""

    def annotations(self, ask: Ask) -> dict[str, Any]:
        """Expressions that are read in the same statement as the step and the scopes."""

    def known(self, run: Run, seen: dict[str, Any]) -> Known | None:
        """The answer for a key that may not be sent now; None when it may."""

    def undecided(self, run: Run, seen: dict[str, Any]) -> str | None:
        """PEOPLE_FIRST, NOT_APPROVED, or None when nobody has to decide before it is sent."""

    def held(self, run: Run, step: Step, seen: dict[str, Any]) -> tuple[Any, Any, list[Line]]:
        """Keep what waits for people under this step; returns it, its review and the evidence of both."""

    def opened(self, run: Run, permit: Permit, seen: dict[str, Any]) -> tuple[Any, list[Line]]:
        """Write what the permit is for; returns it and the evidence of it."""


class NoIntent:
    """A permit without an effect: a model turn, a read."""

    def annotations(self, ask: Ask) -> dict[str, Any]:
        return {}

    def known(self, run: Run, seen: dict[str, Any]) -> Known | None:
        return None

    def undecided(self, run: Run, seen: dict[str, Any]) -> str | None:
        return None

    def held(self, run: Run, step: Step, seen: dict[str, Any]) -> tuple[Any, Any, list[Line]]:
        raise NotImplementedError("nobody decides about a permit without an effect")

    def opened(self, run: Run, permit: Permit, seen: dict[str, Any]) -> tuple[Any, list[Line]]:
        return None, []


@dataclass
class View:
    """What one statement after the lock saw: step, scopes, newest line, and the intent's own.

    `scopes_open`: no scope above withholds this. `observed`: a stop that only counts is in force here.
    """

    step: Step | None
    scopes_open: bool
    last_seq: int
    seen: dict[str, Any] = field(default_factory=dict)
    observed: bool = False


def lock_run(run_id: str) -> Run:
    """The run's row, locked FOR NO KEY UPDATE to the end of the transaction; NotFound if none."""
    run: Run | None = Run.objects.select_for_update(no_key=True).filter(pk=run_id).first()
    if run is None:
        raise NotFound("run")
    return run


def scopes_open(run: Run) -> Q:
    """Every scope above is open at the epoch of admission. Read after the lock, never before."""
    return scopes_at(
        run.workspace_id, run.admitted_epoch, run.session_id, run.session_epoch, run.policy_epochs
    )


def scopes_at(
    workspace_id: str,
    epoch: int,
    session_id: str | None,
    session_epoch: int | None,
    policy_epochs: dict[str, int],
) -> Q:
    """The same, from values: as a condition of EXISTS parts only, so that no join is needed."""
    gates = Q(Exists(Workspace.objects.filter(pk=workspace_id, gate=Gate.OPEN, epoch=epoch)))
    if session_id:
        session = Session.objects.filter(pk=session_id, gate=Gate.OPEN, epoch=session_epoch or 0)
        gates &= Q(Exists(session))
    for policy_id, policy_epoch in policy_epochs.items():
        policy = Policy.objects.filter(pk=policy_id, gate=Gate.OPEN, epoch=policy_epoch)
        gates &= Q(Exists(policy))
    return gates


def _newest_line(run: Run) -> Subquery:
    lines = Evidence.objects.filter(stream=run.pk).order_by().values("stream")
    return Subquery(lines.annotate(top=Max("seq")).values("top"))


def view(run: Run, ask: Ask, extra: dict[str, Any] | None = None, action: str = "write") -> View:
    """One SELECT after the lock: the step, the scopes above, the newest line, `extra`, and whether
    the asker may still do this here: a token revoked since the request came in starts nothing.
    """
    asked = {
        "scopes_open": scopes_open(run),
        "a_policy_shut": policies.any_shut(run.workspace_id),
        "observed": scopes.any_observing(run.workspace_id),
        "last_seq": _newest_line(run),
        **granted(ask.actor, run.workspace_id),
        **receipts.question(ask),
        **(extra or {}),
    }
    if ask.step_id:
        step = Step.objects.filter(pk=ask.step_id, run_id=run.pk).annotate(**asked).first()
        if step is None:
            raise NotFound("step")
        seen = {name: getattr(step, name) for name in asked}
    else:
        known = Step.objects.filter(run_id=run.pk, key=ask.step_key).values("pk")
        seen = (
            Workspace.objects.filter(pk=run.workspace_id)
            .annotate(step_pk=Subquery(known), **asked)
            .values("step_pk", *asked)
            .get()
        )
        step = Step.objects.get(pk=seen["step_pk"]) if seen["step_pk"] else None
    demand_granted(ask.actor, action, run, seen)
    is_open = bool(seen["scopes_open"]) and not (seen["a_policy_shut"] and _withheld(run, ask, step))
    return View(step, is_open, seen["last_seq"] or 0, seen, bool(seen["observed"]))


SENDS = (Boundary.MODEL, Boundary.DISPATCH, Boundary.RETRY, Boundary.ACT, Boundary.DELIVER)


def _withheld(run: Run, ask: Ask, step: Step | None) -> Policy | None:
    """The shut policy that withholds what is asked, if any."""
    asked = _asked(ask, step)
    found = (policies.withholding(run, kind, op_class, sends=_sends(ask)) for kind, op_class in asked)
    return next((policy for policy in found if policy is not None), None)


def _asked(ask: Ask, step: Step | None) -> list[tuple[str, str]]:
    """The kinds and classes of what is asked; a retry is of those that its step sent before."""
    if ask.boundary != Boundary.RETRY or step is None:
        return [(ask.kind, ask.op_class)]
    sent = Permit.objects.filter(step=step).values_list("kind", "op_class")
    return sorted({("", step.op_class), *sent})


def _sends(ask: Ask) -> bool:
    """Whether an effect may follow at once; our executor claims a step for the one effect that it names."""
    return ask.boundary in SENDS or bool(ask.kind)


def watched(run: Run, ask: Ask, now: View) -> None:
    """It was let through: count it for each stop that only observes and would have refused it."""
    if not now.observed:
        return
    asked = _asked(ask, now.step)
    for stop in scopes.observing(run.workspace_id):
        if any(scopes.would_hold(stop, run, *one, sends=_sends(ask)) for one in asked):
            refusals.would_refuse(stop, ask.boundary, run)


def why_not(run: Run, seen_version: int, is_open: bool) -> str | None:
    """The ordinary guard on a locked row: the reason for a refusal, or None."""
    if run.status != RunStatus.ACTIVE or not is_open:
        return STOPPED
    return STALE if run.cancel_version != seen_version else None


def why_not_step(step: Step | None) -> str | None:
    """A step with a stop of its own begins nothing more, whatever its run may do."""
    return STOPPED if step is not None and step.stopped_at is not None else None


def why_not_deliver(run: Run, seen_version: int, is_open: bool) -> str | None:
    """The guard of a queued message: as ordinary, or its run ended by its runtime's word at the very
    version at which it was queued, and no stop of that run was recorded since.
    """
    reason = why_not(run, seen_version, is_open)
    if reason is None or not is_open or run.status not in ENDED:
        return reason
    if run.cancel_version != seen_version:
        return STALE
    return STOPPED if stopped_since(run, seen_version) else None


def stopped_since(run: Run, version: int) -> bool:
    """Whether a stop of this run was recorded since it got this version, also one after its end."""
    rows = StopRequest.objects.filter(run=run, scope=ScopeKind.RUN)
    return rows.filter(version_after__gte=version).exists()


def refuse(
    run: Run,
    ask: Ask,
    reason: str,
    boundary: str,
    step: Step | None = None,
    *,
    stop: StopRequest | None = None,
) -> Refusal:
    """Record a refusal under the run's lock: one row with its count; only the first is evidence.

    `stop`: the one behind it, where the caller knows.
    """
    same = {
        "boundary": boundary,
        "reason": reason,
        "step_key": step.key if step else ask.step_key,
        "effect_key": ask.effect_key,
        "carried_version": ask.seen_version,
        "current_version": run.cancel_version,
    }
    stop = stop or _stop_behind(run, ask, reason, step)
    due_to = stop if reason in BY_A_STOP else None
    rows = RefusalRow.objects.filter(run=run, stop=due_to, **same)
    if rows.update(count=F("count") + 1, last_at=Now()):
        count = rows.values_list("count", flat=True).get()
    else:
        count = 1
        _first_refusal(run, ask, same, step, due_to)
    counts.refused(boundary, reason)
    receipts.refused_at(run, ask, boundary)
    scope = stop.scope if stop and reason == STOPPED else ""
    return Refusal(
        reason,
        boundary,
        ask.seen_version,
        run.cancel_version,
        run.status,
        stop.pk if stop else None,
        step.pk if step else None,
        ask.effect_key,
        count,
        scope,
        run_goes_on=_goes_on(stop) if scope else False,
    )


BY_A_STOP = (STOPPED, STALE, HALTED)  # what a stop is counted for


def _goes_on(stop: StopRequest | None) -> bool:
    """Whether what was refused is one step, or one kind of effect: other work of the run may begin."""
    of_effects = stop is not None and stop.policy is not None and stop.policy.reach == Reach.EFFECTS
    return of_effects or (stop is not None and stop.scope == ScopeKind.STEP)


def _stop_behind(run: Run, ask: Ask, reason: str, step: Step | None) -> StopRequest | None:
    """The stop that a refused worker is told of: its run's own, else the one that holds a gate above, or
    the one of its step."""
    stop = stop_of(run)
    if stop is None and reason == STOPPED:
        stop = scopes.stop_above(run, lambda: _withheld(run, ask, step)) or _stop_of_step(step)
    return stop or stops_in_order(run).first()


def _stop_of_step(step: Step | None) -> StopRequest | None:
    if why_not_step(step) is None:
        return None
    return StopRequest.objects.filter(step=step, scope=ScopeKind.STEP).first()


def _first_refusal(
    run: Run, ask: Ask, same: dict[str, Any], step: Step | None, stop: StopRequest | None
) -> None:
    line = Line(
        f"{same['boundary']}.refused",
        ask.actor.id,
        {"reason": same["reason"], "step": same["step_key"]},
        boundary=same["boundary"],
        carried_version=ask.seen_version,
        current_version=run.cancel_version,
        step_id=step.pk if step else "",
        effect_key=ask.effect_key,
        worker=ask.worker,
    )
    RefusalRow.objects.create(
        run=run,
        workspace_id=run.workspace_id,
        step_name=step.name if step else ask.step_name,
        worker=ask.worker,
        evidence_seq=record(run, line),
        stop=stop,
        **same,
    )


def policies_open(epochs: dict[str, int]) -> bool:
    """Each of these policies is open at its epoch; no query without policies."""
    gates = (Policy.objects.filter(pk=pk, gate=Gate.OPEN, epoch=epoch) for pk, epoch in epochs.items())
    return all(gate.exists() for gate in gates)


def gate_of_permit() -> Q:
    """The run is ACTIVE at the permit's version, its workspace and session open at the admission's epochs.

    For a queued message also: it ended at that version, and no stop of it was recorded since.
    """
    session_open = Q(session__isnull=True) | Q(session__gate=Gate.OPEN, session__epoch=F("session_epoch"))
    runs = Run.objects.filter(
        session_open,
        pk=OuterRef("run_id"),
        cancel_version=OuterRef("seen_version"),
        workspace__gate=Gate.OPEN,
        workspace__epoch=F("admitted_epoch"),
    )
    later = {"scope": ScopeKind.RUN, "version_after__gte": OuterRef("seen_version")}
    stops = StopRequest.objects.filter(run=OuterRef("run_id"), **later)
    ended = Q(Exists(runs.filter(status__in=ENDED))) & ~Q(Exists(stops))
    return Q(Exists(runs.filter(status=RunStatus.ACTIVE))) | (Q(guard=DELIVER) & ended)
