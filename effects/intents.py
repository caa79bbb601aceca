"""declare() and dispatch(): the intent is committed before the world is touched."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, Subquery

from runs import gate, receipts, wake
from runs.access import Actor, NotFound, demand, find_run
from runs.evidence import Line, canonical, digest, record
from runs.guard import (
    LOST,
    NOT_APPROVED,
    PEOPLE_FIRST,
    Ask,
    Known,
    Opened,
    Refusal,
    lock_run,
    refuse,
    view,
    watched,
    why_not,
    why_not_step,
)
from runs.models import Boundary, OperationClass, Permit, RulesRow, Run, Step
from runs.saying import words_in
from runs.store import Now, verb

from . import early, four_eyes, reviews
from .models import SENT_BY_US, Effect, Kind, Review, Settlement


class EffectKeyReused(ValueError):
    """This run has an effect with this key and other parameters. Use a key of its own."""


class OfAnotherStep(EffectKeyReused):
    """This effect was declared under another step. Name that step, or dispatch it by its id."""


class StepTaken(EffectKeyReused):
    """This step was registered for one effect and has it. Name another step for this one."""


class CannotAsk(ValueError):
    """This kind does not say how its provider is asked to cancel. Nothing was declared."""


class NoPlan(ValueError):
    """Declare what could lessen this effect, or that there is none, because …"""


@dataclass(frozen=True)
class Intention:
    """An effect as its agent describes it; `body` and `plan` are the raw bytes to be kept."""

    key: str
    kind: str
    body: bytes = b""
    plan: bytes = b""
    op_class: str = ""
    title: str = ""
    target: str = ""
    amount: str = ""
    approvals: int = 0  # how many people its agent wants to decide first
    on_stop: str = ""  # ask_provider: a cancel of its run asks its provider to cancel it (forwards.py)

    def parameters(self, op_class: str) -> str:
        """The digest that a second declaration under this key must match."""
        parts = [self.kind, op_class, self.target, self.amount, digest(self.body), digest(self.plan)]
        return digest(canonical([*parts, self.on_stop] if self.on_stop else parts))


def plan_bytes(kind: str = "", title: str = "", body: str = "", none_because: str = "") -> bytes:
    """The declared compensation, or the explicit none with its reason. Raises NoPlan."""
    if words_in(none_because):
        return canonical({"none_because": none_because.strip()}).encode()
    if kind.strip():
        return canonical({"kind": kind.strip(), "title": title, "body": body}).encode()
    raise NoPlan("plan")


SKIP = (Settlement.CONFIRMED, Settlement.PARTIAL, Settlement.ACCEPTED_UNKNOWN, Settlement.NOT_STARTED)
WAIT = (Settlement.DISPATCHED, Settlement.UNKNOWN)


class EffectIntent:
    """What the gate does for an effect in its own transaction: know the key, or write the row."""

    def __init__(self, new: Intention, kind: Kind | None, op_class: str, actor: str) -> None:
        self.new, self.kind, self.op_class, self.actor = new, kind, op_class, actor
        self.effect: Effect | None = None

    def annotations(self, ask: Ask) -> dict[str, Any]:
        known = Effect.objects.filter(run_id=ask.run_id, key=self.new.key)
        rules = RulesRow.objects.filter(workspace__runs=ask.run_id)
        return {
            "effect_pk": Subquery(known.values("pk")),
            "review_pk": Subquery(reviews.newest(ask.run_id, self.new.key).values("pk")),
            "rules": Subquery(rules.values("body")[:1]),
        }

    def known(self, run: Run, seen: dict[str, Any]) -> Known | None:
        if seen["effect_pk"] is None:
            return None
        effect: Effect = Effect.objects.get(pk=seen["effect_pk"])
        if effect.parameters_digest != self.new.parameters(self.op_class):
            raise EffectKeyReused(self.new.key)
        self.effect = effect
        if effect.settlement in SKIP:
            return Known("settled", effect)
        return Known("must_wait", effect) if effect.settlement in WAIT else None

    def _need(self, seen: dict[str, Any]) -> four_eyes.Need:
        asked = max(self.new.approvals, (self.effect.approvals or 0) if self.effect else 0)
        return four_eyes.needed_for(self.new.kind, self.op_class, self.new.amount, asked, seen["rules"])

    def undecided(self, run: Run, seen: dict[str, Any]) -> str | None:
        """Whether people decide first: asked of the rows under the run's lock, at each dispatch."""
        review = Review.objects.get(pk=seen["review_pk"]) if seen["review_pk"] else None
        if review is not None and review.closed_as in reviews.NO:
            if lines := reviews.withhold_claimed(run, review):
                record(run, *lines)
            return NOT_APPROVED
        need = self._need(seen)
        if review is None or review.closed_at is not None:
            return PEOPLE_FIRST if need.approvals else None
        if four_eyes.is_over(review):
            record(run, *reviews.expire(run, review), *reviews.withhold_claimed(run, review))
            return NOT_APPROVED
        if need.approvals > review.needed or not four_eyes.still_granted(review, run):
            return PEOPLE_FIRST
        return None

    def held(self, run: Run, step: Step, seen: dict[str, Any]) -> tuple[Effect, Review, list[Line]]:
        need, lines = self._need(seen), []
        if self.effect is None:
            self.refuse_second(step, seen)
            self.effect = self._insert(run, step.pk)
            lines = [Line("effect.declared", self.actor, step_id=step.pk, effect_key=self.new.key)]
        elif self.effect.step_id != step.pk:
            raise OfAnotherStep(self.new.key)
        elif self.new.approvals > (self.effect.approvals or 0):
            Effect.objects.filter(pk=self.effect.pk).update(approvals=self.new.approvals)
        review, asked = reviews.ask(run, step, self.effect, need, self.actor)
        return self.effect, review, [*lines, *asked]

    def opened(self, run: Run, permit: Permit, seen: dict[str, Any]) -> tuple[Effect, list[Line]]:
        if self.effect is not None:
            if self.effect.step_id != permit.step_id:
                raise OfAnotherStep(self.new.key)
            used = reviews.use(run, self.effect, permit) if seen["review_pk"] else []
            Effect.dispatch(self.effect, permit)
            early.met(self.effect, self.kind)
            return self.effect, [*used, self._line("effect.dispatched", permit)]
        self.refuse_second(permit.step, seen)
        effect = self._insert(
            run,
            permit.step_id,
            permit=permit,
            settlement=Settlement.DISPATCHED,
            attempt=1,
            dispatched_at=Now(),
        )
        early.met(effect, self.kind)
        return effect, [
            self._line("effect.declared", permit),
            self._line("effect.dispatched", permit),
        ]

    def refuse_second(self, step: Step | None, seen: dict[str, Any]) -> None:
        """A step that ends with its effect has one; a step found by its key may have it already."""
        if step is None or not seen.get("step_pk") or not step.ends_with_effect:
            return
        if Effect.objects.filter(step_id=step.pk).exists():
            raise StepTaken(self.new.key)

    def _insert(self, run: Run, step_id: str, **more: Any) -> Effect:
        new = self.new
        return Effect.objects.create(
            run=run,
            step_id=step_id,
            kind=self.kind,
            kind_name=new.kind,
            key=new.key,
            op_class=self.op_class,
            title=new.title or new.key,
            target=new.target,
            amount=new.amount,
            body=new.body,
            body_digest=digest(new.body),
            plan=new.plan,
            plan_digest=digest(new.plan),
            parameters_digest=new.parameters(self.op_class),
            approvals=new.approvals or None,
            on_stop=new.on_stop or None,
            **more,
        )

    def _line(self, kind: str, permit: Permit) -> Line:
        return Line(
            kind,
            self.actor,
            boundary=permit.boundary,
            carried_version=permit.seen_version,
            step_id=permit.step_id,
            permit_id=permit.pk,
            effect_key=self.new.key,
            worker=permit.worker,
        )

    def declared(self, run: Run, step_id: str) -> tuple[Effect, Line]:
        """Insert without a permit: an intent that waits for a dispatch."""
        ours = self.kind is not None and self.kind.provider in SENT_BY_US
        effect = self._insert(run, step_id, queued_at=Now() if ours else None)
        line = Line("effect.declared", self.actor, step_id=step_id, effect_key=self.new.key)
        if ours:
            transaction.on_commit(partial(wake.run_soon, "effects.tasks.execute", effect.pk), robust=True)
        return effect, line


def intent_for(workspace_id: str, new: Intention, actor: Actor) -> EffectIntent:
    """The intent with its registered kind; an unregistered kind is admitted as opaque."""
    if not new.plan:
        raise NoPlan("plan")
    kind = Kind.objects.filter(workspace_id=workspace_id, name=new.kind).first()
    if new.on_stop and (kind is None or not kind.send.get("cancel")):
        raise CannotAsk(new.kind)
    op_class = kind.op_class if kind else (new.op_class or OperationClass.EXTERNAL_WRITE)
    return EffectIntent(new, kind, op_class, actor.id)


def dispatch(ask: Ask, new: Intention) -> Opened | Known | Refusal:
    """Register and dispatch in one transaction; a known key is answered, never sent twice.

    Raises EffectKeyReused, NoPlan, CannotAsk, NotFound, NotAllowed.
    """
    run = find_run(ask.actor, ask.run_id, "write")
    return _ask_gate(ask, intent_for(run.workspace_id, new, ask.actor))


def dispatch_again(ask: Ask, effect_id: str, approvals: int = 0) -> Opened | Known | Refusal:
    """Ask to send a declared effect, or one that is known not to have been applied."""
    effect: Effect | None = Effect.objects.select_related("run", "kind").filter(pk=effect_id).first()
    if effect is None:
        raise NotFound("effect")
    demand(ask.actor, "write", effect.run)
    new = Intention(
        effect.key,
        effect.kind_name,
        bytes(effect.body),
        bytes(effect.plan),
        effect.op_class,
        effect.title,
        effect.target,
        effect.amount,
        approvals,
        effect.on_stop or "",
    )
    intent = EffectIntent(new, effect.kind, effect.op_class, ask.actor.id)
    return _ask_gate(replace(ask, run_id=effect.run_id, step_id=effect.step_id), intent)


def _ask_gate(ask: Ask, intent: EffectIntent) -> Opened | Known | Refusal:
    asked = replace(
        ask,
        boundary=gate.boundary_of(intent.op_class),
        op_class=intent.op_class,
        kind=intent.new.kind,
        effect_key=intent.new.key,
        step_name=ask.step_name or intent.new.title,
    )
    try:
        return gate.dispatch(asked, intent)
    except reviews.NotConsumed:  # its time ran out between the look and the use; nothing was kept
        return gate.dispatch(asked, intent)


def declare(ask: Ask, new: Intention) -> Effect | Known | Refusal:
    """Record an intent without dispatching it; our executor sends those of the kinds that are its own.

    Raises EffectKeyReused, NoPlan, CannotAsk, NotFound, NotAllowed.
    """
    run = find_run(ask.actor, ask.run_id, "write")
    intent = intent_for(run.workspace_id, new, ask.actor)
    named: dict[str, Any] = {"effect_key": new.key, "op_class": intent.op_class, "kind": new.kind}
    return _declare(replace(ask, **named, step_name=ask.step_name or new.title), intent)


@verb
def _declare(ask: Ask, intent: EffectIntent) -> Effect | Known | Refusal:
    run = lock_run(ask.run_id)
    now = view(run, ask, intent.annotations(ask))
    known = intent.known(run, now.seen)
    if known is not None or intent.effect is not None:
        return known or intent.effect or Known("must_wait", None)
    reason = why_not(run, ask.seen_version, now.scopes_open) or why_not_step(now.step)
    if reason is None and ask.step_id and not gate.is_held(ask):
        reason = LOST
    if reason is not None:
        return refuse(run, ask, reason, Boundary.DISPATCH, now.step)
    intent.refuse_second(now.step, now.seen)
    step = now.step or gate.new_step(run, ask, ends_with_effect=True)
    effect, line = intent.declared(run, step.pk)
    record(run, line, last_seq=now.last_seq)
    receipts.at_gate(run, ask, now.seen)
    watched(run, ask, now)
    fresh: Effect = Effect.objects.get(pk=effect.pk)
    return fresh


def may_retry() -> Q:
    """A step's own-row condition for a retry: it has effects, each NOT_APPLIED or DECLARED."""
    mine = Effect.objects.filter(step_id=OuterRef("pk"))
    open_ones = mine.exclude(settlement__in=[Settlement.NOT_APPLIED, Settlement.DECLARED])
    return Q(Exists(mine)) & ~Q(Exists(open_ones))
