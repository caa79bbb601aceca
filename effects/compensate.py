"""The verbs of compensation until it is carried out: propose, edit, ask for changes, say it is not needed.

Approving, rejecting and revoking are those of every review (approvals.py); repair.py carries it out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from django.db.models import F

from runs.access import Actor, NotAllowed, NotFound, demand
from runs.evidence import Line, digest, record
from runs.guard import lock_run
from runs.models import Evidence, EvidencePayload, Run
from runs.saying import words_in
from runs.store import verb

from . import close, compensation_moves, four_eyes, plans, proposals, reviews
from .approvals import TEXT_MAX, WHY_NOT
from .compensation import RESTORE_FILES
from .models import Compensation, CompensationState, Effect, Review
from .plans import Call, Plan, declared
from .proposals import NotProposed, Possible
from .review_tables import Closed

__all__ = ["NotProposed", "Plan", "Possible", "as_declared", "declared", "proposable"]
BODY_MAX = 64 * 1024
NOT_DONE: dict[str, str] = {
    **WHY_NOT,
    "same": "That changes nothing of it.",
    "files": "What is put back is what was there before; that can't be written here.",
    "empty": "A title has to say what it does.",
    "size": "That is larger than what may be kept of a call.",
    "wish": "Say what should be changed.",
    "state": "It is not where that can be decided.",
}


@dataclass(frozen=True)
class NotDone:
    """Nothing was changed. `reason` is a key of NOT_DONE."""

    compensation: Compensation
    reason: str

    @property
    def sentence(self) -> str:
        return NOT_DONE[self.reason]


# what there would be ------------------------------------------------------------------------------


def proposable(effect: Effect) -> str:
    """Why nothing can be proposed for this effect now: a key of proposals.WHY_NOT, or "" when it can."""
    found = preview(effect)
    return found.reason if isinstance(found, NotProposed) else ""


def preview(effect: Effect) -> Possible | NotProposed:
    """What would be proposed, read without a lock, for a page; or why not, with its sentence."""
    return proposals.possible(effect.run, effect)


def nobody_else(run: Run, needed: int, actor: Actor | None = None) -> bool:
    """Whether nobody could approve it if this actor proposed it: the page says so before."""
    people = four_eyes.people_behind([actor.id]) if actor else set()
    return four_eyes.nobody_left(run, needed, four_eyes.barred_from(run, min(people, default=None)))


def as_declared(compensation: Compensation) -> Call | None:
    """The call as its declaration comes to now, for a diff; None where it can't be filled any more."""
    try:
        return plans.call_of(compensation.effect, declared(compensation.effect))
    except plans.CannotFill:
        return None


def wish_of(compensation: Compensation) -> str:
    """What whoever proposed it said to it."""
    lines = Evidence.objects.filter(stream=compensation.run_id, kind="compensation.proposed")
    seq = lines.filter(effect_key=compensation.key).values_list("seq", flat=True).first()
    kept = EvidencePayload.objects.filter(stream=compensation.run_id, seq=seq or 0).first()
    return str(json.loads(kept.body).get("wish", "")) if kept is not None and kept.body else ""


# propose ------------------------------------------------------------------------------------------


@verb
def propose(*, actor: Actor, effect_id: str, wish: str = "") -> Compensation | NotProposed:
    """Propose the compensation that was declared with an effect. People with the right resolve or approve,
    and tokens that may write this run (whoever made one is then barred from approving).

    Raises NotFound, NotAllowed.
    """
    if Compensation.objects.filter(pk=effect_id).exists():
        demand(actor, "read", Run.objects.get(compensations=effect_id))
        return NotProposed("itself")
    run_id = Effect.objects.filter(pk=effect_id).values_list("run_id", flat=True).first()
    if run_id is None:
        raise NotFound("effect")
    run = lock_run(run_id)
    demand_propose(actor, run)
    effect = Effect.objects.select_related("kind").get(pk=effect_id)
    told = proposals.propose(run, effect, actor, wish.strip()[:TEXT_MAX])
    if isinstance(told, Compensation):
        close.tell(run)
    return told


def demand_propose(actor: Actor, run: Run) -> None:
    """Raises NotFound for outsiders, NotAllowed for those who may neither resolve nor approve, nor write."""
    if actor.user is None:
        demand(actor, "write", run)
        return
    try:
        demand(actor, "resolve", run)
    except NotAllowed:
        demand(actor, "approve", run)


# change it ----------------------------------------------------------------------------------------


@verb
def edit(
    *,
    actor: Actor,
    compensation_id: str,
    digest: str,
    title: str | None = None,
    target: str | None = None,
    amount: str | None = None,
    body: bytes | None = None,
) -> Compensation | NotDone:
    """Change what would be sent; the kind stays. Every approval is void, and who changed it may not approve.

    `digest`: of the review as it was shown. Raises NotFound, NotAllowed.
    """
    run, compensation = _locked(actor, compensation_id, "resolve")
    review, lines = _open(run, compensation, actor)
    given = {"title": title, "target": target, "amount": amount, "body": body}
    new = {name: value for name, value in given.items() if value is not None}
    why = _not_editable(compensation, review, actor, digest, new)
    if why or review is None:
        record(run, *lines)
        return NotDone(compensation, why or "state")
    lines += _write(run, compensation, review, actor, new)
    record(run, *lines)
    close.tell(run)
    return _fresh(compensation)


def _not_editable(
    compensation: Compensation, review: Review | None, actor: Actor, digest: str, new: dict[str, Any]
) -> str:
    if actor.user is None or actor.via != "page":
        return "token"
    if review is None:
        return "state"
    if four_eyes.is_over(review):
        return "expired"
    if digest != review.digest:
        return "changed"
    return _not_writable(compensation, new)


def _not_writable(compensation: Compensation, new: dict[str, Any]) -> str:
    """Why this can't stand as its call: too large, without a title, or what stands there already."""
    if compensation.kind_name == RESTORE_FILES and "body" in new:
        return "files"
    if "title" in new and not words_in(new["title"]):
        return "empty"
    sizes = {**plans.SIZES, "body": BODY_MAX}
    if any(len(value) > sizes[name] for name, value in new.items()):
        return "size"
    same = all(_value(compensation, name) == value for name, value in new.items())
    return "same" if same else ""


def _value(compensation: Compensation, name: str) -> Any:
    value = getattr(compensation, name)
    return bytes(value) if name == "body" else value


def _write(
    run: Run, compensation: Compensation, review: Review, actor: Actor, new: dict[str, Any]
) -> list[Line]:
    """The new call, who wrote it, and every approval of the old one void."""
    assert actor.user is not None
    was = {name: getattr(compensation, name) for name in new if name != "body"}
    told = {"was": was, "now": {name: new[name] for name in was}, "was_body": compensation.body_digest}
    if "body" in new:
        new = {**new, "body_digest": digest(new["body"])}
    # first of all: what is approved can't be changed
    lines = reviews.take_back(run, review, "what was approved was edited")
    rows = Compensation.objects.filter(pk=compensation.pk)
    rows.update(**new, editor_id=actor.user.pk, edits=F("edits") + 1)
    Review.objects.filter(pk=review.pk).update(editor_id=actor.user.pk)
    told["now_body"] = new.get("body_digest", compensation.body_digest)
    edited = compensation_moves.line_of(_fresh(compensation), "compensation.edited", actor.id, told)
    review.editor_id = actor.user.pk
    return [*lines, edited, *reviews.refresh(review, run)]


@verb
def ask_for_changes(*, actor: Actor, compensation_id: str, wish: str) -> Compensation | NotDone:
    """A reviewer says what should be changed; every approval is void. Raises NotFound, NotAllowed."""
    run, compensation = _locked(actor, compensation_id, "approve")
    review, lines = _open(run, compensation, actor)
    said = words_in(wish)[:TEXT_MAX]
    why = "token" if _is_no_page(actor) else "wish" if not said else "state" if review is None else ""
    if why or review is None:
        record(run, *lines)
        return NotDone(compensation, why)
    Compensation.objects.filter(pk=compensation.pk).update(wishes=said)
    asked = compensation_moves.line_of(compensation, "compensation.changes_asked", actor.id, {"wish": said})
    record(run, *lines, asked, *reviews.take_back(run, review, "changes were asked for"))
    close.tell(run)
    return _fresh(compensation)


@verb
def not_needed(*, actor: Actor, compensation_id: str, reason: str) -> Compensation | NotDone:
    """A reviewer's decision that nothing has to be done: of a proposed one, or of one that failed.

    Raises NotFound, NotAllowed.
    """
    run, compensation = _locked(actor, compensation_id, "approve")
    review, lines = _open(run, compensation, actor)
    said = words_in(reason)[:TEXT_MAX]
    failed = compensation.state == CompensationState.FAILED
    why = "token" if _is_no_page(actor) else "reason" if not said else "" if review or failed else "state"
    if why:
        record(run, *lines)
        return NotDone(compensation, why)
    if review is not None:
        lines += reviews.close(run, review, Closed.NOT_NEEDED, actor.id, said)
    else:
        Compensation.not_needed(compensation, actor.id, said)
        lines.append(compensation_moves.decided(compensation, actor.id))
    record(run, *lines)
    close.tell(run)
    return _fresh(compensation)


def _is_no_page(actor: Actor) -> bool:
    return actor.user is None or actor.via != "page"


def _locked(actor: Actor, compensation_id: str, right: str) -> tuple[Run, Compensation]:
    run_id = Compensation.objects.filter(pk=compensation_id).values_list("run_id", flat=True).first()
    if run_id is None:
        raise NotFound("compensation")
    run = lock_run(run_id)
    demand(actor, right, run)
    return run, find(compensation_id)


def find(compensation_id: str) -> Compensation:
    """The compensation with its effect and kind, as its rows are now."""
    row: Compensation = Compensation.objects.select_related("effect", "kind", "run").get(pk=compensation_id)
    return row


def _fresh(compensation: Compensation) -> Compensation:
    return find(compensation.pk)


def _open(run: Run, compensation: Compensation, actor: Actor) -> tuple[Review | None, list[Line]]:
    """Its open review, after what does not hold any more was voided; None when nothing can be decided."""
    review = reviews.open_of(compensation)
    if review is None:
        return None, []
    return review, [*reviews.refresh(review, run), *reviews.lapse(review, run)]
