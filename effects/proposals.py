"""A compensation is proposed: what may be, the exact call, and whether people or the rules decide.

Moves of a locked run. Nothing here is sent: what is approved waits for repair.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from runs.access import SYSTEM, Actor
from runs.evidence import Line, digest, record
from runs.guard import NOT_APPROVED
from runs.models import Evidence, OperationClass, Run, RunStatus
from runs.rows import Each, insert
from runs.rules import CompensationRule, Rules, rules_of
from runs.store import database_time

from . import compensation_moves, plans, repair_moves, reviews
from .compensation import OPEN, RESTORE_FILES
from .four_eyes import EXPIRES_S, digest_of_compensation, evidence_by_key, people_behind
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
    "in_part": "An earlier one was done in part. The same call again would do that part twice.",
    "after_all": "An earlier one failed, and later it was told that it happened. A second could do it twice.",
    "decided": "People decided about it. A person may propose it again; a token may not.",
}
SPENT = {CompensationState.VERIFIED: "done", CompensationState.ACCEPTED_UNKNOWN: "accepted"}
NOT_PROPOSED = "compensation.not_proposed"
ITS_PLAN = ("unfilled", "changed", "undeclared", "kind", "outside", "opaque")  # why its plan leads nowhere
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


@dataclass(frozen=True)
class House:
    """What holds for all compensations of a run, read once: the rules, the kinds, and who pressed Stop."""

    rules: Rules
    kinds: Mapping[str, Kind]
    stops: compensation_moves.Pressed


def _house(run: Run, kinds: Iterable[str]) -> House:
    rows = Kind.objects.filter(workspace_id=run.workspace_id, name__in=set(kinds))
    found = {kind.name: kind for kind in rows}
    return House(rules_of(run.workspace_id), found, compensation_moves.pressed(run))


def possible(run: Run, effect: Effect) -> Possible | NotProposed:
    """What would be proposed for an effect now, or why nothing can be. Changes nothing."""
    why = _why_not_now(run, effect)
    if why is not None:
        return why
    plan = plans.declared(effect)
    return _possible(run, effect, plan, _house(run, [plan.kind]))


def _possible(run: Run, effect: Effect, plan: Plan, house: House) -> Possible | NotProposed:
    """By what was declared, and by what the workspace says to it."""
    if effect.kind is None or plan.lacks:
        return NotProposed(plan.lacks or "opaque", plan.none_because)
    kind = None if plan.kind == RESTORE_FILES else house.kinds.get(plan.kind)
    if plan.kind != RESTORE_FILES and (kind is None or kind.provider == Provider.OUTSIDE):
        return NotProposed("kind" if kind is None else "outside", plan.kind)
    rule = house.rules.compensation_for(plan.kind)
    barrier = compensation_moves.forbidden_by(run, rule, house.stops)
    if rule is None or barrier:
        return NotProposed(barrier)
    try:
        call = plans.call_of(effect, plan)
    except CannotFill as error:
        return NotProposed("unfilled", f"{{{error}}}")
    automatic = compensation_moves.is_automatic(run, effect, kind, rule, house.stops)
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
        if why := repair_moves.not_twice(one):
            return NotProposed(why)
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
    _write(run, [(effect, found)], actor, earlier.number + 1 if earlier else 1, wish)
    rows = Compensation.objects.select_related("effect", "kind").filter(effect=effect)
    made: Compensation = rows.order_by("-number")[0]
    return made


def _write(
    run: Run, found: Sequence[tuple[Effect, Possible]], actor: Actor, number: int, wish: str = ""
) -> None:
    """Propose them, and ask those who decide: in as many statements, however many they are."""
    behind, now = min(people_behind([actor.id]), default=None), database_time()
    given = {"number": number, "proposed_at": now, "proposed_by": actor.id, "proposer_id": behind}
    new = [_row(run, effect, one, **given) for effect, one in found]
    _insert(new)
    kept = Compensation.objects.select_related("effect", "kind").in_bulk([row.pk for row in new])
    made = [(kept[row.pk], one) for row, (_, one) in zip(new, found, strict=True)]
    lines = [_proposed(row, one, actor, wish) for row, one in made]
    alone = [row for row, one in made if one.automatic]
    asked = [(row, one.rule) for row, one in made if not one.automatic]
    if alone:
        lines += compensation_moves.approve_all(alone, SYSTEM.id, "the rules")
    if asked:
        lines += ask_all(run, asked)
    record(run, *lines)


def _proposed(row: Compensation, found: Possible, actor: Actor, wish: str) -> Line:
    told: dict[str, Any] = {"amount": row.amount, "body_digest": row.body_digest, "wish": wish}
    told |= {"policy": found.rule.policy, "kind": row.kind_name, "number": row.number}
    return compensation_moves.line_of(row, "compensation.proposed", actor.id, told)


def _insert(rows: Sequence[Compensation] | Sequence[Review]) -> None:
    """Each of their columns in one statement; what the database would give is set."""
    names = [field.attname for field in rows[0]._meta.concrete_fields]
    insert(type(rows[0]), {name: Each(getattr(row, name) for row in rows) for name in names})


def _row(run: Run, effect: Effect, found: Possible, **given: Any) -> Compensation:
    call = found.call
    new = Compensation(
        run=run,
        effect=effect,
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
        **given,
    )
    new.key = new.pk  # its own, whatever is sent under it; the same on every attempt
    return new


def ask(run: Run, compensation: Compensation, rule: CompensationRule | None = None) -> list[Line]:
    """Open the review of a proposed compensation: as it was proposed, and again when its approvals were
    used up by a call that was not sent.
    """
    return ask_all(run, [(compensation, rule or _rule_for(run, compensation))])


def ask_all(run: Run, proposed: Sequence[tuple[Compensation, CompensationRule | None]]) -> list[Line]:
    """The same of several, in as many statements."""
    seqs = evidence_by_key(run, [compensation.effect.key for compensation, _ in proposed])
    now = database_time()
    made = [_review(run, *one, seqs.get(one[0].effect.key, 0), now) for one in proposed]
    _insert(made)
    return [_waiting(review) for review in made]


def _review(
    run: Run, compensation: Compensation, rule: CompensationRule | None, seq: int, now: datetime
) -> Review:
    return Review(
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
        asked_at=now,
        expires_at=now + timedelta(seconds=rule.expires_s if rule else EXPIRES_S),
    )


def _waiting(review: Review) -> Line:
    told: Mapping[str, Any] = {"needed": review.needed, "because": "rules", "digest": review.digest}
    more = {"compensation": review.subject_id, "expires_at": review.expires_at.isoformat()}
    return reviews.line_of(review, "review.waiting", review.asked_by, {**told, **more})


def _rule_for(run: Run, compensation: Compensation) -> CompensationRule | None:
    return rules_of(run.workspace_id).compensation_for(compensation.kind_name)


# by the drain -------------------------------------------------------------------------------------


def by_drain(run: Run) -> bool:
    """A run came to rest, or something of it became known: what the rules let the drain propose.

    A few statements, however many effects there are and however often it is called; whether it recorded
    anything. Where the plan itself is in the way it says so, once for each effect.
    """
    if run.status not in BY_DRAIN:
        return False
    rules = rules_of(run.workspace_id)
    wanted = {rule.kind for rule in rules.compensations if rule.propose == "drain"}
    rows = Effect.objects.filter(run=run, settlement__in=HAPPENED, compensations__isnull=True)
    rows = rows.select_related("kind").order_by("pk") if wanted else rows.none()
    declared = {effect.pk: plans.declared(effect) for effect in rows.defer("body")}
    ids = [pk for pk, plan in declared.items() if plan.kind in wanted]
    if not ids:
        return False
    house = _house(run, wanted)
    chosen = rows.filter(pk__in=ids)
    found = [(effect, _possible(run, effect, declared[effect.pk], house)) for effect in chosen]
    can = [(effect, one) for effect, one in found if isinstance(one, Possible)]
    if can:
        _write(run, can, SYSTEM, 1)
    cannot = [(effect, one) for effect, one in found if isinstance(one, NotProposed)]
    return _say_why_not(run, cannot) or bool(can)


def _say_why_not(run: Run, found: Sequence[tuple[Effect, NotProposed]]) -> bool:
    """Nobody else would find out why nothing is proposed where the rules promise it."""
    found = [(effect, why) for effect, why in found if why.reason in ITS_PLAN]
    if not found:
        return False
    told = Evidence.objects.filter(stream=run.pk, kind=NOT_PROPOSED)
    before = set(told.values_list("effect_key", flat=True))
    lines = [_not_proposed(effect, why) for effect, why in found if effect.key not in before]
    if lines:
        record(run, *lines)
    return bool(lines)


def _not_proposed(effect: Effect, why: NotProposed) -> Line:
    told = {"effect": effect.key, "title": effect.title, "reason": why.reason, "why": why.sentence}
    return Line(NOT_PROPOSED, SYSTEM.id, told, effect_key=effect.key)


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
