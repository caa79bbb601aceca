"""No blind retry: what may be tried again, who may say so, and when our executor does by itself.

A worker, or our executor where the kind says when, tries again only what is known not to have happened
by more than the word of people or workers; on that alone a person decides. Each attempt has the same key.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from django.db.models import (
    DurationField,
    Exists,
    ExpressionWrapper,
    F,
    IntegerField,
    OuterRef,
    Q,
    Subquery,
    Value,
)
from django.db.models.functions import Cast

from runs import gate, retries
from runs.access import EXECUTOR, Actor
from runs.guard import BLIND, FORGOTTEN, UNVERIFIED, USED_UP, Ask, Refusal, view
from runs.models import Boundary, Evidence, Permit, Run, Step, StepStatus
from runs.store import after

from .intents import may_retry
from .models import Effect, Ground, Provider, Settlement


def verified() -> Q:
    """A step's own-row condition: that its effects did not happen stands on more than a worker's word.

    A look-up, a webhook or an inspection; or the provider's own answer, as our executor received it. A person
    who said that it did not happen did not say: try again.
    """
    answered = Evidence.objects.filter(
        stream=OuterRef("run_id"),
        effect_key=OuterRef("key"),
        kind="effect.not_applied",
        permit_id=OuterRef("permit_id"),
        actor=EXECUTOR.id,
    )
    claimed = Effect.objects.filter(
        ~Exists(answered),
        step_id=OuterRef("pk"),
        settlement=Settlement.NOT_APPLIED,
        ground__in=["", Ground.REPORTED, Ground.DECIDED],
    )
    return ~Q(Exists(claimed))


def tries_left(most: int) -> Q:
    """A step's own-row condition: none of its effects was sent `most` times."""
    return ~Q(Exists(Effect.objects.filter(step_id=OuterRef("pk"), attempt__gte=most)))


def remembered(delay_s: float) -> Q:
    """A step's own-row condition: then, the provider still knows the keys of its first attempts."""
    attempts = Permit.objects.filter(run_id=OuterRef("run_id"), effect_key=OuterRef("key"))
    kept = ExpressionWrapper(
        Cast("kind__key_retention_s", IntegerField()) * Value(timedelta(seconds=1)),
        output_field=DurationField(),
    )
    old = Effect.objects.annotate(
        first=Subquery(attempts.order_by("opened_at").values("opened_at")[:1]), kept=kept
    ).filter(step_id=OuterRef("pk"), settlement=Settlement.NOT_APPLIED, first__lt=after(delay_s) - F("kept"))
    return ~Q(Exists(old))


def by_itself(delay_s: float) -> dict[str, Q]:
    """What holds for every retry that no person decided on, by the reason of its refusal."""
    return {UNVERIFIED: verified(), FORGOTTEN: remembered(delay_s)}


def schedule(
    *, actor: Actor, step: Step, worker: str, seen: int, delay_s: float, max_tries: int | None = None
) -> Step | Refusal:
    """A worker asks for another try in `delay_s` seconds; the gate is asked now, and again then.

    Raises NotFound, NotAllowed. A step that waits for its retry already is answered as it stands.
    """
    also = by_itself(delay_s) | ({USED_UP: tries_left(max_tries)} if max_tries else {})
    ask = Ask(step.run_id, actor, worker, seen, step_id=step.pk)
    return gate.retry(ask, due_in_s=delay_s, allowed=may_retry(), also=also)


def decide(*, actor: Actor, step: Step, seen: int, reason: str, delay_s: float = 0) -> Step | Refusal:
    """A person decides on another try, with a reason: also where only a worker's word is known.

    What may have happened stays out of reach. Raises NotFound, NotAllowed.
    """
    ask = Ask(step.run_id, actor, "", seen, step_id=step.pk)
    return gate.retry(ask, due_in_s=delay_s, allowed=may_retry(), decision=reason)


def plan(run: Run, step: Step) -> None:
    """A step failed just now, under the run's lock: schedule it again where its kinds say when.

    After a stop it is refused like any other, and recorded.
    """
    effects = list(Effect.objects.filter(step=step).select_related("kind").defer("body"))
    pause = pause_of(effects)
    if pause is None:
        return
    seen = step.claim_version or run.cancel_version
    ask = Ask(run.pk, EXECUTOR, "", seen, boundary=Boundary.RETRY, step_id=step.pk)
    now = view(run, ask)
    if now.step is not None and now.step.status == StepStatus.FAILED:
        retries.schedule(run, ask, now, pause, {BLIND: may_retry(), **by_itself(pause)})


def pause_of(effects: Sequence[Effect]) -> float | None:
    """Seconds until our executor tries again; None when it doesn't: another's, or no try is left."""
    sent = [effect for effect in effects if effect.settlement != Settlement.DECLARED]
    if any(effect.settlement != Settlement.NOT_APPLIED for effect in sent):
        return None
    pauses = [_next_pause(effect) for effect in sent]
    known = [pause for pause in pauses if pause is not None]
    return max(known) if known and len(known) == len(sent) else None


def _next_pause(effect: Effect) -> float | None:
    kind = effect.kind
    if effect.asks_about_id:  # after a stop every retry is refused
        return None
    if kind is None or kind.provider == Provider.OUTSIDE or not 0 < effect.attempt <= len(kind.retry_after_s):
        return None
    return float(kind.retry_after_s[effect.attempt - 1])
