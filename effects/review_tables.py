"""The tables of decisions that people take beforehand: a review, and each person's approval of it.

One table for two subjects: an effect before it is sent, and a compensation. A review has no
machine: its moments are set once, and where it stands is read from them and from its approvals.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from django.db import models
from django.db.models import F, Q
from django_fsm import FSMField

from runs.columns import Prose, Words
from runs.machine import Changes, Machine, transition
from runs.models import Permit, Run, Step, User, Workspace
from runs.store import Now, new_id


class Subject(models.TextChoices):
    """What a review is about."""

    EFFECT = "effect"
    COMPENSATION = "compensation"


class Closed(models.TextChoices):
    """How a review closed: its approvals were used, or why there is nothing to decide any more."""

    USED = "used"
    REJECTED = "rejected"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    ENDED = "ended"
    VOID = "void"  # what it was about is not as it was, or may not be decided any more
    NOT_NEEDED = "not_needed"


class Review(models.Model):
    """What people are asked: may this be sent? One open at a time for each subject.

    `digest` is over the stored bytes of intent, plan and call, and the evidence up to `evidence_seq`;
    an approval counts for that digest only. `proposer`: the person behind whoever asked; `editor`: who
    changed it last. `granted_at`: since when enough approvals are there; `expires_at`: until when it
    must be decided and used.
    """

    id = models.CharField(max_length=40, primary_key=True, default=partial(new_id, "rev"))
    workspace = models.ForeignKey(Workspace, models.PROTECT, related_name="+")
    run = models.ForeignKey(Run, models.PROTECT, related_name="reviews")
    step = models.ForeignKey(Step, models.PROTECT, null=True, related_name="+")
    effect = models.ForeignKey("effects.Effect", models.PROTECT, related_name="reviews")
    effect_key = models.CharField(max_length=200)
    subject = models.CharField(max_length=12, choices=Subject, default=Subject.EFFECT)
    subject_id = models.CharField(max_length=40)
    digest = models.CharField(max_length=64)
    evidence_seq = models.BigIntegerField(default=0)
    needed = models.PositiveSmallIntegerField(default=1)
    asked_because = models.CharField(max_length=8, default="agent")
    asked_by = models.CharField(max_length=60)
    proposer = models.ForeignKey(User, models.PROTECT, null=True, related_name="+")
    editor = models.ForeignKey(User, models.PROTECT, null=True, related_name="+")
    asked_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField()
    granted_at = models.DateTimeField(null=True)
    closed_at = models.DateTimeField(null=True)
    closed_as = models.CharField(max_length=10, choices=Closed, blank=True)
    closed_by = models.CharField(max_length=60, blank=True)
    reason = Prose(blank=True)
    stop_id = models.CharField(max_length=40, blank=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=["subject", "subject_id"], name="review_open_once", condition=Q(closed_at__isnull=True)
            ),
            models.CheckConstraint(condition=Q(needed__gte=1), name="review_needs_somebody"),
            models.CheckConstraint(condition=Q(subject__in=Subject.values), name="review_subject"),
            models.CheckConstraint(
                condition=Q(closed_at__isnull=True, closed_as="")
                | Q(closed_at__isnull=False, closed_as__in=Closed.values),
                name="review_says_how_it_closed",
            ),
        )
        indexes = (
            models.Index(fields=["run", "effect_key"], name="review_of_effect"),
            models.Index(
                fields=["workspace", "-id"], name="review_open", condition=Q(closed_at__isnull=True)
            ),
            models.Index(fields=["workspace", "-id"], name="review_newest"),
            models.Index(fields=["expires_at"], name="review_due", condition=Q(closed_at__isnull=True)),
        )

    def __str__(self) -> str:
        return f"review of {self.effect_key}"


class ApprovalState(models.TextChoices):
    """What became of one person's yes."""

    GIVEN = "GIVEN"
    CONSUMED = "CONSUMED"
    REVOKED = "REVOKED"
    VOID = "VOID"
    EXPIRED = "EXPIRED"


def _as_approved(permit: Permit, digest: str) -> Q:
    """The bytes are those that were approved, and the time is not over: by the clock of this statement."""
    return Q(digest=digest, expires_at__gt=Now())


class Approval(Machine):
    """One person's yes to one digest; used up by the one dispatch that it allows."""

    moved: ClassVar[frozenset[str]] = frozenset({"state"})

    id = models.CharField(max_length=40, primary_key=True, default=partial(new_id, "apv"))
    review = models.ForeignKey(Review, models.PROTECT, related_name="approvals")
    person = models.ForeignKey(User, models.PROTECT, related_name="+")
    proposer = models.ForeignKey(User, models.PROTECT, null=True, related_name="+")
    editor = models.ForeignKey(User, models.PROTECT, null=True, related_name="+")
    digest = models.CharField(max_length=64)
    comment = Prose(blank=True)
    state = FSMField(max_length=8, choices=ApprovalState, default=ApprovalState.GIVEN)
    given_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    why = Words(max_length=200, blank=True)
    permit = models.ForeignKey(Permit, models.PROTECT, null=True, related_name="+")

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=["review", "person"], name="approval_once", condition=Q(state="GIVEN")
            ),
            models.CheckConstraint(condition=Q(state__in=ApprovalState.values), name="approval_state"),
            models.CheckConstraint(
                condition=Q(proposer__isnull=True) | ~Q(person=F("proposer")), name="approval_not_by_proposer"
            ),
            models.CheckConstraint(
                condition=Q(editor__isnull=True) | ~Q(person=F("editor")), name="approval_not_by_editor"
            ),
        )
        indexes = (models.Index(fields=["review", "state"], name="approval_of_review"),)

    def __str__(self) -> str:
        return f"{self.person} {self.state}"

    @transition(field="state", source=["GIVEN"], target="CONSUMED", guard=_as_approved)
    @staticmethod
    def consume(permit: Permit, digest: str) -> Changes:
        """Used by the dispatch that it allowed, in the transaction of that dispatch."""
        return {"permit": permit, "ended_at": Now()}

    @transition(field="state", source=["GIVEN"], target="REVOKED")
    @staticmethod
    def revoke(why: str = "") -> Changes:
        """Taken back by the person who gave it, before it was used."""
        return _ended(why)

    @transition(field="state", source=["GIVEN"], target="VOID")
    @staticmethod
    def void(why: str = "") -> Changes:
        """What was approved changed, its review closed, or its giver may not decide any more."""
        return _ended(why)

    @transition(field="state", source=["GIVEN"], target="EXPIRED")
    @staticmethod
    def expire(why: str = "") -> Changes:
        """Not used in time."""
        return _ended(why)


def _ended(why: str) -> dict[str, Any]:
    return {"ended_at": Now(), "why": why[:200]}
