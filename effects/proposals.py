"""A compensation is proposed: what may be, the exact call, and whether people or the rules decide.

Moves of a locked run. Nothing here is sent: what is approved waits for repair.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runs.access import SYSTEM, Actor
from runs.evidence import Line, digest, record
from runs.guard import NOT_APPROVED
from runs.models import OperationClass, Run, RunStatus
from runs.rules import CompensationRule, rules_of
from runs.store import after

from . import compensation_moves, plans, repair_moves, reviews
from .compensation import OPEN, RESTORE_FILES
from .four_eyes import EXPIRES_S, digest_of_compensation, evidence_of, people_behind
from .models import Compensation, CompensationState, Effect, Kind, Provider, Review, Settlement
from .plans import Call, CannotFill, Plan
from .review_tables import Subject

AT_REST = (*compensation_moves.STOPPED, RunStatus.COMPLETED, RunStatus.FAILED)
BY_DRAIN = (RunStatus.CANCELLED, RunStatus.UNKNOWN, RunStatus.FAILED)
HAPPENED = (Settlement.CONFIRMED, Settlement.PARTIAL)
IN_DOUBT = (Settlement.DISPATCHED, Settlement.UNKNOWN, Settlement.ACCEPTED_UNKNOWN)
WHY_NOT: dict[str, str] = {
    "itself": "It is a compensation itself. A compensation is not compensated.",
    "abandoned": "Its run was abandoned: nothing is sent for it any more.",
    "active": "Its run has not come to rest. Compensate when it is paused or has ended.",
    "unknown": "What it came to is still unknown: verify it first.",
    "nothing": "It did not happen, so there is nothing to compensate.",
    "opaque": "Its kind was not registered when it was declared: nothing says what would lessen it.",
    "none": "It was declared that nothing lessens it.",
    "undeclared": "No call that would lessen it was declared before it was sent.",
    "changed": "The template of its kind was changed after it was declared: it doesn't count as declared.",
    "kind": "The kind of the compensation is not registered here.",
    "outside": "Compensations of that kind are sent by an agent, not by Allstop. Nothing can carry it out.",
    "unfilled": "Its template has a place for which there is no value that may stand there.",
    "rule": "No rule permits it.",
    "stopped": "The rules don't let it run for a run that was stopped.",
    "open": "One is proposed or under way already.",
    "done": "It was compensated, and that was verified.",
    "accepted": "An earlier one may have happened; nobody could determine it. A second could do it twice.",
    "after_all": "An earlier one failed, and later it was told that it happened. A second could do it twice.",
    "decided": "People decided about it. A person may propose it again; a token may not.",
}
SPENT = {CompensationState.VERIFIED: "done", CompensationState.ACCEPTED_UNKNOWN: "accepted"}
DECIDED = (CompensationState.REJECTED, CompensationState.NOT_NEEDED)


@dataclass(frozen=True)
class NotProposed:
    """Nothing was proposed. `reason` is a key of WHY_NOT; `open`: the compensation that is there already."""

    reason: str
    detail: str = ""
    open: Compensation | None = None

    @property
    def sentence(self) -> str:
        said = WHY_NOT[self.reason]
        return f"{said} {self.detail}" if self.detail else said


@dataclass(frozen=True)
class Possible:
    """What would be proposed for an effect, under which rule; `automatic`: nobody would have to approve."""

    plan: Plan
    call: Call
    kind: Kind | None
    rule: CompensationRule
    automatic: bool

    @property
    def op_class(self) -> str:
        return self.kind.op_class if self.kind else OperationClass.WORKSPACE_CHANGE


# what may be proposed -----------------------------------------------------------------------------


def possible(run: Run, effect: Effect) -> Possible | NotProposed:
    """What would be proposed for an effect now, or why nothing can be. Changes nothing."""
    why = _why_not_now(run, effect)
    if why is not None:
        return why
    plan = plans.declared(effect)
    if effect.kind is None or plan.lacks:
        return NotProposed(plan.lacks or "opaque", plan.none_because)
    kind = Kind.objects.filter(workspace_id=run.workspace_id, name=plan.kind).first()
    if plan.kind == RESTORE_FILES:
        kind = None
    elif kind is None or kind.provider == Provider.OUTSIDE:
        return NotProposed("kind" if kind is None else "outside", plan.kind)
    rule = rules_of(run.workspace_id).compensation_for(plan.kind)
    barrier = compensation_moves.forbidden_by(run, rule)
    if rule is None or barrier:
        return NotProposed(barrier)
    try:
        call = plans.call_of(effect, plan)
    except CannotFill as error:
        return NotProposed("unfilled", f"{{{error}}}")
    automatic = compensation_moves.is_automatic(run, effect, kind, rule)
    return Possible(plan, call, kind, rule, automatic)


def _why_not_now(run: Run, effect: Effect) -> NotProposed | None:
    """By where run, effect and its earlier compensations stand."""
    if run.status not in AT_REST:
        return NotProposed("abandoned" if run.status == RunStatus.ABANDONED else "active")
    if effect.settlement not in HAPPENED:
        return NotProposed("unknown" if effect.settlement in IN_DOUBT else "nothing")
    earlier = list(Compensation.objects.filter(effect=effect).order_by("number"))
    for one in earlier:
        if one.state in SPENT:
            return NotProposed(SPENT[CompensationState(one.state)])
        if one.state in OPEN:
            return NotProposed("open", open=one)
        if repair_moves.was_it_after_all(one):
            return NotProposed("after_all")
    return None


# it is proposed -----------------------------------------------------------------------------------


def propose(run: Run, effect: Effect, actor: Actor, wish: str = "") -> Compensation | NotProposed:
    """Write what would be sent, and ask those who decide; recorded under the run's lock."""
    found = possible(run, effect)
    if isinstance(found, NotProposed):
        return found
    earlier = Compensation.objects.filter(effect=effect).order_by("-number").first()
    if actor.user is None and earlier is not None and earlier.state in DECIDED:
        return NotProposed("decided")
    compensation = _insert(run, effect, found, actor, earlier.number + 1 if earlier else 1)
    told: dict[str, Any] = {
        "amount": compensation.amount,
        "body_digest": compensation.body_digest,
        "wish": wish,
    }
    told |= {"policy": found.rule.policy, "kind": compensation.kind_name, "number": compensation.number}
    line = compensation_moves.line_of(compensation, "compensation.proposed", actor.id, told)
    record(run, line, *_ask_or_approve(run, compensation, found))
    fresh: Compensation = Compensation.objects.select_related("effect", "kind").get(pk=compensation.pk)
    return fresh


def _insert(run: Run, effect: Effect, found: Possible, actor: Actor, number: int) -> Compensation:
    call = found.call
    new = Compensation(
        run=run,
        effect=effect,
        number=number,
        kind=found.kind,
        kind_name=call.kind,
        op_class=found.op_class,
        title=call.title,
        target=call.target,
        amount=call.amount,
        body=call.body,
        body_digest=digest(call.body),
        expected=call.expected,
        risks=call.risks,
        run_version=run.cancel_version,
        proposed_by=actor.id,
        proposer_id=min(people_behind([actor.id]), default=None),
    )
    new.key = new.pk  # its own, whatever is sent under it; the same on every attempt
    new.save(force_insert=True)
    made: Compensation = Compensation.objects.select_related("effect", "kind").get(pk=new.pk)
    return made


def _ask_or_approve(run: Run, compensation: Compensation, found: Possible) -> list[Line]:
    if found.automatic:
        return [compensation_moves.approve(compensation, SYSTEM.id, "the rules")]
    return ask(run, compensation, found.rule)


def ask(run: Run, compensation: Compensation, rule: CompensationRule | None = None) -> list[Line]:
    """Open the review of a proposed compensation: as it was proposed, and again when its approvals were
    used up by a call that was not sent.
    """
    rule = rule or rules_of(run.workspace_id).compensation_for(compensation.kind_name)
    seq = evidence_of(compensation.effect)
    review = Review.objects.create(
        workspace_id=run.workspace_id,
        run=run,
        effect=compensation.effect,
        effect_key=compensation.effect.key,
        subject=Subject.COMPENSATION,
        subject_id=compensation.pk,
        digest=digest_of_compensation(compensation, seq),
        evidence_seq=seq,
        needed=rule.approvals if rule else 1,
        asked_because="rules",
        asked_by=compensation.proposed_by,
        proposer_id=compensation.proposer_id,
        editor_id=compensation.editor_id,
        expires_at=after(rule.expires_s if rule else EXPIRES_S),
    )
    review = Review.objects.get(pk=review.pk)
    told: Mapping[str, Any] = {"needed": review.needed, "because": "rules", "digest": review.digest}
    more = {"compensation": compensation.pk, "expires_at": review.expires_at.isoformat()}
    return [reviews.line_of(review, "review.waiting", compensation.proposed_by, {**told, **more})]


def by_drain(run: Run) -> bool:
    """A run came to rest, or something of it became known: what the rules let the drain propose."""
    if run.status not in BY_DRAIN:
        return False
    kinds = [rule.kind for rule in rules_of(run.workspace_id).compensations if rule.propose == "drain"]
    if not kinds:
        return False
    rows = Effect.objects.filter(run=run, settlement__in=HAPPENED, compensations__isnull=True)
    made = [
        propose(run, effect, SYSTEM)
        for effect in rows.select_related("kind").order_by("pk")
        if plans.declared(effect).kind in kinds
    ]
    return any(isinstance(one, Compensation) for one in made)


# it is about to be sent ---------------------------------------------------------------------------


def withheld(run: Run, compensation: Compensation) -> tuple[str, list[Line]]:
    """Whether rules and people let it be sent at this moment: "" or NOT_APPROVED, and what that changed.

    Asked by the gate under the run's lock; the lines are recorded by it. What does not hold any more is
    proposed again.
    """
    review = reviews.open_of(compensation)
    rule = rules_of(run.workspace_id).compensation_for(compensation.kind_name)
    barrier = compensation_moves.forbidden_by(run, rule)
    if review is None:
        effect, kind = compensation.effect, compensation.kind
        if rule and not barrier and compensation_moves.is_automatic(run, effect, kind, rule):
            return "", []
        return NOT_APPROVED, _ask_after_all(run, compensation, rule)
    if barrier:
        return NOT_APPROVED, reviews.take_back(run, review, WHY_NOT[barrier])
    lines = reviews.settled_for_dispatch(run, review, rule.approvals if rule else 1)
    state = Compensation.objects.values_list("state", flat=True).get(pk=compensation.pk)
    return "" if state == CompensationState.APPROVED else NOT_APPROVED, lines


def _ask_after_all(run: Run, compensation: Compensation, rule: CompensationRule | None) -> list[Line]:
    """The rules let it run alone when it was proposed; they don't now, so people decide."""
    Compensation.withdraw_approval(compensation)
    told = {"why": "the rules don't let it run alone any more"}
    line = compensation_moves.line_of(compensation, "compensation.approval_withdrawn", SYSTEM.id, told)
    return [line, *ask(run, compensation, rule)]
