"""Reviews of a locked run, of effects and of compensations: asked, looked at by the gate, used, closed.

The moves that a dispatch, a stop and an end make. What people decide stands in approvals.py, and
whether an approval counts in four_eyes.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from runs import wake
from runs.access import SYSTEM, Actor
from runs.evidence import Line
from runs.models import (
    Evidence,
    Mode,
    Permit,
    Run,
    RunStatus,
    Step,
    StepStatus,
    StopRequest,
)
from runs.rules import rules_of
from runs.scopes import stop_above
from runs.store import Now, after, database_time

from . import compensation_moves
from .four_eyes import (
    Need,
    counting,
    digest_of,
    digest_of_compensation,
    evidence_of,
    given,
    is_granted,
    is_over,
    people_behind,
    stored,
)
from .models import Approval, Compensation, CompensationState, Effect, Kind, Provider, Review
from .review_tables import Closed, Subject

NO = (Closed.REJECTED, Closed.EXPIRED)
OVER = (StepStatus.SUCCEEDED, StepStatus.PARTIAL, StepStatus.WITHHELD)  # such a step begins nothing more


class NotConsumed(RuntimeError):
    """An approval ended between the gate's look and its use. Nothing was kept; ask the gate again."""


# the gate asks ------------------------------------------------------------------------------------


def newest(run_id: str, key: str) -> QuerySet[Any, Any]:
    """The newest review of an effect of a run, open or closed."""
    mine = Review.objects.filter(run_id=run_id, effect_key=key, subject=Subject.EFFECT)
    rows: QuerySet[Any, Any] = mine.order_by("-pk")
    return rows[:1]


def ask(run: Run, step: Step, effect: Effect, need: Need, asked_by: str) -> tuple[Review, list[Line]]:
    """The open review of an effect, opened if there is none; raised when more people are needed now."""
    found = Review.objects.filter(effect=effect, subject_id=effect.pk, closed_at__isnull=True).first()
    if found is not None:
        return found, [*raised(found, need.approvals), *refresh(found, run), *lapse(found, run)]
    seq = evidence_of(effect)
    proposer = _proposer(run, effect, asked_by)
    behind = people_behind([proposer])
    review = Review.objects.create(
        workspace_id=run.workspace_id,
        run=run,
        step=step,
        effect=effect,
        effect_key=effect.key,
        subject_id=effect.pk,
        digest=digest_of(effect, seq),
        evidence_seq=seq,
        needed=need.approvals,
        asked_because=need.because,
        asked_by=proposer,
        proposer_id=min(behind, default=None),
        expires_at=after(need.expires_s),
    )
    review = Review.objects.get(pk=review.pk)
    told = {"needed": review.needed, "because": review.asked_because, "digest": review.digest}
    until = {"expires_at": review.expires_at.isoformat()}
    return review, [line_of(review, "review.waiting", asked_by, {**told, **until})]


def _proposer(run: Run, effect: Effect, asked_by: str) -> str:
    """Who declared it; our own executor only carries it to the gate."""
    declared = Evidence.objects.filter(stream=run.pk, effect_key=effect.key, kind="effect.declared")
    first: str | None = declared.order_by("seq").values_list("actor", flat=True).first()
    return first or asked_by


def raised(review: Review, needed: int) -> list[Line]:
    """More people are needed than when it was asked; what they allowed is not enough any more."""
    if needed <= review.needed:
        return []
    was, review.needed, review.granted_at = review.needed, needed, None
    Review.objects.filter(pk=review.pk).update(needed=needed, granted_at=None)
    return [line_of(review, "review.raised", SYSTEM.id, {"was": was, "now": needed})]


def refresh(review: Review, run: Run) -> list[Line]:
    """Void every approval when what they were given for is not what is stored now."""
    now, seq = stored(review)
    if now == review.digest:
        return []
    why = "what was approved changed"
    lines = _end_all(review, Approval.void, why)
    told = {"was": review.digest, "now": now, "evidence_seq": seq, "voided": len(lines)}
    Review.objects.filter(pk=review.pk).update(digest=now, evidence_seq=seq, granted_at=None)
    review.digest, review.evidence_seq, review.granted_at = now, seq, None
    lines.append(line_of(review, "review.changed", SYSTEM.id, told))
    return [*lines, *_not_granted(run, review, SYSTEM.id, why)]


def _not_granted(run: Run, review: Review, actor: str, why: str) -> list[Line]:
    """A compensation is not approved any more; the step of an effect stays, and the gate asks for it."""
    if review.subject == Subject.EFFECT:
        return []
    return compensation_moves.not_granted(run, review, actor, why)


def lapse(review: Review, run: Run) -> list[Line]:
    """Void the approvals of people who may not decide any more; the others stay."""
    keep = {approval.pk for approval in counting(review, run)}
    gone = [one for one in given(review).filter(expires_at__gt=Now()) if one.pk not in keep]
    rows = Approval.objects.filter(pk__in=[one.pk for one in gone])
    why = "its giver may not decide about this any more"
    if gone:
        Approval.void(rows, why)
    lines = [_approval_line(review, "approval.voided", SYSTEM.id, one, why) for one in gone]
    if gone and len(keep) < review.needed:
        Review.objects.filter(pk=review.pk).update(granted_at=None)
        review.granted_at = None
        lines += _not_granted(run, review, SYSTEM.id, why)
    return lines


# a dispatch uses it -------------------------------------------------------------------------------


def use(run: Run, effect: Effect, permit: Permit) -> list[Line]:
    """The approvals are used up by this dispatch, in its transaction: each by a compare-and-set of its own.

    Nothing when the effect has no open review. Raises NotConsumed when one ended since the gate looked.
    """
    review = Review.objects.filter(effect=effect, subject_id=effect.pk, closed_at__isnull=True).first()
    if review is None:
        return []
    return _consume(run, review, permit)


def use_for(run: Run, compensation: Compensation, permit: Permit) -> list[Line]:
    """The same for the dispatch of a compensation; one without a review is sent by the rules alone.

    Raises NotConsumed when an approval ended since the gate looked, or people have to decide after all.
    """
    review = open_of(compensation)
    if review is not None:
        return _consume(run, review, permit)
    rule = rules_of(run.workspace_id).compensation_for(compensation.kind_name)
    effect, kind = compensation.effect, compensation.kind
    if rule is None or not compensation_moves.is_automatic(run, effect, kind, rule):
        raise NotConsumed(compensation.pk)
    return []


def is_as_approved(compensation: Compensation, permit: Permit) -> bool:
    """Whether this row, as somebody holds it to send it, is what each approval that the permit used was given
    for; of one that the rules alone let go, whether its kind is as it was then.
    """
    used = Approval.objects.filter(permit=permit).values_list("digest", "review__evidence_seq")
    if not used:
        kind, sent_at = compensation.kind, compensation.dispatched_at
        return kind is None or sent_at is None or kind.updated_at <= sent_at
    return all(digest == digest_of_compensation(compensation, seq) for digest, seq in used)


def effect_is_as_approved(effect: Effect, permit: Permit) -> bool:
    """The same of an effect; one that nobody had to approve is sent as it was read."""
    used = Approval.objects.filter(permit=permit).values_list("digest", "review__evidence_seq")
    return all(digest == digest_of(effect, seq) for digest, seq in used)


def settled_for_dispatch(run: Run, review: Review, needed: int) -> list[Line]:
    """Read the review of a compensation anew before it is sent; it stays approved only where all holds."""
    if is_over(review):
        return expire(run, review)
    lines = [*raised(review, needed), *refresh(review, run), *lapse(review, run)]
    if len(counting(review, run)) < review.needed:
        lines += _not_granted(run, review, SYSTEM.id, "too few approvals hold")
    return lines


def open_of(compensation: Compensation) -> Review | None:
    """The open review of a compensation."""
    rows = Review.objects.filter(subject=Subject.COMPENSATION, subject_id=compensation.pk)
    found: Review | None = rows.filter(closed_at__isnull=True).first()
    return found


def _consume(run: Run, review: Review, permit: Permit) -> list[Line]:
    mine = counting(review, run)[: review.needed]
    rows = Approval.objects.filter(pk__in=[one.pk for one in mine])
    if len(mine) < review.needed or Approval.consume(rows, permit, stored(review)[0]) != review.needed:
        raise NotConsumed(review.pk)
    _end_all(review, Approval.void, "enough others were used")
    _close(review, Closed.USED, SYSTEM.id)
    lines = [_approval_line(review, "approval.consumed", SYSTEM.id, one, permit=permit.pk) for one in mine]
    return [*lines, line_of(review, "review.used", SYSTEM.id, {"permit": permit.pk})]


def expire(run: Run, review: Review) -> list[Line]:
    """Close a review whose time is over."""
    reason = "approved, and not sent in time" if review.granted_at else "nobody decided in time"
    return close(run, review, Closed.EXPIRED, SYSTEM.id, reason)


# it closes ----------------------------------------------------------------------------------------


def close(run: Run, review: Review, how: str, actor: str, reason: str = "", stop_id: str = "") -> list[Line]:
    """Close an open review: its approvals end. The step of its effect is withheld, and nobody queues it
    again; its compensation is decided.
    """
    waited = given(review).count()
    end, kind = (Approval.expire, "expired") if how == Closed.EXPIRED else (Approval.void, "voided")
    lines = _end_all(review, end, reason or how, kind)
    if not _close(review, how, actor, reason, stop_id):
        return []
    told = {
        "approvals": waited,
        "needed": review.needed,
        "reason": reason,
        "granted": bool(review.granted_at),
    }
    lines.append(line_of(review, f"review.{how}", actor, told, stop_id))
    if review.subject == Subject.COMPENSATION:
        review.closed_as = how
        return lines + compensation_moves.closed(run, review, actor, reason, stop_id)
    Effect.objects.filter(pk=review.effect_id, queued_at__isnull=False).update(queued_at=None)
    return lines + _withhold(run, review, actor)


def _close(review: Review, how: str, actor: str, reason: str = "", stop_id: str = "") -> bool:
    told = {"closed_as": how, "closed_by": actor, "reason": reason, "stop_id": stop_id}
    rows = Review.objects.filter(pk=review.pk, closed_at__isnull=True)
    return bool(rows.update(closed_at=database_time(), **told))


def _withhold(run: Run, review: Review, actor: str) -> list[Line]:
    """Its step, where it still waits or was queued again by the grant. A claimed one asks the gate."""
    queued = [StepStatus.WAITING_APPROVAL, StepStatus.PENDING]
    step = Step.objects.filter(pk=review.step_id, status__in=queued).first()
    return [] if step is None else _end_step(run, review, step, actor)


def withhold_claimed(run: Run, review: Review) -> list[Line]:
    """The step of an effect that people said no to, when whoever had claimed it before asks to send it."""
    alone = {"status": StepStatus.CLAIMED, "ends_with_effect": True}
    step = Step.objects.filter(pk=review.step_id, **alone).first()
    return [] if step is None else _end_step(run, review, step, SYSTEM.id)


def _end_step(run: Run, review: Review, step: Step, actor: str) -> list[Line]:
    was = step.status
    (Step.finish_partly if step.happened else Step.withhold)(step)
    kind = "step.partial" if step.happened else "step.withheld"
    told = {"was": was, "step": step.key, "name": step.name, "review": review.pk}
    line = Line(kind, actor, told, step_id=step.pk, current_version=run.cancel_version)
    return [line, *step_ended(run, step, actor)]


def step_ended(run: Run, step: Step, actor: str) -> list[Line]:
    """Nobody needs to decide about an effect whose step has ended; one that failed may be tried again."""
    if step.status not in OVER:
        return []
    found = Review.objects.filter(step=step, closed_at__isnull=True).order_by("pk")
    return [line for one in found for line in close(run, one, Closed.ENDED, actor, "its step ended")]


def _end_all(review: Review, end: Any, why: str, kind: str = "voided") -> list[Line]:
    ended = list(given(review))
    if ended:
        end(Approval.objects.filter(pk__in=[one.pk for one in ended]), why)
    return [_approval_line(review, f"approval.{kind}", SYSTEM.id, one, why) for one in ended]


# a stop, an end, a resume -------------------------------------------------------------------------


def open_ones(run: Run) -> list[Review]:
    """The open reviews of a run, oldest first."""
    rows = Review.objects.filter(run=run, closed_at__isnull=True).order_by("pk")
    return list(rows)


def stopped(run: Run, stop: StopRequest, actor: Actor) -> list[Line]:
    """A pause keeps what people have to decide; a cancel or an abandon closes it."""
    if stop.mode == Mode.PAUSE or stop.finished_before:
        return []
    reason = f"stop #{stop.number}"
    lines = void_compensations(run, reason, actor.id, stop.pk)
    for one in open_ones(run):
        lines += close(run, one, Closed.CANCELLED, actor.id, reason, stop.pk)
    return lines


def void_compensations(run: Run, reason: str, actor: str = SYSTEM.id, stop_id: str = "") -> list[Line]:
    """What they stood on is gone: the proposed and the approved compensations of a run end with that."""
    lines: list[Line] = []
    for one in compensation_moves.undecided(run):
        lines += void_compensation(run, one, reason, actor, stop_id)
    return lines


def void_compensation(
    run: Run, compensation: Compensation, reason: str, actor: str = SYSTEM.id, stop_id: str = ""
) -> list[Line]:
    """The same of one that is proposed or approved, with its review."""
    review = open_of(compensation)
    if review is None:
        return compensation_moves.void(compensation, reason, actor, stop_id)
    return close(run, review, Closed.VOID, actor, reason, stop_id)


def concerned(run_ids: Sequence[str], scope_stop: StopRequest) -> list[str]:
    """Those of these runs with something that people decide, which a stop of their scope closes."""
    if scope_stop.mode == Mode.PAUSE:
        return []
    rows = Review.objects.filter(run__in=run_ids, closed_at__isnull=True).order_by()
    # one that the rules alone approved has no review
    approved = Compensation.objects.filter(run__in=run_ids, state=CompensationState.APPROVED).order_by()
    return list(rows.values_list("run_id", flat=True).union(approved.values_list("run_id", flat=True)))


def step_stopped(run: Run, stop: StopRequest, actor: Actor) -> list[Line]:
    """A stop of one step closes what people decide about it; our executor looks at its effects no more."""
    Effect.objects.filter(step_id=stop.step_id, queued_at__isnull=False).update(queued_at=None)
    found = Review.objects.filter(step_id=stop.step_id, closed_at__isnull=True).order_by("pk")
    reason = f"stop #{stop.number}"
    return [line for one in found for line in close(run, one, Closed.CANCELLED, actor.id, reason, stop.pk)]


def ended(run: Run, actor: Actor) -> list[Line]:
    """The run ends by its runtime's word: nobody needs to decide any more."""
    reviews = open_ones(run)
    return [line for one in reviews for line in close(run, one, Closed.ENDED, actor.id, "the run ended")]


def resumed(run: Run, actor: Actor) -> list[Line]:
    """After a resume a grant holds only if digest and evidence are as they were; then its step is queued.

    No compensation is left: the run goes on, and what it comes to is another question.
    """
    lines = void_compensations(run, "the run was resumed", actor.id)
    for review in open_ones(run):
        lines += [*refresh(review, run), *lapse(review, run)]
        if is_granted(review, run):
            lines += queue(run, review, actor.id)
    return lines


def void_all(run: Run, why: str) -> list[Line]:
    """What people allowed may have been sent by now, unknown to these rows: they are asked again."""
    lines: list[Line] = []
    for review in open_ones(run):
        lines += take_back(run, review, why)
    for one in compensation_moves.undecided(run).filter(state=CompensationState.APPROVED):
        lines += compensation_moves.void(one, why)  # by the rules alone
    return lines


def take_back(run: Run, review: Review, why: str) -> list[Line]:
    """Void every approval of an open review: people are asked again."""
    lines = [*_end_all(review, Approval.void, why), *withdrawn(run, review, SYSTEM.id, why)]
    Review.objects.filter(pk=review.pk).update(granted_at=None)
    review.granted_at = None
    return lines


def granted(run: Run, review: Review, actor: str) -> list[Line]:
    """Enough people said yes: what that starts."""
    if review.subject == Subject.COMPENSATION:
        return compensation_moves.granted(run, review, actor)
    return queue(run, review, actor)


def withdrawn(run: Run, review: Review, actor: str, why: str) -> list[Line]:
    """Not enough people say yes any more: what had started by it, and was not sent, waits again."""
    if review.subject == Subject.COMPENSATION:
        return compensation_moves.not_granted(run, review, actor, why)
    return unqueue(review, actor)


def queue(run: Run, review: Review, actor: str) -> list[Line]:
    """Granted: its step may be claimed again, and our executor hears of it; nothing while the run is held,
    nor behind a shut gate above it whose stop has not reached the run yet. A policy of effects reaches no
    run: the gate refuses its kinds, and after its release the step goes on.
    """
    if run.status != RunStatus.ACTIVE or stop_above(run) is not None:
        return []
    rows = Step.objects.filter(pk=review.step_id)
    if not Step.grant(rows):
        return []
    told = {"review": review.pk}
    if Kind.objects.filter(effects=review.effect_id).exclude(provider=Provider.OUTSIDE).exists():
        Effect.objects.filter(pk=review.effect_id).update(queued_at=Now())
        wake_up = partial(wake.run_soon, "effects.tasks.execute", review.effect_id)
        transaction.on_commit(wake_up, robust=True)
    return [Line("step.pending", actor, told, step_id=review.step_id or "")]


def unqueue(review: Review, actor: str) -> list[Line]:
    """A grant was taken back before anybody claimed its step: it waits again, unless another effect of
    it is granted, or it was not this grant that queued it.
    """
    others = Review.objects.filter(step=review.step_id, closed_at__isnull=True, granted_at__isnull=False)
    if review.granted_at is None or others.exclude(pk=review.pk).exists():
        return []
    rows = Step.objects.filter(pk=review.step_id, status=StepStatus.PENDING)
    if not Step.wait_for_approval(rows):
        return []
    return [Line("step.waiting_approval", actor, {"review": review.pk}, step_id=review.step_id or "")]


# lines --------------------------------------------------------------------------------------------


def line_of(
    review: Review, kind: str, actor: str, told: Mapping[str, Any] | None = None, stop_id: str = ""
) -> Line:
    """`review.waiting`, `review.granted`, … in the stream of its run."""
    return Line(
        kind,
        actor,
        {"review": review.pk, **(told or {})},
        stop_id=stop_id,
        step_id=review.step_id or "",
        effect_key=review.effect_key,
    )


def _approval_line(
    review: Review, kind: str, actor: str, approval: Approval, why: str = "", permit: str = ""
) -> Line:
    told = {"approval": approval.pk, "by": f"user:{approval.person_id}", "digest": approval.digest}
    more = {"why": why, "permit": permit}
    return line_of(review, kind, actor, told | {name: value for name, value in more.items() if value})
