"""What people decide: approve, reject, revoke.

Every way in comes through `objection`: a page, a second session, an admin. Tokens have no way in. A
decision is recorded under the run's lock, so a dispatch, a stop and another decision come before it
or after it, never between.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from typing import Any, ParamSpec

from runs import audit
from runs.access import Actor, NotFound, demand
from runs.evidence import Line, record
from runs.guard import lock_run
from runs.models import Evidence, Run, RunStatus, User
from runs.saying import words_in
from runs.store import Now, verb

from . import close, four_eyes, reviews
from .models import Approval, Effect, Review, Settlement
from .review_tables import ApprovalState, Closed, Subject

A_MINUTE, MANY = timedelta(minutes=1), 20  # nobody reads more calls than that in a minute
FRESH_S = 600.0  # how old the sign-in of somebody who approves may be
TEXT_MAX = 1000  # signs of a comment or a reason
STARTED = ("step.pending", "compensation.approved")
WHY_NOT: dict[str, str] = {
    "token": "Tokens never count: a person decides, signed in, on a page.",
    "closed": "This review is closed; there is nothing to decide any more.",
    "late": "A stop came first. Your decision is kept as evidence, and starts nothing.",
    "expired": "Its time is over: nobody decided in time.",
    "changed": "What is asked changed since you opened it. Read it again, then decide.",
    "owner": "You own this run, or made the token that registered it.",
    "proposer": "You asked for this, or made the token that asked.",
    "stopper": "You asked for a stop of this run, or for one that it was a part of.",
    "editor": "You changed it last.",
    "already": "You approved it already; another person has to.",
    "granted": "It has all the approvals it needs.",
    "unknown": "What the original effect came to is not known: verify it first.",
    "many": "You approved 20 in the last minute. Nobody reads that fast: wait a minute, then read this one.",
    "sign-in": "You signed in more than 10 minutes ago. Enter your password, then approve.",
    "used": "Too late: your approval was used, and the call may have been sent.",
    "none": "You have no approval here that could be revoked.",
    "reason": "Say why, so that whoever asked can learn from it.",
}


@dataclass(frozen=True)
class Decided:
    """What a decision came to: approved · granted · rejected · revoked; `started`: it is queued now."""

    review: Review
    answer: str
    started: bool = False


@dataclass(frozen=True)
class NotDecided:
    """Nothing was decided. `reason` is a key of WHY_NOT; the sentence is for the person."""

    review: Review
    reason: str

    @property
    def sentence(self) -> str:
        return WHY_NOT[self.reason]


P = ParamSpec("P")


def _on_record(decide: Callable[P, Decided | NotDecided]) -> Callable[P, Decided | NotDecided]:
    """A decision that was not taken leaves its mark, after its transaction."""

    @wraps(decide)
    def call(*args: P.args, **kwargs: P.kwargs) -> Decided | NotDecided:
        told = decide(*args, **kwargs)
        actor: Any = kwargs["actor"]
        if isinstance(told, NotDecided):
            stream = told.review.run.workspace_id
            why: dict[str, Any] = {"review": told.review.pk, "because": told.reason, "act": decide.__name__}
            audit.note("approval.refused", actor.id, stream=stream, **why)
        return told

    return call


def objection(review: Review, run: Run, actor: Actor, signed_in_s: float | None = None) -> str:
    """Why this actor may not approve this review now: a key of WHY_NOT, or "" when it may.

    `signed_in_s`: seconds since their password was asked last; None when that is not known. The right
    to approve at all is asked by `demand`; being an admin exempts from nothing here.
    """
    if actor.user is None or actor.via != "page":
        return "token"
    if review.closed_at is not None:
        return "closed"
    if four_eyes.is_over(review):
        return "expired"
    why = four_eyes.barred(review, run).get(actor.user.pk)
    if why is not None:
        return why
    return _not_needed(review, run, actor.user) or _not_now(review, actor.user, signed_in_s)


def _not_needed(review: Review, run: Run, person: User) -> str:
    """Why another yes of this person would add nothing."""
    counting = four_eyes.counting(review, run)
    if any(one.person_id == person.pk for one in counting):
        return "already"
    return "granted" if len(counting) >= review.needed else ""


def _not_now(review: Review, person: User, signed_in_s: float | None) -> str:
    if review.subject == Subject.COMPENSATION and not _may_be_answered(review):
        return "unknown"
    if Approval.objects.filter(person=person, given_at__gt=Now() - A_MINUTE).count() >= MANY:
        return "many"
    return "" if signed_in_s is not None and signed_in_s < FRESH_S else "sign-in"


def _may_be_answered(review: Review) -> bool:
    """Only what is known to have happened, at least in part, can be compensated."""
    known = [Settlement.CONFIRMED, Settlement.PARTIAL]
    return Effect.objects.filter(pk=review.effect_id, settlement__in=known).exists()


@_on_record
@verb
def approve(
    *, actor: Actor, review_id: str, digest: str, signed_in_s: float | None, comment: str = ""
) -> Decided | NotDecided:
    """One person's yes to the bytes with this digest, which is the one that they were shown.

    The n-th lets the step be claimed again, if the run goes on; under a pause it is kept and starts
    nothing. Of a compensation it queues it. Raises NotFound, NotAllowed.
    """
    run, review, lines = open_for(actor, review_id)
    why = objection(review, run, actor, signed_in_s)
    if why == "closed":
        why = _kept_as_evidence(run, review, actor, digest)
    elif not why and digest != review.digest:
        why = "changed"
    if why or actor.user is None:
        record(run, *lines)
        return NotDecided(review, why)
    approval = _give(review, actor.user.pk, comment)
    told = {"approval": approval.pk, "digest": digest, "comment": approval.comment}
    lines.append(reviews.line_of(review, "approval.given", actor.id, told))
    granted = four_eyes.is_granted(review, run)
    started = _grant(run, review, actor) if granted else []
    record(run, *lines, *started)
    starts = any(line.kind in STARTED for line in started)
    return Decided(review, "granted" if granted else "approved", starts)


def open_for(actor: Actor, review_id: str) -> tuple[Run, Review, list[Line]]:
    """The run, locked, and the review as its rows are now: approvals that don't count any more are void."""
    run_id = Review.objects.filter(pk=review_id).values_list("run_id", flat=True).first()
    if run_id is None:
        raise NotFound("review")
    run = lock_run(run_id)
    demand(actor, "approve", run)
    review = Review.objects.get(pk=review_id)
    if review.closed_at is not None:
        return run, review, []
    return run, review, [*reviews.refresh(review, run), *reviews.lapse(review, run)]


def _give(review: Review, person_id: int, comment: str) -> Approval:
    return Approval.objects.create(
        review=review,
        person_id=person_id,
        proposer_id=review.proposer_id,
        editor_id=review.editor_id,
        digest=review.digest,
        comment=comment.strip()[:TEXT_MAX],
        expires_at=review.expires_at,
    )


def _grant(run: Run, review: Review, actor: Actor) -> list[Line]:
    """Enough approvals are there. What that starts depends on the run, and is said."""
    Review.objects.filter(pk=review.pk).update(granted_at=Now())
    queued = reviews.granted(run, review, actor.id)
    what = "its step is queued" if review.subject == Subject.EFFECT else "it is queued"
    told = {"starts": what if queued else "nothing", "run_status": run.status}
    return [reviews.line_of(review, "review.granted", actor.id, told), *queued]


def _kept_as_evidence(run: Run, review: Review, actor: Actor, digest: str) -> str:
    """A yes that came after the stop: one line a person, and nothing else."""
    if not review.stop_id:
        return "closed"
    mine = Evidence.objects.filter(stream=run.pk, kind="approval.late", actor=actor.id)
    if not mine.filter(effect_key=review.effect_key).exists():
        told = {"digest": digest, "closed_as": review.closed_as, "starts": "nothing"}
        record(run, reviews.line_of(review, "approval.late", actor.id, told, review.stop_id))
    return "late"


@_on_record
@verb
def reject(*, actor: Actor, review_id: str, reason: str) -> Decided | NotDecided:
    """One no is enough, from anybody who may decide, also after others approved; until it is used.

    Its step is withheld, and the same effect is not sent in this run. A compensation that was rejected is
    not sent; another may be proposed. Raises NotFound, NotAllowed.
    """
    run, review, lines = open_for(actor, review_id)
    why = _not_rejectable(review, actor, reason)
    if why:
        record(run, *lines)
        return NotDecided(review, why)
    said = words_in(reason)[:TEXT_MAX]
    record(run, *lines, *reviews.close(run, review, Closed.REJECTED, actor.id, said))
    close.tell(run)
    return Decided(Review.objects.get(pk=review.pk), "rejected")


def _not_rejectable(review: Review, actor: Actor, reason: str) -> str:
    if actor.user is None or actor.via != "page":
        return "token"
    if review.closed_at is not None:
        return "used" if review.closed_as == Closed.USED else "closed"
    return "" if words_in(reason) else "reason"


@_on_record
@verb
def revoke(*, actor: Actor, review_id: str, reason: str = "") -> Decided | NotDecided:
    """Take one's own approval back, as long as no dispatch has used it: that one is told the truth.

    Raises NotFound, NotAllowed.
    """
    run, review, lines = open_for(actor, review_id)
    if actor.user is None or actor.via != "page":
        record(run, *lines)
        return NotDecided(review, "token")
    mine = Approval.objects.filter(review=review, person_id=actor.user.pk)
    if not Approval.revoke(mine.filter(state=ApprovalState.GIVEN), reason.strip()):
        record(run, *lines)
        used = mine.filter(state=ApprovalState.CONSUMED).exists()
        return NotDecided(review, "used" if used else "none")
    lines.append(reviews.line_of(review, "approval.revoked", actor.id, {"reason": reason.strip()[:TEXT_MAX]}))
    if not four_eyes.is_granted(review, run):
        Review.objects.filter(pk=review.pk).update(granted_at=None)
        lines += reviews.withdrawn(run, review, actor.id, "an approval was revoked")
    record(run, *lines)
    return Decided(Review.objects.get(pk=review.pk), "revoked")


# time ---------------------------------------------------------------------------------------------


def over(limit: int = 200) -> list[str]:
    """Open reviews whose time is over, the longest first."""
    rows = Review.objects.filter(closed_at__isnull=True, expires_at__lte=Now())
    return list(rows.order_by("expires_at").values_list("pk", flat=True)[:limit])


@verb
def expire(review_id: str) -> bool:
    """Close a review whose time is over, by the database's clock after the lock; again changes nothing."""
    run = lock_run(Review.objects.values_list("run_id", flat=True).get(pk=review_id))
    review = Review.objects.get(pk=review_id)
    if not four_eyes.is_over(review):
        return False
    record(run, *reviews.expire(run, review))
    if run.status != RunStatus.ACTIVE:
        close.tell(run)
    return True
