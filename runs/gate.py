"""The only places where work can begin: admit, claim, model, dispatch, retry, act, deliver.

Every boundary locks the run row, looks, then writes (runs/guard.py). Zero rows is an answer,
recorded and returned as a `Refusal`; nothing is raised for it.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import BooleanField, Exists, ExpressionWrapper, F, OuterRef, Q
from django.db.models.expressions import Combinable

from . import cleanup as cleanup_guard
from . import compensating, forwarding, permits, policies, receipts
from .access import NotFound
from .compensating import compensate as compensate  # a boundary crossed under a guard of its own
from .evidence import Line, record
from .forwarding import FORWARD
from .forwarding import forward as forward  # another one
from .guard import (
    DELIVER,
    LOST,
    NOT_APPROVED,
    NOT_DUE,
    ORDINARY,
    PEOPLE_FIRST,
    STOPPED,
    Ask,
    Intent,
    Known,
    NoIntent,
    Opened,
    Refusal,
    View,
    Waiting,
    gate_of_permit,
    lock_run,
    policies_open,
    refuse,
    view,
    watched,
    why_not,
    why_not_deliver,
    why_not_step,
)
from .halts import COMPENSATE
from .models import (
    BUSY,
    Boundary,
    OperationClass,
    Permit,
    PermitState,
    Policy,
    Reach,
    Run,
    RunStatus,
    ScopeKind,
    Step,
    StepStatus,
)
from .retries import fall_due as fall_due  # the boundary retry is crossed here, like the others
from .retries import retry as retry
from .store import Now, after, verb

# claim -------------------------------------------------------------------------------------


@verb
def claim(ask: Ask, *, cleanup: bool = False) -> Step | Refusal:
    """A worker takes a step, registering it when its key is new; the answer holds the token.

    Returns the CLAIMED step, or the recorded Refusal. Raises NotFound for an unknown id.
    """
    ask = _at(ask, Boundary.CLAIM)
    run = lock_run(ask.run_id)
    now = view(run, ask)
    _, reason = cleanup_guard.admit(run, ask, now.step, why_not(run, ask.seen_version, now.scopes_open))
    reason = reason or why_not_step(now.step)
    if reason is None and now.step is not None and now.step.status != StepStatus.PENDING:
        reason = _not_free(run, now.step)
    if reason is not None:
        return refuse(run, ask, reason, Boundary.CLAIM, now.step)
    step = now.step or new_step(run, ask, cleanup=cleanup)
    kinds = ["step.claimed"] if now.step else ["step.registered", "step.claimed"]
    _claim(step, ask, _token())
    record(run, *[_of_step(kind, ask, step) for kind in kinds], last_seq=now.last_seq)
    receipts.at_gate(run, ask, now.seen)
    watched(run, ask, now)
    return Step.objects.get(pk=step.pk)


@verb
def register(ask: Ask, *, cleanup: bool = False) -> Step | Refusal:
    """Queue a step for a later claim: PENDING. A known key answers the step as it stands."""
    ask = _at(ask, Boundary.CLAIM)
    run = lock_run(ask.run_id)
    now = view(run, ask)
    if now.step is not None:
        return now.step
    reason = why_not(run, ask.seen_version, now.scopes_open)
    if reason is not None:
        return refuse(run, ask, reason, Boundary.CLAIM)
    step = new_step(run, ask, cleanup=cleanup)
    record(run, _of_step("step.registered", ask, step), last_seq=now.last_seq)
    receipts.at_gate(run, ask, now.seen)
    watched(run, ask, now)
    return Step.objects.get(pk=step.pk)


@verb
def release(ask: Ask) -> Step | Refusal:
    """Give a claim back before anything was sent: CLAIMED, or every permit NOT_SENT → PENDING.

    In a run that may not go on, or after a stop of its own, it is withheld instead.
    """
    ask = _at(ask, Boundary.CLAIM)
    run = lock_run(ask.run_id)
    now = view(run, ask)
    mine = Step.objects.filter(pk=ask.step_id, claim_token=ask.claim_token).filter(
        Q(status=StepStatus.CLAIMED) | ~Exists(_sent_permits())
    )
    stopped = why_not_step(now.step)
    goes_on = not stopped and run.status in (RunStatus.ACTIVE, RunStatus.PAUSING, RunStatus.PAUSED)
    happened = now.step is not None and now.step.happened
    move = Step.release if goes_on else Step.finish_partly if happened else Step.withhold
    if not ask.claim_token or not move(mine):
        return refuse(run, ask, stopped or LOST, Boundary.CLAIM, now.step)
    step: Step = Step.objects.get(pk=ask.step_id)
    kind = "step.released" if goes_on else f"step.{step.status.lower()}"
    record(run, _of_step(kind, ask, step), last_seq=now.last_seq)
    receipts.at_gate(run, ask, now.seen)
    return step


def _sent_permits() -> Any:
    """Permits of a step under which something may have been sent."""
    return Permit.objects.filter(step_id=OuterRef("pk")).exclude(state=PermitState.NOT_SENT)


def new_step(run: Run, ask: Ask, *, cleanup: bool = False, **more: Any) -> Step:
    """Insert a step under the run's lock; `more` may claim or dispatch it at once."""
    return Step.objects.create(
        run=run,
        key=ask.step_key,
        name=ask.step_name or ask.step_key,
        op_class=ask.op_class,
        cleanup=cleanup,
        **more,
    )


def _of_step(kind: str, ask: Ask, step: Step) -> Line:
    return Line(
        kind,
        ask.actor.id,
        step_id=step.pk,
        worker=ask.worker,
        carried_version=ask.seen_version,
        boundary=Boundary.CLAIM,
    )


def _claim(step: Step, ask: Ask, token: str) -> None:
    rows = Step.objects.filter(pk=step.pk)
    Step.claim(rows, ask.worker, token, ask.seen_version, after(ask.lease_s), ask.lease)


def _token() -> str:
    return secrets.token_hex(16)


# dispatch, model, act, deliver ---------------------------------------------------------------


@verb
def dispatch(ask: Ask, intent: Intent | None = None) -> Opened | Known | Refusal:
    """Ask to send: the permit is committed before the answer, or nothing may be sent.

    Same for model turns, browser actions and deliveries (`ask.boundary`). Returns Opened (look
    once more, then send), Known (skip, or wait, or Waiting: people decide first), or the recorded Refusal.
    """
    intent = intent or NoIntent()
    run = lock_run(ask.run_id)
    now = view(run, ask, intent.annotations(ask))
    known = intent.known(run, now.seen)
    if known is not None:
        return known
    guard = why_not_deliver if ask.queued else why_not
    reason = guard(run, ask.seen_version, now.scopes_open)
    name, reason = cleanup_guard.admit(run, ask, now.step, reason, sends=True)
    reason = reason or why_not_step(now.step) or intent.undecided(run, now.seen)
    if reason == PEOPLE_FIRST:
        if name == ORDINARY:
            return _wait(run, ask, now, intent)
        reason = STOPPED  # a drain waits for nobody's decision
    step = None if reason else _step_to_send(run, ask, now.step)
    if step is None:
        return refuse(run, ask, reason or _not_free(run, now.step), ask.boundary, now.step)
    permit = permits.open_one(run, ask, step, _named(run, name))
    subject, lines = intent.opened(run, permit, now.seen)
    record(run, *lines, permits.opened_line(permit, ask), last_seq=now.last_seq)
    receipts.at_gate(run, ask, now.seen)
    watched(run, ask, now)
    return Opened(permit, step, subject)


def model(ask: Ask, intent: Intent | None = None) -> Opened | Known | Refusal:
    """A model turn may begin."""
    return dispatch(_at(ask, Boundary.MODEL), intent)


def act(ask: Ask, intent: Intent | None = None) -> Opened | Known | Refusal:
    """A browser action may begin."""
    return dispatch(_at(ask, Boundary.ACT), intent)


def deliver(ask: Ask, intent: Intent | None = None) -> Opened | Known | Refusal:
    """A message may be handed over."""
    return dispatch(_at(ask, Boundary.DELIVER), intent)


def _at(ask: Ask, boundary: str) -> Ask:
    return replace(ask, boundary=boundary)


BOUNDARY_OF: dict[str, str] = {
    OperationClass.MODEL_TURN: Boundary.MODEL,
    OperationClass.BROWSER_ACTION: Boundary.ACT,
    OperationClass.DELIVERY: Boundary.DELIVER,
}


def boundary_of(op_class: str) -> str:
    """The boundary that an operation of this class crosses."""
    return BOUNDARY_OF.get(op_class, Boundary.DISPATCH)


def _not_free(run: Run, step: Step | None) -> str:
    """Why a step can't be had. In a run that goes on, people withhold one by saying no."""
    if step is not None and step.status == StepStatus.RETRY_WAIT:
        return NOT_DUE
    if step is None or step.status != StepStatus.WITHHELD or step.op_class == OperationClass.DELIVERY:
        return LOST  # of a message, each attempt has a step of its own
    return STOPPED if run.status != RunStatus.ACTIVE else NOT_APPROVED


# people first ---------------------------------------------------------------------------------


def _wait(run: Run, ask: Ask, now: View, intent: Intent) -> Waiting | Refusal:
    """The intent is kept, and its step waits for people; or it is not the caller's to keep."""
    step, moved = _step_to_hold(run, ask, now.step)
    if step is None:
        return refuse(run, ask, _not_free(run, now.step), ask.boundary, now.step)
    subject, review, lines = intent.held(run, step, now.seen)
    if moved:
        lines = [*lines, _of_step("step.waiting_approval", ask, step)]
    record(run, *lines, last_seq=now.last_seq)
    return Waiting("waiting", subject, Step.objects.get(pk=step.pk), review)


def _step_to_hold(run: Run, ask: Ask, step: Step | None) -> tuple[Step | None, bool]:
    """The step, WAITING_APPROVAL, and whether it came there now; one with a call under way stays."""
    if step is None:
        waiting = StepStatus.WAITING_APPROVAL
        return new_step(run, ask, status=waiting, ends_with_effect=bool(ask.effect_key)), True
    if step.status == StepStatus.WAITING_APPROVAL:
        return step, False
    _try_again(ask, step)
    rows = Step.objects.filter(~Exists(_calls()), pk=step.pk)
    if step.status == StepStatus.PENDING and not ask.step_id:
        return step, bool(Step.wait_for_approval(rows))
    mine = Q(claim_token=ask.claim_token, lease_until__gt=Now())
    if not ask.claim_token or not Step.objects.filter(mine, pk=step.pk).exists():
        return None, False
    return step, bool(Step.wait_for_approval(rows.filter(mine)))


def _calls() -> Any:
    """Permits of a step whose call may be under way, or of which nobody can say what it did: a step that
    waits for people may end WITHHELD, and nothing of such a step may have happened.
    """
    in_doubt = Q(state__in=[PermitState.OPEN, PermitState.LOST]) | Q(outcome="unknown")
    return Permit.objects.filter(in_doubt, step_id=OuterRef("pk"))


def is_held(ask: Ask) -> bool:
    """Whether the claim that is shown is the one that holds the step, with its lease running."""
    mine = Step.objects.filter(pk=ask.step_id, claim_token=ask.claim_token, lease_until__gt=Now())
    return bool(ask.claim_token) and mine.filter(status__in=BUSY).exists()


def _step_to_send(run: Run, ask: Ask, step: Step | None) -> Step | None:
    """The step, DISPATCHED under the caller's token; None when the claim is not the caller's."""
    lease: Combinable = after(ask.lease_s)
    if step is None:
        return _register_dispatched(run, ask, lease)
    _try_again(ask, step)
    if not ask.step_id and step.status == StepStatus.PENDING:
        token = _token()
        _claim(step, ask, token)
        Step.dispatch(Step.objects.filter(pk=step.pk, claim_token=token), lease, ask.lease)
        step.claim_token, step.attempt = token, step.attempt + 1
        return step
    mine = Step.objects.filter(pk=step.pk, claim_token=ask.claim_token, lease_until__gt=Now())
    if not ask.claim_token:
        return None
    if step.status == StepStatus.DISPATCHED:  # a later permit leaves it there
        return step if mine.filter(status=step.status).update(lease_until=lease, lease=ask.lease) else None
    return step if Step.dispatch(mine, lease, ask.lease) else None


def _try_again(ask: Ask, step: Step) -> None:
    """Its only effect did not happen (the intent said so): a new attempt under the same key."""
    if ask.step_id or step.status != StepStatus.FAILED or not step.ends_with_effect:
        return
    tried = Permit.objects.filter(step_id=OuterRef("pk"), effect_key=ask.effect_key or None)
    rows = Step.objects.filter(Exists(tried), pk=step.pk, happened=False)
    if Step.wait_for_retry(rows, Now()) and Step.fall_due(rows):
        step.status = StepStatus.PENDING


def _register_dispatched(run: Run, ask: Ask, lease: Combinable) -> Step:
    return new_step(
        run,
        ask,
        status=StepStatus.DISPATCHED,
        worker=ask.worker,
        claim_token=_token(),
        claim_version=ask.seen_version,
        lease_until=lease,
        lease=ask.lease,
        attempt=1,
        dispatched_at=Now(),
        ends_with_effect=bool(ask.effect_key),
    )


def _named(run: Run, name: str) -> str:
    """The guard that stands on the permit."""
    return name if name != ORDINARY or run.status == RunStatus.ACTIVE else DELIVER


# the second look ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Look:
    """The answer of a second look. Only `open` means send.

    `scope`: what shut it, where that holds this step (step) or effects of its kind (policy), and not the run.
    """

    permit_id: str
    answer: str
    run_status: str
    current_version: int
    looked_at: Any
    permit_until: Any
    scope: str = ""

    @property
    def run_goes_on(self) -> bool:
        """Whether other work of its run may begin."""
        return bool(self.scope)


def look(permit_id: str, token: str) -> Look:
    """A fresh read, directly before the send, in a statement of its own (never in a transaction).

    open · shut (the gate shut since) · expired (its time to begin is over) · ended (not OPEN).
    Raises NotFound for a foreign permit or token.
    """
    row = (
        Permit.objects.filter(pk=permit_id, token=token)
        .annotate(
            looked_at=Now(),
            gate=ExpressionWrapper(_gates_of_permit(), BooleanField()),
            status=F("run__status"),
            version=F("run__cancel_version"),
            policies=F("run__policy_epochs"),
            stopped=F("step__stopped_at"),
            a_policy_shut=policies.any_shut(OuterRef("run__workspace_id")),
        )
        .first()
    )
    if row is None or not token:
        raise NotFound("permit")
    seen: Any = row
    answer, scope = "open", ""
    held = _policy_above(row) if seen.gate and seen.a_policy_shut else None
    if row.state != PermitState.OPEN:
        answer = "ended"
    elif not seen.gate or not _scopes_let(row, seen.policies):
        answer = "shut"
    elif held is not None:
        answer, scope = "shut", ScopeKind.POLICY if held.reach == Reach.EFFECTS else ""
    elif seen.stopped is not None:
        answer, scope = "shut", ScopeKind.STEP
    elif row.permit_until <= seen.looked_at:
        answer = "expired"
    return Look(row.pk, answer, seen.status, seen.version, seen.looked_at, row.permit_until, scope)


def _gates_of_permit() -> Q:
    others = cleanup_guard.gate_of_permit() | compensating.gate_of_permit() | forwarding.gate_of_permit()
    return gate_of_permit() | others


def _scopes_let(permit: Permit, epochs: dict[str, int]) -> bool:
    """The guards of a stop go on under any scope, a compensation while nobody halted it, others while all
    are open.
    """
    if permit.guard == COMPENSATE:
        return not compensating.is_halted(permit)
    return permit.guard in (cleanup_guard.CLEANUP, FORWARD) or policies_open(epochs)


def _policy_above(permit: Permit) -> Policy | None:
    """The shut policy that withholds what this permit is for; the guards of a stop go on under any scope."""
    if permit.guard in (cleanup_guard.CLEANUP, COMPENSATE, FORWARD):
        return None
    return policies.withholding(permit.run, permit.kind, permit.op_class)
