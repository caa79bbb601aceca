"""Asking the provider what happened, on a schedule with a stated end, and what each answer means.

A look-up that failed is not a look-up that found nothing; nothing found is not proof either.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, Q, Window
from django.db.models.functions import RowNumber

from runs import redaction
from runs.access import SYSTEM, Actor
from runs.evidence import Line, record
from runs.guard import lock_run
from runs.models import Permit, PermitState, Run, RunStatus
from runs.rules import redacting
from runs.store import Now, after, database_time, verb

from . import close, contradictions, jobs, retries
from .compensation import RESTORE_FILES
from .models import Account, Compensation, Delivery, Effect, Ground, Kind, Settlement
from .settle import OPEN_ONES, bear_out, contradict, happened, is_abandoned, line_of, settle_step

PRESENT, PARTIAL, ABSENT, CANT_TELL = "present", "partial", "absent", "can't tell"
REFUSED = "refused"  # by its provider's own word, which no look-up has
CALLED_BACK = "callback"
EVERY_S = (2, 5, 15, 60, 300, 900)
MOST_COUNTED = 2**31 - 1


@dataclass(frozen=True)
class Answer:
    """What a look-up saw: present · partial (`items`) · absent · can't tell, and the fields seen.

    `count`: how many objects the provider holds under the key, when it says so. `fenced`: it will never
    apply that key from now on. `job`: how far a job is, one of jobs.STATES, when the answer says so.
    `answered_by`: the agent that says it in its provider's place, by its actor id; CALLED_BACK: one that we
    asked at its address, so that nobody knows whose it is.
    """

    answer: str
    detail: str = ""
    observed: dict[str, Any] = field(default_factory=dict)
    items: Any = None
    provider_ref: str = ""
    count: int | None = None
    fenced: bool = False
    job: str = ""
    answered_by: str = ""

    @property
    def payload(self) -> dict[str, Any]:
        told = vars(self)
        return {name: value for name, value in told.items() if _says_something(value)}


def without_secrets(answer: Answer, workspace_id: str) -> Answer:
    """As it is kept: what it proves is not touched."""
    texts = ("detail", "observed", "items", "provider_ref")
    with redacting(workspace_id):
        return replace(answer, **{name: redaction.redact(getattr(answer, name)) for name in texts})


def _says_something(value: Any) -> bool:
    return value is not False and value not in (None, "", {}, [])


def due(limit: int = 100) -> list[str]:
    """Ids of UNKNOWN effects whose next check is due: of each kind in turn, the longest due first.

    So a provider that is slow, with thousands of effects to look up, holds up no other. Those whose agent
    comes for its look-ups (polled.py) are due here when their schedule is over.
    """
    rows = Effect.objects.filter(settlement=Settlement.UNKNOWN, next_check_at__lte=Now())
    rows = rows.filter(Q(kind__lookup__poll__isnull=True) | Q(check_until__lte=Now()))
    rows = rows.exclude(run__status=RunStatus.ABANDONED)  # there, only evidence that comes by itself
    turn = Window(RowNumber(), partition_by=F("kind_id"), order_by=F("next_check_at").asc())
    in_turn = rows.annotate(turn=turn).order_by("turn", "next_check_at")
    return list(in_turn.values_list("pk", flat=True)[:limit])


@dataclass(frozen=True)
class Asked:
    """When a look-up was begun, by the database's clock, and about which attempt."""

    at: datetime
    attempt: int

    @property
    def payload(self) -> dict[str, Any]:
        """As a line keeps it, so that what it proves can be judged again."""
        return {"asked_at": self.at.isoformat(), "attempt": self.attempt}


def take_turn(effect_id: str) -> tuple[Effect, Asked] | None:
    """Claim one due check by moving its time on, so that two workers don't ask twice."""
    rows = Effect.objects.filter(pk=effect_id, settlement=Settlement.UNKNOWN, next_check_at__lte=Now())
    return read_for_look_up(effect_id) if rows.update(next_check_at=after(30), turn_until=after(30)) else None


def read_for_look_up(effect_id: str) -> tuple[Effect, Asked]:
    """The effect, and the moment at which it is asked about."""
    rows = Effect.objects.select_related("kind", "run", "permit")
    effect: Any = rows.annotate(asked_at=Now()).get(pk=effect_id)
    return effect, Asked(effect.asked_at, effect.attempt)


@verb
def apply_answer(
    effect_id: str, answer: Answer, actor: Actor = SYSTEM, ground: str = "", asked: Asked | None = None
) -> str:
    """Record a look-up's answer and settle what it settles; returns the settlement afterwards.

    An answer counts as of the moment when it was asked for (None: just now): what has happened
    meanwhile it can't have seen.
    """
    run = lock_run(Effect.objects.values_list("run_id", flat=True).get(pk=effect_id))
    effect: Effect = Effect.objects.select_related("kind").get(pk=effect_id)
    return hear(run, effect, answer, actor, ground or Ground.LOOKED_UP, asked)


def hear(
    run: Run, effect: Effect, answer: Answer, actor: Actor, ground: str, asked: Asked | None = None
) -> str:
    """The same as a move of a locked run, of an effect that was read under its lock."""
    answer = without_secrets(answer, run.workspace_id)
    asked, was = asked or Asked(database_time(), effect.attempt), effect.settlement
    _count(effect, answer)
    meaning = meaning_of(effect, answer, asked)
    seen = line_of(effect, actor.id, {**answer.payload, **asked.payload, "means": meaning}, ground)
    by_itself = ground == Ground.WEBHOOK  # evidence that nobody asked for starts nothing
    lines = [_renamed(seen, "webhook.received" if by_itself else "effect.looked_up")]
    if effect.settlement in OPEN_ONES:
        lines += _settle(run, effect, answer, meaning, actor, ground)
    elif _disagrees(effect, meaning, asked, ground):
        contradict(effect, f"it was {was.lower().replace('_', ' ')}; a later answer says: {meaning}")
        lines += [line_of(effect, actor.id, {"was": was, "why": effect.why_unknown}, ground)]
    elif contradictions.bears_out(was, effect.ground, meaning, ground):
        lines += bear_out(effect, ground, actor.id, **_facts(answer))
    lines += jobs.heard(effect, answer.job, actor.id, ground)
    record(run, *lines)
    contradictions.follow(run, was, effect)
    settled = effect.settlement != was
    if effect.settlement == Settlement.NOT_APPLIED and settled and not by_itself:
        retries.plan(run, effect.step)
    close.advance(run, actor.id)
    return str(effect.settlement)


def _facts(answer: Answer) -> dict[str, Any]:
    """What it says beyond its word."""
    facts = {"items": answer.items, "provider_ref": answer.provider_ref}
    return {name: value for name, value in facts.items() if value not in (None, "")}


def _count(effect: Effect, answer: Answer) -> None:
    """Keep the most objects that were seen under the key, whatever else the answer proves."""
    before = -1 if effect.counted is None else effect.counted
    if answer.count is None or answer.count <= before:
        return
    effect.counted = min(answer.count, MOST_COUNTED)
    more = {"seen_twice": effect.counted} if effect.counted > 1 else {}
    Effect.objects.filter(pk=effect.pk).update(counted=effect.counted, **more)


def meaning_of(effect: Effect | Compensation | Delivery, answer: Answer, asked: Asked) -> str:
    """What an answer proves: `happened` · `partly` · `did not happen` · `nothing`. The one place that says
    so, of an answer that was just given and of one that a person cites later.

    Absence proves nothing inside the settle window (from the dispatch, and from the end of the last
    call), after the provider forgets keys, of another attempt than the newest, by rules that the kind
    did not have at the dispatch, at an account that was another one then, or while a lost holder might
    still send and the provider can't fence the key. That the provider refused it is proof where one call
    alone was made under the key.
    """
    if answer.answer == PRESENT:
        return "happened"
    if answer.answer == PARTIAL:
        return "partly"
    if answer.answer == REFUSED:
        return "did not happen" if _only_call(effect, asked) else "nothing"
    if answer.answer != ABSENT or isinstance(effect, Delivery):
        return "nothing"
    return "did not happen" if _absence_proves(effect, answer, asked) else "nothing"


def _absence_proves(effect: Effect | Compensation, answer: Answer, asked: Asked) -> bool:
    kind, sent = effect.kind, effect.dispatched_at
    if kind is None:  # files that are read under their lock need no window
        return getattr(effect, "kind_name", "") == RESTORE_FILES
    if sent is None or kind.updated_at > sent or _account_moved(kind, sent):
        return False
    over, last = _calls(effect, asked.at)
    settled = asked.at - max(last, sent) >= timedelta(seconds=kind.settle_window_s)
    known = asked.at - sent <= timedelta(seconds=kind.key_retention_s)
    return settled and known and asked.attempt == effect.attempt and (_is_fenced(answer, kind) or over)


def _account_moved(kind: Kind, since: datetime) -> bool:
    """Whether its account is at another place, or shows something else there, than what was sent did."""
    if not kind.account:
        return False
    rows = Account.objects.filter(workspace_id=kind.workspace_id, name=kind.account)
    return not rows.filter(Q(moved_at__isnull=True) | Q(moved_at__lte=since)).exists()


def _is_fenced(answer: Answer, kind: Kind) -> bool:
    """Whether no late send under this key can be applied. Where a kind has each look-up ask for it
    (`lookup.fence`), the answer says so; else it is what the kind promises (`key_fencing`). An agent that
    answers in its provider's place can say no more than its kind promised.
    """
    return answer.fenced if kind.lookup.get("fence") else kind.key_fencing


def _only_call(effect: Effect | Compensation | Delivery, asked: Asked) -> bool:
    """Whether it was told after the one call that was ever made, so that it can speak of no other."""
    if effect.dispatched_at is None or effect.dispatched_at > asked.at:
        return False
    mine = Permit.objects.filter(run_id=effect.run_id, effect_key=effect.key)
    return mine.exclude(state=PermitState.NOT_SENT).count() == 1


def _calls(effect: Effect | Compensation, at: datetime) -> tuple[bool, datetime]:
    """Whether each holder had said by then that its call was over, and when the last one did."""
    mine = Permit.objects.filter(run_id=effect.run_id, effect_key=effect.key)
    said, last = True, effect.dispatched_at or at
    for state, ended_at in mine.exclude(state=PermitState.NOT_SENT).values_list("state", "ended_at"):
        over = state == PermitState.REPORTED and (ended_at is None or ended_at <= at)
        said = said and over
        if state == PermitState.REPORTED and ended_at is not None:
            last = max(last, ended_at)
    return said, last


def _disagrees(effect: Effect, meaning: str, asked: Asked, ground: str) -> bool:
    """Whether an answer of equal or stronger ground speaks against a settlement that came before it."""
    later = effect.settled_at is None or effect.settled_at < asked.at
    return contradictions.disagrees(effect.settlement, effect.ground, meaning, ground, later=later)


def _settle(run: Run, effect: Effect, answer: Answer, meaning: str, actor: Actor, ground: str) -> list[Line]:
    facts = {"items": answer.items, "provider_ref": answer.provider_ref or effect.provider_ref}
    move = MOVES.get(meaning)
    if move is None or (effect.settlement == Settlement.DISPATCHED and move is Effect.deny):
        return [] if ground == Ground.WEBHOOK else _check_again(effect, actor)
    was = effect.settlement
    move(effect, ground, **facts)
    Effect.objects.filter(pk=effect.pk).update(checks=F("checks") + 1)
    happened(effect)
    return [line_of(effect, actor.id, {"was": was}, ground), *settle_step(run, effect.step, actor.id)]


MOVES = {
    "happened": Effect.confirm,
    "partly": Effect.confirm_partly,
    "did not happen": Effect.deny,
}


def _check_again(effect: Effect, actor: Actor) -> list[Line]:
    """Plan the next look-up, or say that this was the last."""
    if is_abandoned(effect):  # it was under way when the run was given up
        rows = Effect.objects.filter(pk=effect.pk)
        rows.update(checks=F("checks") + 1, next_check_at=None, turn_until=None)
        return []
    every = list(effect.kind.check_every_s) if effect.kind else []
    pause = _pause(every or list(EVERY_S), effect.checks)
    rows = Effect.objects.filter(pk=effect.pk, settlement=Settlement.UNKNOWN)
    rows.update(checks=F("checks") + 1, next_check_at=after(pause), turn_until=None)
    if not rows.filter(check_until__lt=F("next_check_at")).update(next_check_at=None):
        return []
    line = line_of(effect, actor.id, {"checks": effect.checks + 1}, "")
    return [_renamed(line, "reconcile.ended")]


def _pause(every: list[float], done: int) -> float:
    return float(every[min(done, len(every) - 1)])


def _renamed(line: Line, kind: str) -> Line:
    return replace(line, kind=kind)
