"""What became of an effect: the holder's report, and what it means for step and run.

Moves of one locked run. A settlement stands on a ground; unknown leaves only with evidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from runs import receipts, redaction, turns, wake
from runs.access import EXECUTOR, Actor, NotFound, demand
from runs.cleanup import CLEANUP
from runs.evidence import Line, record
from runs.forwarding import FORWARD
from runs.guard import DELIVER, lock_run
from runs.halts import COMPENSATE
from runs.models import FINAL, Permit, PermitState, Run, RunStatus, Step, StepStatus
from runs.rules import redacting
from runs.steps import withheld_line
from runs.store import Now, after, verb

from . import close, contradictions, delivery_moves, jobs, repair_moves, retries, reviews
from .models import Effect, Ground, Settlement

FIRST_CHECK_S = 2.0
OF_THE_STOP = (CLEANUP, FORWARD, COMPENSATE)  # guards of what a stop itself leads to
OUTCOMES = ("applied", "partial", "not_applied", "unknown", "not_sent")


class AlreadyReported(ValueError):
    """This permit was reported otherwise before. The first report stands; nothing was changed."""


class LostClaim(ValueError):
    """The claim token is not the one this was given under. Nothing was changed."""


class NothingDispatched(ValueError):
    """This step crossed no boundary: ask for a permit before the work, or release the claim."""


class Unsettled(ValueError):
    """A permit of this step is still open: report it first, then finish the step."""


@dataclass(frozen=True)
class Told:
    """What a permit's holder says of its call. `outcome` is one of OUTCOMES.

    Of a model turn also: its spend, and the output that it had made when it was cut off.
    """

    outcome: str
    result: Any = None
    provider_ref: str = ""
    items: Any = None
    detail: str = ""
    usage: Mapping[str, Any] = field(default_factory=dict)
    spend: turns.Spend | None = None
    partial_output: str | None = None
    reported_at: datetime | None = None

    @property
    def payload(self) -> dict[str, Any]:
        told = {
            "outcome": self.outcome,
            "result": self.result,
            "provider_ref": self.provider_ref,
            "items": self.items,
            "detail": self.detail,
            "usage": dict(self.usage),
        }
        return {name: value for name, value in told.items() if value not in (None, "", {}, [])}


def without_secrets(told: Told, workspace_id: str) -> Told:
    """As it is kept, before anything of it is cut: half a secret looks like none."""
    texts = ("result", "provider_ref", "items", "detail", "partial_output")
    with redacting(workspace_id):
        clean = {name: redaction.redact(getattr(told, name)) for name in texts}
        return replace(told, usage=redaction.redact(dict(told.usage)), **clean)


@dataclass(frozen=True)
class Reported:
    """The permit and effect after a report; `late`: it came after the lease or after the run."""

    permit: Permit
    effect: Effect | None
    late: bool


@verb
def report(*, actor: Actor, permit_id: str, token: str, told: Told) -> Reported:
    """A holder says what became of its call. The same report again changes nothing.

    Raises NotFound, LostClaim (foreign token), AlreadyReported (another outcome before), NoTurn.
    """
    found = Permit.objects.filter(pk=permit_id).values_list("run_id", "token").first()
    if found is None:
        raise NotFound("permit")
    run = lock_run(found[0])
    demand(actor, "write", run)
    if not token or found[1] != token:
        raise LostClaim(permit_id)
    told = without_secrets(told, run.workspace_id)
    permit: Permit = Permit.objects.get(pk=permit_id)
    turns.check(permit, told.spend, told.partial_output)
    effect = _effect_of(permit)
    after_end = run.status in FINAL and permit.guard not in (DELIVER, FORWARD, COMPENSATE)
    late = permit.state == PermitState.LOST or after_end
    if permit.state not in (PermitState.OPEN, PermitState.LOST):
        if permit.outcome == told.outcome:
            return Reported(permit, effect, late or _told_more(run, permit, told, actor))
        if permit.outcome != "unknown":
            raise AlreadyReported(permit.outcome)
    _take(run, permit, effect, told, late, actor)
    return Reported(permit, effect, late)


def _told_more(run: Run, permit: Permit, told: Told, actor: Actor) -> bool:
    """The same report again, and with it what its model turn spent or left: that came late."""
    if not turns.is_news(permit, told.spend, told.partial_output):
        return False
    left = turns.keep(run, permit, told.spend, told.partial_output)
    record(run, _line("permit.reported_late", actor.id, permit, left, told.reported_at))
    close.tell(run)
    return True


def _effect_of(permit: Permit) -> Effect | None:
    """The effect under whose key the permit was given; another attempt may hold it by now."""
    if permit.guard == COMPENSATE or delivery_moves.of_permit(permit) is not None:
        return None
    named = Q(permit=permit)
    if permit.effect_key:
        named |= Q(run_id=permit.run_id, key=permit.effect_key)
    found: Effect | None = Effect.objects.filter(named).first()
    return found


def _take(run: Run, permit: Permit, effect: Effect | None, told: Told, late: bool, actor: Actor) -> None:
    late = late or permit.outcome == "unknown"
    if permit.state == PermitState.REPORTED:  # "unknown" before, now its holder knows
        Permit.objects.filter(pk=permit.pk).update(outcome=told.outcome)
    elif told.outcome == "not_sent":
        Permit.not_sent(permit)
    else:
        Permit.report(permit, told.outcome)
    kind = "permit.not_sent" if told.outcome == "not_sent" else "permit.reported"
    payload = told.payload | turns.keep(run, permit, told.spend, told.partial_output)
    lines = [_line(f"{kind}_late" if late else kind, actor.id, permit, payload, told.reported_at)]
    was = effect.settlement if effect else ""
    lines += _settled(run, permit, effect, told, late, actor)
    mark_late(run, permit.step_id)
    record(run, *lines)
    if effect is not None:
        _follow_up(run, permit, effect, was)
    receipts.hear_report(run, permit.worker)
    close.advance(run, actor.id)


def _settled(
    run: Run, permit: Permit, effect: Effect | None, told: Told, late: bool, actor: Actor
) -> list[Line]:
    """What a permit was for moves by its holder's word: message, compensation or effect; and its step."""
    delivery, compensation = delivery_moves.of_permit(permit), repair_moves.of_permit(permit)
    if delivery is not None:
        return delivery_moves.settle(run, delivery, permit, told, late, actor)
    if compensation is not None:
        return repair_moves.by_report(run, compensation, permit, told, late, actor)
    lines = settle_by_report(effect, permit, told, actor, late) if effect is not None else []
    return [*lines, *settle_step(run, permit.step, actor.id)]


def _follow_up(run: Run, permit: Permit, effect: Effect, was: str) -> None:
    """What a report leads to beyond its settlement."""
    contradictions.follow(run, was, effect)
    if effect.settlement == Settlement.NOT_APPLIED:
        retries.plan(run, permit.step)
    if effect.on_stop:
        _ask_now(effect)


def _ask_now(effect: Effect) -> None:
    """A stop asks its provider to cancel it, once this call of it is over."""
    rows = Effect.objects.filter(asks_about=effect, settlement=Settlement.DECLARED)
    for pk in rows.values_list("pk", flat=True):
        transaction.on_commit(partial(wake.run_soon, "effects.tasks.forward", pk), robust=True)


def _line(
    kind: str,
    actor: str,
    permit: Permit,
    payload: Mapping[str, Any],
    reported_at: datetime | None = None,
) -> Line:
    return Line(
        kind,
        actor,
        payload,
        boundary=permit.boundary,
        carried_version=permit.seen_version,
        ground=Ground.REPORTED,
        step_id=permit.step_id,
        permit_id=permit.pk,
        effect_key=permit.effect_key,
        worker=permit.worker,
        reported_at=reported_at,
    )


def settle_by_report(effect: Effect, permit: Permit, told: Told, actor: Actor, late: bool) -> list[Line]:
    """Move an effect by a holder's word; a settled one keeps its settlement (evidence only).

    An earlier attempt that happened after all counts for the effect; that one did not says nothing
    of the attempt that followed.
    """
    was, move = effect.settlement, HAPPENED.get(told.outcome)
    if move is None and effect.permit_id != permit.pk:
        return []
    if was not in OPEN_ONES:
        return _against(effect, MEANS.get(told.outcome, ""), actor)
    facts = {"result": told.result, "provider_ref": told.provider_ref, "items": told.items, "late": late}
    if move is not None:
        move(effect, Ground.REPORTED, **facts)
    elif not _did_not_happen(effect, permit, told, actor, facts):
        return []
    happened(effect)
    return [line_of(effect, actor.id, {"was": was}, Ground.REPORTED)]


HAPPENED = {"applied": Effect.confirm, "partial": Effect.confirm_partly}
MEANS = {
    "applied": "happened",
    "partial": "partly",
    "not_applied": "did not happen",
    "not_sent": "did not happen",
}
OPEN_ONES = (Settlement.DISPATCHED, Settlement.UNKNOWN, Settlement.ACCEPTED_UNKNOWN)


def _against(effect: Effect, means: str, actor: Actor) -> list[Line]:
    """A late report of a settled effect: it may speak against that, or bear a person's decision out.

    What an earlier attempt was reported to have done stays, whatever the next one came to.
    """
    was = effect.settlement
    if contradictions.bears_out(was, effect.ground, means, Ground.REPORTED):
        return bear_out(effect, Ground.REPORTED, actor.id)
    by_attempt = effect.ground == Ground.REPORTED and was not in contradictions.NEVER
    if by_attempt or not contradictions.disagrees(was, effect.ground, means, Ground.REPORTED):
        return []
    contradict(effect, f"it was {was.lower().replace('_', ' ')}; a late report says: {means}")
    return [line_of(effect, actor.id, {"was": was, "why": effect.why_unknown}, Ground.REPORTED)]


def _did_not_happen(
    effect: Effect, permit: Permit, told: Told, actor: Actor, facts: Mapping[str, Any]
) -> bool:
    """not_applied · not_sent · unknown, of the newest attempt; False when it moves nothing."""
    in_progress = effect.settlement == Settlement.DISPATCHED
    if told.outcome == "not_sent" and in_progress and not _sent_before(effect, permit):
        Effect.take_back(effect, Now() if actor is EXECUTOR else None)
    elif told.outcome != "unknown":
        Effect.deny(effect, Ground.REPORTED, **facts)
    elif in_progress:
        lose(effect, told.detail or "the worker could not say")
    else:
        return False
    return True


def _sent_before(effect: Effect, permit: Permit) -> bool:
    """An earlier attempt was sent, or may have been: DECLARED would lead to "never started"."""
    others = Permit.objects.filter(run_id=effect.run_id, effect_key=effect.key).exclude(pk=permit.pk)
    return others.exclude(state=PermitState.NOT_SENT).exists()


def lose(effect: Effect, why: str, *, ask: bool = True) -> None:
    """DISPATCHED → UNKNOWN, with the schedule of its look-ups where its kind has one.

    `ask`: False when we stop acting (abandon): only evidence that arrives by itself settles it.
    """
    Effect.lose(effect, why[:200], *(_schedule(effect) if ask else (None, None)))


def contradict(effect: Effect, why: str) -> None:
    """Settled → UNKNOWN: pieces of evidence disagree. The provider is asked again where it can be."""
    ended = Run.objects.filter(pk=effect.run_id, status__in=FINAL).exists()
    Effect.contradict(effect, why[:200], *_schedule(effect), late=ended)


def bear_out(effect: Effect, ground: str, actor: str, **facts: Any) -> list[Line]:
    """What a person decided stands on a stronger ground from now on; the line is that of its settlement."""
    told = {"was": effect.settlement, "stood_on": effect.ground}
    rows = Effect.objects.filter(pk=effect.pk, settlement=effect.settlement)
    rows.update(ground=ground, **facts)
    effect.refresh_from_db(fields=["ground", *facts])
    return [line_of(effect, actor, told, ground)]


def _schedule(effect: Effect) -> tuple[Any, Any]:
    """When to look up first, and until when; None twice where the kind has no look-up, or nobody asks
    any more because the run was abandoned."""
    kind = effect.kind
    if kind is None or not kind.lookup or effect.asks_about_id or is_abandoned(effect):
        return None, None
    return after(FIRST_CHECK_S), after(kind.check_for_s)


def is_abandoned(effect: Effect) -> bool:
    """Whether its run was abandoned: only evidence that arrives by itself settles it then."""
    return Run.objects.filter(pk=effect.run_id, status=RunStatus.ABANDONED).exists()


def happened(effect: Effect) -> None:
    """A step keeps that an effect of it took place: it can't become WITHHELD any more."""
    if effect.settlement in (Settlement.CONFIRMED, Settlement.PARTIAL):
        Step.objects.filter(pk=effect.step_id).update(happened=True)
    jobs.begin(effect)


def line_of(effect: Effect, actor: str, payload: Mapping[str, Any], ground: str) -> Line:
    """`effect.confirmed`, `effect.unknown`, … as the effect stands now."""
    return Line(
        f"effect.{effect.settlement.lower()}",
        actor,
        payload,
        ground=ground,
        step_id=effect.step_id,
        permit_id=effect.permit_id or "",
        effect_key=effect.key,
    )


# steps ------------------------------------------------------------------------------------------


def settle_step(run: Run, step: Step, actor: str) -> list[Line]:
    """A step that ends with its effect, or was UNKNOWN, follows its effects."""
    step = Step.objects.get(pk=step.pk)
    if step.status == StepStatus.UNKNOWN:
        return _resolve_unknown(run, step, actor)
    if step.status != StepStatus.DISPATCHED or not step.ends_with_effect:
        return []
    if step.permits.filter(state=PermitState.OPEN).exists():  # its holder is still at work
        return []
    return _end_with(run, step, _together(step), actor)


def _together(step: Step) -> str:
    """The settlement of a step's effect; of several, when its holder gave it more, the least certain."""
    found = set(Effect.objects.filter(step=step).values_list("settlement", flat=True))
    if len(found) < 2:
        return found.pop() if found else Settlement.DISPATCHED
    doubtful = found & {Settlement.DISPATCHED, Settlement.UNKNOWN, Settlement.ACCEPTED_UNKNOWN}
    if doubtful:
        return Settlement.UNKNOWN
    return (
        Settlement.PARTIAL if found & {Settlement.CONFIRMED, Settlement.PARTIAL} else Settlement.NOT_APPLIED
    )


def _end_with(run: Run, step: Step, settlement: str, actor: str) -> list[Line]:
    sent = step.permits.exclude(state=PermitState.NOT_SENT)
    if settlement == Settlement.DECLARED and not sent.exists():
        return give_back(run, step, actor)
    move = {
        Settlement.CONFIRMED: Step.succeed,
        Settlement.PARTIAL: Step.finish_partly,
        Settlement.NOT_APPLIED: Step.fail,
        Settlement.DECLARED: Step.fail,
        Settlement.UNKNOWN: Step.lose,
    }.get(Settlement(settlement))
    if move is None:
        return []
    move(step)
    return [step_line(step, actor), *reviews.step_ended(run, step, actor)]


def give_back(run: Run, step: Step, actor: str) -> list[Line]:
    """Nothing was sent: PENDING while run and step may go on, otherwise withheld."""
    if step.stopped_at is None and run.status in (RunStatus.ACTIVE, RunStatus.PAUSING, RunStatus.PAUSED):
        Step.release(step)
        return [step_line(step, actor)]
    line = withheld_line(actor, step, "", run.cancel_version)
    (Step.finish_partly if step.happened else Step.withhold)(step)
    return [line, *_never_asked(run, step, actor)]


def _never_asked(run: Run, step: Step, actor: str) -> list[Line]:
    """A request to cancel of a run that has ended is not sent any more; of others, their rest says so."""
    rows = Effect.objects.filter(step=step, asks_about__isnull=False, settlement=Settlement.DECLARED)
    keys = list(rows.values_list("key", flat=True)) if run.status in FINAL else []
    if keys:
        Effect.never_start(rows)
    return [Line("effect.not_started", actor, step_id=step.pk, effect_key=key) for key in keys]


def _resolve_unknown(run: Run, step: Step, actor: str) -> list[Line]:
    """The last open effect of an UNKNOWN step settled: it is known now how the step ended."""
    mine = Effect.objects.filter(step=step)
    if mine.filter(settlement__in=[Settlement.DISPATCHED, Settlement.UNKNOWN]).exists():
        return []
    if step.permits.filter(state=PermitState.LOST, effect_key="").exists():
        return []
    settlements = set(mine.values_list("settlement", flat=True))
    if step.ends_with_effect and settlements == {Settlement.CONFIRMED}:
        Step.succeed(step)
    elif settlements & {Settlement.CONFIRMED, Settlement.PARTIAL}:
        Step.finish_partly(step)
    else:
        Step.fail(step)
    return [step_line(step, actor), *reviews.step_ended(run, step, actor)]


def step_line(step: Step, actor: str) -> Line:
    """`step.succeeded`, `step.unknown`, … as the step stands now."""
    return Line(f"step.{step.status.lower()}", actor, step_id=step.pk, worker=step.worker)


def mark_late(run: Run, step_id: str) -> None:
    """A result that arrives during or after a stop, of its run or of its step, wears "reported after the
    stop"; cleanup is none, nor is what forwards the stop, nor a compensation."""
    rows = Step.objects.filter(pk=step_id)
    if run.status in (RunStatus.ACTIVE, RunStatus.COMPLETED, RunStatus.FAILED):
        rows = rows.filter(stopped_at__isnull=False)
    its_own = Exists(Permit.objects.filter(step_id=OuterRef("pk"), guard__in=OF_THE_STOP))
    rows.filter(~its_own).update(reported_after_stop=True)


@verb
def finish_step(*, actor: Actor, step_id: str, token: str, result: str, detail: str = "") -> Step:
    """The worker ends its step: succeeded · partial · failed · unknown.

    An UNKNOWN or in-progress effect makes it UNKNOWN whatever the worker says. Never completes
    the run. Raises NotFound, LostClaim, NothingDispatched, Unsettled.
    """
    run_id = Step.objects.filter(pk=step_id).values_list("run_id", flat=True).first()
    if run_id is None:
        raise NotFound("step")
    run = lock_run(run_id)
    demand(actor, "write", run)
    step: Step = Step.objects.get(pk=step_id)
    if not token or step.claim_token != token:
        raise LostClaim(step_id)
    if step.status == StepStatus.CLAIMED:
        raise NothingDispatched(step_id)
    if step.status != StepStatus.DISPATCHED:
        return step
    if step.permits.filter(state=PermitState.OPEN).exists():
        raise Unsettled(step_id)
    _finish(step, result, detail)
    mark_late(run, step.pk)
    record(run, step_line(step, actor.id), *reviews.step_ended(run, step, actor.id))
    if step.status == StepStatus.FAILED:
        retries.plan(run, step)
    receipts.hear_report(run, step.worker)
    close.advance(run, actor.id)
    return Step.objects.get(pk=step_id)


def _finish(step: Step, result: str, detail: str) -> None:
    doubtful = (
        step.permits.filter(state=PermitState.LOST, effect_key="").exists()
        or Effect.objects.filter(step=step, settlement=Settlement.UNKNOWN).exists()
    )
    if result == "succeeded" and turns.is_cut_off(step):
        result = "partial"
    moves = {"succeeded": Step.succeed, "partial": Step.finish_partly, "failed": Step.fail}
    move = Step.lose if doubtful else moves.get(result, Step.lose)
    move(step, detail)
