"""resume(): a decision of its own. It starts nothing; workers claim again at the new version."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from runs import policies, scopes, stops
from runs.access import Actor, NotFound, demand
from runs.evidence import Line, record
from runs.guard import lock_run
from runs.models import FINAL, Gate, Policy, Reach, Run, RunStatus, Session, StopRequest, Workspace
from runs.saying import words_in
from runs.store import after, verb

from . import close, delivery_moves, four_eyes, reviews
from .compensation import IN_DOUBT
from .models import Compensation, Delivery, DeliveryState, Effect, Review, Settlement
from .review_tables import Subject

SAFE, SKIP, WAIT = "safe to run", "skip, settled", "must wait"
ACCEPTED = "skip, accepted as unknown"
ASKED, DENIED = "waits for approval", "skip, not approved"  # the gate asks people first, or they said no
STEP = "skip, its step was stopped"
ANSWERS: dict[str, str] = {
    Settlement.DECLARED: SAFE,
    Settlement.NOT_APPLIED: SAFE,
    Settlement.CONFIRMED: SKIP,
    Settlement.PARTIAL: SKIP,
    Settlement.NOT_STARTED: SKIP,
    Settlement.ACCEPTED_UNKNOWN: ACCEPTED,
    Settlement.DISPATCHED: WAIT,
    Settlement.UNKNOWN: WAIT,
}
DELIVERY_ANSWERS: dict[str, str] = {
    DeliveryState.QUEUED: SAFE,
    DeliveryState.HELD: SAFE,
    DeliveryState.NOT_HANDED_OVER: SAFE,
    DeliveryState.HANDED_OVER: SKIP,
    DeliveryState.WITHHELD: SKIP,
    DeliveryState.ACCEPTED_UNKNOWN: ACCEPTED,
    DeliveryState.DISPATCHED: WAIT,
    DeliveryState.UNKNOWN: WAIT,
}
WHY: dict[str, str] = {
    "draining": "It is still draining. It can be resumed once it is paused.",
    "stopping": "A stop that is not resumed is in force. Start a new run from the evidence of this one.",
    "ended": "This run has ended. Start a new run from its evidence.",
    "running": "There is nothing to resume: the run may start new work.",
    "superseded": "Something came since this was decided. Read it, then decide again.",
    "gate": "{scope} is shut. Release that first; a resume does not open it.",
    "must wait": "An effect or a compensation is in progress or unknown. Settle it first: a resume never "
    "sends it again.",
}
ELSEWHERE: dict[str, str] = {
    RunStatus.ACTIVE: "running",
    RunStatus.PAUSING: "draining",
    RunStatus.CANCELLING: "stopping",
    RunStatus.CANCELLING_TIMEOUT: "stopping",
    RunStatus.UNKNOWN: "stopping",
}
TOLD = 500  # effects that the line of a resume names one by one; each has lines of its own


class NoReason(ValueError):
    """A resume is a decision: say why the run may go on. Nothing was changed."""


@dataclass(frozen=True)
class Item:
    """One effect and what a resumed worker may do with its key."""

    key: str
    title: str
    settlement: str
    answer: str
    id: str = ""


@dataclass(frozen=True)
class Seen:
    """What the person who decides has read; whatever came later beats the decision.

    The stop's id, the run's version, and how often that stop had been pressed. Empty: not told.
    """

    stop_id: str = ""
    version: int | None = None
    presses: int | None = None

    def is_old(self, run: Run, stop: StopRequest | None) -> bool:
        """Whether another stop, another resume or one more press came since."""
        if self.stop_id and (stop is None or stop.pk != self.stop_id):
            return True
        if self.version is not None and self.version != run.cancel_version:
            return True
        return self.presses is not None and self.presses != (stop.presses.count() if stop else 0)


@dataclass(frozen=True)
class Resumed:
    """The run is ACTIVE again at `run.cancel_version`; `items` is what was decided upon."""

    run: Run
    items: list[Item]


@dataclass(frozen=True)
class NotResumed:
    """The refusal is the list: which effect stands in the way. `reason` is a key of WHY.

    `scope` names a scope above that is shut, `stop` is the one in force now.
    """

    run: Run
    reason: str
    items: list[Item]
    scope: str = ""
    stop: StopRequest | None = None

    @property
    def sentence(self) -> str:
        return WHY[self.reason].format(scope=self.scope)


def plan(run: Run) -> list[Item]:
    """Per effect, and delivery, which counts as one: safe to run · waits for approval · skip · must wait.

    A compensation that was sent, and of which nobody knows yet, must wait too.
    """
    effects = Effect.objects.filter(run=run).order_by("pk").values_list("key", "title", "settlement", "pk")
    decided = _decided(run)
    deliveries = Delivery.objects.filter(run=run).order_by("pk").values_list("key", "title", "state", "pk")
    return [
        *(Item(key, title, state, _answer(state, decided.get(pk)), pk) for key, title, state, pk in effects),
        *(Item(key, title, state, DELIVERY_ANSWERS[state], pk) for key, title, state, pk in deliveries),
        *(Item(key, title, state, WAIT, pk) for key, title, state, pk in _in_doubt(run)),
    ]


def _in_doubt(run: Run) -> Any:
    rows = Compensation.objects.filter(run=run, state__in=IN_DOUBT).order_by("pk")
    return rows.values_list("key", "title", "state", "pk")


def _answer(settlement: str, decided: str | None) -> str:
    """What people decide about counts only where the gate would let a worker send it."""
    answer = ANSWERS[settlement]
    return decided if decided and answer == SAFE else answer


def _decided(run: Run) -> dict[str, str]:
    """Effects that a worker may not send yet, or not at all, by their newest review or their step's stop."""
    found: dict[str, str] = {}
    for review in Review.objects.filter(run=run, subject=Subject.EFFECT).order_by("pk"):
        is_open = review.closed_at is None
        found.pop(review.effect_id, None)
        if is_open and not (review.granted_at and four_eyes.still_granted(review, run)):
            found[review.effect_id] = ASKED
        elif review.closed_as in reviews.NO:
            found[review.effect_id] = DENIED
    stopped = Effect.objects.filter(run=run, step__stopped_at__isnull=False)
    return found | dict.fromkeys(stopped.values_list("pk", flat=True), STEP)


@verb
def resume(*, actor: Actor, run_id: str, reason: str, seen: Seen | None = None) -> Resumed | NotResumed:
    """Make a PAUSED run ACTIVE again, at a new version and the scopes' current epochs.

    `seen`: what the decision is about; a stop, a press or a resume that came since beats it. Raises
    NotFound, NotAllowed, NoReason. Settled effects are never sent again, whatever a worker asks.
    """
    epochs, shut = _lock_scopes(run_id)
    run = lock_run(run_id)
    demand(actor, "resume", run)
    if not words_in(reason):
        raise NoReason(run_id)
    items, stop = plan(run), stops.open_stop(run)
    why = _why_not(run, (seen or Seen()).is_old(run, stop), shut, items)
    if why is not None:
        return NotResumed(run, why, items, shut, stop)
    before = run.cancel_version
    # its workers get time to come back before it counts as silent again
    Run.resume(run, epochs | {"silent_at": after(run.silent_after_s)})
    run = Run.objects.get(pk=run.pk)
    _record(run, actor, reason, before, stop, items)
    close.tell(run)
    return Resumed(run, items)


def _record(
    run: Run, actor: Actor, reason: str, before: int, stop: StopRequest | None, items: list[Item]
) -> None:
    """The decision with what it stood on; the stop that it ends is closed."""
    answers = Counter(item.answer for item in items)
    effects = [{"key": item.key, "answer": item.answer} for item in items[:TOLD]]
    told = {"reason": reason, "answers": answers, "effects": effects}
    versions: dict[str, Any] = {"carried_version": before, "current_version": run.cancel_version}
    lines = [Line("run.resumed", actor.id, told, stop_id=stop.pk if stop else "", **versions)]
    if stop is not None:
        stops.close(stop, stops.RESUMED)
        lines.append(Line("stop.closed", actor.id, {"because": stops.RESUMED}, stop_id=stop.pk))
    record(run, *lines, *delivery_moves.resumed(run, actor.id), *reviews.resumed(run, actor))


def _why_not(run: Run, old: bool, shut: str, items: list[Item]) -> str | None:
    if run.status != RunStatus.PAUSED:
        return "ended" if run.status in FINAL else ELSEWHERE[run.status]
    if old:
        return "superseded"
    if shut:
        return "gate"
    return "must wait" if any(item.answer == WAIT for item in items) else None


def shut_scope(run: Run) -> str:
    """The first scope above a run that is shut, in words; "" when all are open. Read without a lock."""
    return _shut(_scopes(run, run.workspace))


def _scopes(run: Run, workspace: Workspace) -> list[scopes.Scope]:
    """What holds a whole run: its policies by now, its workspace and its session. A policy of effects
    withholds no run."""
    above: list[scopes.Scope] = [*policies.over(run.workspace_id, run.labels, reach=Reach.RUNS), workspace]
    return above + ([Session.objects.get(pk=run.session_id)] if run.session_id else [])


def _shut(above: list[scopes.Scope]) -> str:
    shut = next((scope for scope in above if scope.gate != Gate.OPEN), None)
    return f"{type(shut).__name__} “{shut}”" if shut is not None else ""


def _lock_scopes(run_id: str) -> tuple[dict[str, Any], str]:
    """The epochs of the scopes above a run, and the name of one that is shut.

    The workspace's lock is enough: nobody changes a gate in it without that lock.
    """
    run = Run.objects.filter(pk=run_id).first()
    if run is None:
        raise NotFound("run")
    above = _scopes(run, Workspace.objects.select_for_update(no_key=True).get(pk=run.workspace_id))
    named = {type(scope): scope.epoch for scope in above}
    held = {scope.pk: scope.epoch for scope in above if isinstance(scope, Policy)}
    epochs = {"admitted_epoch": named[Workspace], "policy_epochs": held}
    return epochs | ({"session_epoch": named[Session]} if run.session_id else {}), _shut(above)
