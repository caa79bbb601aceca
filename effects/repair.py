"""A compensation is carried out: gate → second look → send → report, and verified by its own look-up.

The rows are the queue: one that is approved and that nobody took is handed out again. It is sent once for an
approval; what the call came to is never guessed, and nothing is sent again by itself.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from django.db import Error as DatabaseFailure
from django.db import close_old_connections, connection
from django.db.models import Exists, F, OuterRef, Q, Window
from django.db.models.functions import RowNumber

from runs import gate
from runs.access import EXECUTOR, SYSTEM, Actor
from runs.compensating import AT_REST
from runs.evidence import Line, record
from runs.guard import NOT_SURE, Ask, Known, Opened, Refusal, lock_run
from runs.halts import Kinds, any_over, in_force
from runs.models import Halt, Permit, PermitState, Run, RunStatus
from runs.store import Now, after, database_time, one_transaction, verb

from . import close, compensation_moves, executor, proposals, providers, reconcile, repair_moves, reviews
from .compensation import IN_DOUBT
from .models import Compensation, CompensationState, Effect, Ground
from .providers import workspace
from .reconcile import CANT_TELL, Answer, Asked
from .repair_moves import KNOWN, settle, settled_line
from .settle import Told

log = logging.getLogger(__name__)

AGAIN_S = 5  # how long a message to our executor may take before it counts as lost
REFUSED_S = 30  # one that was refused and is approved still asks again after this
LOOKED_AT = 5  # times as many as are handed out: halts of policies are told apart one by one


# the gate -----------------------------------------------------------------------------------------


class Sending:
    """What the gate does for a compensation in its own transaction."""

    def __init__(self, compensation: Compensation) -> None:
        self.pk = compensation.pk
        self.kinds: Kinds = kinds_of(compensation)

    def _fresh(self) -> Compensation:
        row: Compensation = Compensation.objects.select_related("effect", "kind", "run").get(pk=self.pk)
        return row

    def known(self, run: Run) -> Known | None:
        """One that is not approved is not to be sent; it says itself why."""
        compensation = self._fresh()
        if compensation.state == CompensationState.APPROVED:
            return None
        return Known("must_wait" if compensation.state in IN_DOUBT else "settled", compensation)

    def decide(self, run: Run, reason: str | None) -> tuple[str | None, list[Line]]:
        """What the guard said, else what effect, rules and people say; what stands on nothing is void."""
        compensation = self._fresh()
        gone = repair_moves.what_is_gone(run, compensation)
        if gone:
            return reason or NOT_SURE, reviews.void_compensation(run, compensation, gone)
        if reason is not None:
            return reason, []
        why, lines = proposals.withheld(run, compensation)
        return why or None, lines

    def opened(self, run: Run, permit: Permit) -> tuple[Compensation, list[Line]]:
        """Its approvals are used up by this permit: all of it is committed, or nothing."""
        compensation = self._fresh()
        used = reviews.use_for(run, compensation, permit)
        Compensation.dispatch(compensation, permit)
        told = {"attempt": permit.attempt, "body_digest": compensation.body_digest}
        sent = compensation_moves.line_of(
            compensation, "compensation.dispatched", EXECUTOR.id, told, permit_id=permit.pk
        )
        return self._fresh(), [*used, sent]


def dispatch(ask: Ask, compensation: Compensation) -> Opened | Known | Refusal:
    """Ask the gate. An approval that ended between its look and its use is asked about once more, and then
    stands in the refusal.
    """
    try:
        return gate.compensate(ask, Sending(compensation))
    except reviews.NotConsumed:  # nothing was kept
        return gate.compensate(ask, Sending(compensation))


# our executor -------------------------------------------------------------------------------------


def carry_out(compensation_id: str) -> str:
    """Send one approved compensation if the gate lets it; returns what came of it, for the log.

    "nothing to do" · "refused" · an outcome of settle.OUTCOMES. Raises what the database raises; a permit
    that is open then is left to its lease.
    """
    compensation = _queued(compensation_id)
    if compensation is None:
        return "nothing to do"
    ask = _ask_for(compensation)
    began = executor.now()  # before the gate is asked: our own count ends before the database's
    answer = _permit(ask, compensation)
    if not isinstance(answer, Permit):
        wait_longer(compensation_id)
        return "refused" if isinstance(answer, Refusal) else "nothing to do"
    with executor.lease_kept(ask):
        told = _send(_sent_as(answer), answer, began)
        executor.report(answer, told)
    return told.outcome


def _queued(compensation_id: str) -> Compensation | None:
    """The compensation, while it is approved; without a lock, so only a hint."""
    rows = Compensation.objects.select_related("effect").filter(pk=compensation_id)
    found: Compensation | None = rows.filter(state=CompensationState.APPROVED).first()
    return found


def _ask_for(compensation: Compensation) -> Ask:
    """Each attempt has a step of its own, and a token that is known before the answer is."""
    tried = f":{compensation.attempt + 1}" if compensation.attempt else ""
    return Ask(
        compensation.run_id,
        EXECUTOR,
        executor.worker_name(),
        compensation.run_version,
        boundary=gate.boundary_of(compensation.op_class),
        op_class=compensation.op_class,
        kind=compensation.kind_name,
        claim_token=secrets.token_hex(16),
        step_key=f"compensate:{compensation.pk}{tried}",
        step_name=compensation.title,
        effect_key=compensation.key,
        lease_s=executor.LEASE_S,
    )


def _permit(ask: Ask, compensation: Compensation) -> Permit | Known | Refusal | None:
    """The gate's permit, or its answer. Only a permit that is known to be committed is one."""
    try:
        answer = dispatch(ask, compensation)
    except DatabaseFailure:
        return _committed(ask)
    return answer.permit if isinstance(answer, Opened) else answer


def _committed(ask: Ask) -> Permit | None:
    """The COMMIT may have come through and only its answer was lost: ask by our own token, behind whatever
    the lost wire still holds."""
    connection.close()
    with one_transaction():
        lock_run(ask.run_id)
        mine = Permit.objects.filter(run=ask.run_id, token=ask.claim_token, state=PermitState.OPEN)
        found: Permit | None = mine.first()
    return found


def _sent_as(permit: Permit) -> Compensation:
    """As it was dispatched, with its attempt; its kind may have changed since: `_look_again` compares it."""
    rows = Compensation.objects.select_related("effect__run", "kind", "run")
    found: Compensation = rows.get(permit=permit)
    return found


def _send(compensation: Compensation, permit: Permit, began: float) -> Told:
    ready = partial(_look_again, compensation, permit, began)
    try:
        if compensation.kind is None:
            return workspace.put_back(compensation.effect, ready)
        return providers.compensate(compensation, compensation.kind, ready)
    except executor.NotOpen as shut:
        return Told("not_sent", detail=f"the second look said: {shut}")
    except providers.NoSender:
        return Told("not_sent", detail="effects of its kind are sent by their agent")


def _look_again(compensation: Compensation, permit: Permit, began: float) -> None:
    """The last question: whether what it answers stands still, whether an earlier one happened after all,
    whether what was read after the gate is what people approved, and then what the executor always asks.
    """
    try:
        stands = Effect.objects.filter(pk=compensation.effect_id, settlement__in=KNOWN).exists()
        as_approved = reviews.is_as_approved(compensation, permit)
        earlier = repair_moves.earlier_did(compensation)
    except DatabaseFailure as error:
        raise executor.NotOpen("nothing") from error
    if not stands:
        raise executor.NotOpen("what it answers is in doubt")
    if earlier:
        raise executor.NotOpen(earlier)
    if not as_approved:
        raise executor.NotOpen("it is not what was approved")
    executor.look_again(permit, began)


# what waits for it --------------------------------------------------------------------------------


def waiting(limit: int = 200) -> list[str]:
    """Approved ones that were queued for longer than a message takes; each is handed out once per AGAIN_S.

    One that is under a halt keeps its place and takes no other's: the gate would refuse it.
    """
    rows = _queue().filter(~_halted(), run__status__in=AT_REST).select_related("run", "effect")
    found = list(rows.defer("body", "effect__body").order_by("queued_at")[: limit * LOOKED_AT])
    halted = _under_policies(found)
    Compensation.objects.filter(pk__in=halted).update(queued_at=after(REFUSED_S))
    ids = [one.pk for one in found if one.pk not in halted][:limit]
    return [one for one in ids if _queue().filter(pk=one).update(queued_at=Now())]


def _queue() -> Any:
    return Compensation.objects.filter(state=CompensationState.APPROVED, queued_at__lte=after(-AGAIN_S))


def _halted() -> Q:
    """By the halt of its workspace or of its session."""
    mine = Halt.objects.filter(lifted_at__isnull=True, workspace=OuterRef("run__workspace"))
    whole = mine.filter(policy__isnull=True, session__isnull=True)
    return Q(Exists(whole)) | Q(Exists(mine.filter(session=OuterRef("run__session"))))


def _under_policies(found: Sequence[Compensation]) -> set[str]:
    """Those of them that the halt of a policy covers: two queries a workspace."""
    by_workspace: dict[str, list[Halt]] = {}
    for one in found:
        if one.run.workspace_id not in by_workspace:
            standing = in_force(one.run.workspace_id)
            by_workspace[one.run.workspace_id] = [halt for halt in standing if halt.policy_id]
    return {one.pk for one in found if any_over(by_workspace[one.run.workspace_id], one.run, kinds_of(one))}


def kinds_of(compensation: Compensation) -> Kinds:
    """Names and classes of a compensation and of the effect that it answers."""
    effect = compensation.effect
    return [(compensation.kind_name, compensation.op_class), (effect.kind_name, effect.op_class)]


def wait_longer(compensation_id: str) -> None:
    """It was refused and is approved still: under a halt, for one. It asks again later, until it expires."""
    rows = Compensation.objects.filter(pk=compensation_id, state=CompensationState.APPROVED)
    rows.update(queued_at=after(REFUSED_S))


# verified -----------------------------------------------------------------------------------------


def due(limit: int = 100) -> list[str]:
    """Ids of those whose next look-up is due: of each kind in turn, the longest due first. Those whose agent
    comes for its look-ups (polled.py) are due here when their schedule is over.
    """
    rows = Compensation.objects.filter(state__in=IN_DOUBT, next_check_at__lte=Now())
    by_us = Q(kind__isnull=True) | Q(kind__lookup__poll__isnull=True)
    rows = rows.filter(by_us | Q(check_until__lte=Now()))
    rows = rows.exclude(run__status=RunStatus.ABANDONED)  # there, only evidence that comes by itself
    turn = Window(RowNumber(), partition_by=F("kind_id"), order_by=F("next_check_at").asc())
    in_turn = rows.annotate(turn=turn).order_by("turn", "next_check_at")
    return list(in_turn.values_list("pk", flat=True)[:limit])


def take_turn(compensation_id: str) -> tuple[Compensation, Asked] | None:
    """Claim one due look-up by moving its time on, so that two workers don't ask twice."""
    rows = Compensation.objects.filter(pk=compensation_id, state__in=IN_DOUBT, next_check_at__lte=Now())
    moved = rows.update(next_check_at=after(30), turn_until=after(30))
    return read_for_look_up(compensation_id) if moved else None


def read_for_look_up(compensation_id: str) -> tuple[Compensation, Asked]:
    """The compensation, and the moment at which it is asked about."""
    rows = Compensation.objects.select_related("effect__run", "kind", "run", "permit")
    found: Any = rows.annotate(asked_at=Now()).get(pk=compensation_id)
    return found, Asked(found.asked_at, found.attempt)


def check(compensation_id: str) -> str | None:
    """Ask once, outside any transaction; returns its state afterwards, None when it is not due."""
    turn = take_turn(compensation_id)
    if turn is None:
        return None
    compensation, asked = turn
    close_old_connections()  # a slow provider must not hold one of the pool's few
    return apply_answer(compensation_id, ask_provider(compensation), asked=asked)


def ask_provider(compensation: Compensation) -> Answer:
    """What its provider holds under its own key. A look-up that fails for whatever reason is "can't tell"."""
    try:
        if compensation.kind is None:
            return workspace.is_back(compensation.effect)
        return providers.look_up(compensation)
    except Exception as error:
        log.exception("the look-up of %s failed", compensation.pk)
        return Answer(CANT_TELL, f"the look-up failed: {type(error).__name__}")


@verb
def apply_answer(
    compensation_id: str, answer: Answer, actor: Actor = SYSTEM, ground: str = "", asked: Asked | None = None
) -> str:
    """Record a look-up's answer and settle what it settles; returns the state afterwards.

    An answer counts as of the moment when it was asked for (None: just now).
    """
    run = lock_run(Compensation.objects.values_list("run_id", flat=True).get(pk=compensation_id))
    compensation = Compensation.objects.select_related("effect", "kind", "run").get(pk=compensation_id)
    return hear(run, compensation, answer, actor, ground or Ground.LOOKED_UP, asked)


def hear(
    run: Run,
    compensation: Compensation,
    answer: Answer,
    actor: Actor,
    ground: str,
    asked: Asked | None = None,
) -> str:
    """The same as a move of a locked run, of a compensation that was read under its lock."""
    answer = reconcile.without_secrets(answer, run.workspace_id)
    asked = asked or Asked(database_time(), compensation.attempt)
    meaning = reconcile.meaning_of(compensation, answer, asked)
    _count(compensation, answer)
    told = {**answer.payload, **asked.payload, "means": meaning}
    permit_id = compensation.permit_id or ""
    by_itself = ground == Ground.WEBHOOK  # evidence that nobody asked for takes no turn of the look-ups
    kind = "webhook.received" if by_itself else "compensation.looked_up"
    seen = compensation_moves.line_of(compensation, kind, actor.id, told, "", permit_id)
    reference = answer.provider_ref or compensation.provider_ref
    facts = {"items": answer.items, "provider_ref": reference[:300]}
    lines = settle(run, compensation, meaning, ground, actor, facts) if meaning != "nothing" else []
    if not lines and compensation.state in IN_DOUBT and not by_itself:
        lines = _check_again(run, compensation, actor)
    record(run, replace(seen, ground=ground), *lines)
    close.tell(run)
    return str(compensation.state)


def _count(compensation: Compensation, answer: Answer) -> None:
    """Keep the most objects that were seen under its key."""
    before = -1 if compensation.counted is None else compensation.counted
    if answer.count is not None and answer.count > before:
        compensation.counted = min(answer.count, reconcile.MOST_COUNTED)
        Compensation.objects.filter(pk=compensation.pk).update(counted=compensation.counted)


def _check_again(run: Run, compensation: Compensation, actor: Actor) -> list[Line]:
    """Plan the next look-up; after the last of one that was reported done, it is unknown."""
    rows = Compensation.objects.filter(pk=compensation.pk, state__in=IN_DOUBT)
    rows.update(checks=F("checks") + 1, turn_until=None)
    planned = rows.filter(next_check_at__isnull=False)
    if run.status == RunStatus.ABANDONED:  # it was under way when the run was given up
        planned.update(next_check_at=None)
        return []
    planned.update(next_check_at=after(_pause(compensation)))
    if not planned.filter(check_until__lt=F("next_check_at")).update(next_check_at=None):
        return []
    ended = replace(
        settled_line(compensation, actor.id, {"checks": compensation.checks + 1}, ""), kind="reconcile.ended"
    )
    if compensation.state == CompensationState.UNKNOWN:
        return [ended]
    return [ended, *repair_moves.lose(compensation, repair_moves.NOT_VERIFIED, actor.id, ask=False)]


def _pause(compensation: Compensation) -> float:
    """Until the next look-up, by the schedule of its kind."""
    every = list(compensation.kind.check_every_s) if compensation.kind else []
    every = every or list(reconcile.EVERY_S)
    return float(every[min(compensation.checks, len(every) - 1)])


__all__ = ["apply_answer", "carry_out", "check", "dispatch", "due", "hear", "settle", "waiting"]
