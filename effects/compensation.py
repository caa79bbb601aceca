"""Compensation: a new, deliberate effect that lessens an earlier one. Part of effects.models.

It has its own key, gate, settlement and verification, and never rewrites what it answers.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from django.db import models
from django.db.models import F, Q
from django_fsm import FSMField

from runs.columns import Prose, Told, Words
from runs.machine import Changes, Machine, transition
from runs.models import OperationClass, Permit, Run, User
from runs.store import Now, new_id


class CompensationState(models.TextChoices):
    """Where a compensation stands."""

    PROPOSED = "PROPOSED"
    APPROVED = "APPROVED"
    REJECTED = "REJECTED"
    EXPIRED = "EXPIRED"
    VOID = "VOID"
    NOT_NEEDED = "NOT_NEEDED"
    DISPATCHED = "DISPATCHED"
    VERIFIED = "VERIFIED"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"
    ACCEPTED_UNKNOWN = "ACCEPTED_UNKNOWN"


RESTORE_FILES = "restore_files"  # the plan of provider workspace itself: put back what was there before
UNDECIDED = (CompensationState.PROPOSED, CompensationState.APPROVED)
IN_DOUBT = (CompensationState.DISPATCHED, CompensationState.UNKNOWN)
OPEN = (*UNDECIDED, *IN_DOUBT)  # an effect has at most one of these


class Compensation(Machine):
    """One proposed call, exactly as it would be sent: `body` are its raw bytes.

    What was declared before the effect stands in the effect's own `plan`. `key` is this row's own and
    is the same on every attempt; a second try is a new row (`number` + 1). `run_version`: of the run when
    it was proposed or last read anew; it is sent at that version alone. `queued_at`: it waits for our
    executor. DISPATCHED with a permit that is REPORTED: done, and being verified.
    """

    moved: ClassVar[frozenset[str]] = frozenset({"state"})

    id = models.CharField(max_length=40, primary_key=True, default=partial(new_id, "cmp"))
    run = models.ForeignKey(Run, models.PROTECT, related_name="compensations")
    effect = models.ForeignKey("effects.Effect", models.PROTECT, related_name="compensations")
    number = models.PositiveSmallIntegerField(default=1)
    kind = models.ForeignKey("effects.Kind", models.PROTECT, null=True, related_name="+")
    kind_name = models.CharField(max_length=120)
    op_class = models.CharField(max_length=20, choices=OperationClass)
    key = models.CharField(max_length=200)
    title = Words(max_length=300)
    target = Words(max_length=300, blank=True)
    amount = Words(max_length=60, blank=True)
    body = models.BinaryField(default=bytes)
    body_digest = models.CharField(max_length=64)
    expected = Prose(blank=True)
    risks = Prose(blank=True)
    state = FSMField(max_length=16, choices=CompensationState, default=CompensationState.PROPOSED)
    run_version = models.BigIntegerField()
    permit = models.ForeignKey(Permit, models.PROTECT, null=True, related_name="+")
    proposed_by = models.CharField(max_length=60)
    proposer = models.ForeignKey(User, models.PROTECT, null=True, related_name="+")
    editor = models.ForeignKey(User, models.PROTECT, null=True, related_name="+")
    edits = models.PositiveSmallIntegerField(default=0)
    wishes = Prose(blank=True)  # what a reviewer asked to have changed, last
    decided_by = models.CharField(max_length=60, blank=True)
    reason = Prose(blank=True)
    proposed_at = models.DateTimeField(db_default=Now())
    decided_at = models.DateTimeField(null=True)
    queued_at = models.DateTimeField(null=True)
    dispatched_at = models.DateTimeField(null=True)
    settled_at = models.DateTimeField(null=True)
    unknown_since = models.DateTimeField(null=True)
    attempt = models.PositiveIntegerField(default=0)
    ground = models.CharField(max_length=12, blank=True)
    result = Told(null=True)
    provider_ref = Words(max_length=300, blank=True)
    items = Told(null=True)
    why_unknown = Words(max_length=200, blank=True)
    late = models.BooleanField(default=False)
    next_check_at = models.DateTimeField(null=True)
    check_until = models.DateTimeField(null=True)
    turn_until = models.DateTimeField(null=True)  # somebody asks about it until then
    checks = models.PositiveIntegerField(default=0)
    counted = models.PositiveIntegerField(null=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["run", "key"], name="compensation_key_once"),
            models.UniqueConstraint(fields=["effect", "number"], name="compensation_number_once"),
            models.UniqueConstraint(
                fields=["effect"], name="compensation_open_once", condition=Q(state__in=OPEN)
            ),
            models.CheckConstraint(
                condition=Q(state__in=CompensationState.values), name="compensation_state"
            ),
        )
        indexes = (
            models.Index(fields=["run", "state"], name="compensation_by_state"),
            models.Index(
                fields=["queued_at"],
                name="compensation_queued",
                condition=Q(state="APPROVED", queued_at__isnull=False),
            ),
            models.Index(
                fields=["next_check_at"],
                name="compensation_to_check",
                condition=Q(state__in=IN_DOUBT, next_check_at__isnull=False),
            ),
            models.Index(fields=["unknown_since"], name="compensation_unknown", condition=Q(state="UNKNOWN")),
            models.Index(
                fields=["settled_at"],
                name="compensation_was_unknown",
                condition=Q(unknown_since__isnull=False, settled_at__isnull=False),
            ),
            models.Index(
                fields=["dispatched_at"],
                name="compensation_by_dispatch",
                condition=Q(dispatched_at__isnull=False),
            ),
        )

    def __str__(self) -> str:
        return self.title

    @transition(field="state", source=["PROPOSED"], target="APPROVED")
    @staticmethod
    def approve(queued_at: Any = None) -> Changes:
        """Enough people said yes; `queued_at`: our executor may take it."""
        return {"queued_at": queued_at}

    @transition(field="state", source=["APPROVED"], target="PROPOSED")
    @staticmethod
    def withdraw_approval() -> Changes:
        """An approval was taken back, or what was approved changed."""
        return {"queued_at": None}

    @transition(field="state", source=["PROPOSED"], target="REJECTED")
    @staticmethod
    def reject(by: str, reason: str) -> Changes:
        """Somebody who may decide said no."""
        return _decided(by, reason)

    @transition(field="state", source=["PROPOSED", "APPROVED"], target="EXPIRED")
    @staticmethod
    def expire(reason: str = "") -> Changes:
        """Nobody decided, or it was not sent, in time."""
        return _decided("system", reason)

    @transition(field="state", source=["PROPOSED", "APPROVED"], target="VOID")
    @staticmethod
    def void(by: str, reason: str) -> Changes:
        """What it stood on is gone: its run was resumed or abandoned, its effect contradicted."""
        return _decided(by, reason)

    @transition(field="state", source=["PROPOSED", "FAILED"], target="NOT_NEEDED")
    @staticmethod
    def not_needed(by: str, reason: str) -> Changes:
        """A reviewer decided that nothing has to be done."""
        return _decided(by, reason)

    @transition(field="state", source=["APPROVED"], target="DISPATCHED")
    @staticmethod
    def dispatch(permit: Permit) -> Changes:
        """Its approvals were used by this permit, in this transaction."""
        return {
            "permit": permit,
            "attempt": F("attempt") + 1,
            "dispatched_at": Now(),
            "queued_at": None,
            "settled_at": None,
            "why_unknown": "",
            "unknown_since": None,
        }

    @transition(field="state", source=["DISPATCHED"], target="PROPOSED")
    @staticmethod
    def take_back() -> Changes:
        """Its permit was NOT_SENT; the approvals are used up."""
        return {"next_check_at": None}

    @transition(field="state", source=["DISPATCHED", "UNKNOWN"], target="VERIFIED")
    @staticmethod
    def verify(ground: str, **facts: Any) -> Changes:
        """A look-up, a webhook or a named person saw that it is there."""
        return _settled(ground, facts)

    @transition(field="state", source=["DISPATCHED", "UNKNOWN"], target="FAILED")
    @staticmethod
    def fail(ground: str, **facts: Any) -> Changes:
        """It did not happen, or only partly (`items`)."""
        return _settled(ground, facts)

    @transition(field="state", source=["DISPATCHED"], target="UNKNOWN")
    @staticmethod
    def lose(why: str, next_check_at: Any = None, check_until: Any = None) -> Changes:
        """Nobody can say whether it happened."""
        return {
            "why_unknown": why,
            "unknown_since": Now(),
            "next_check_at": next_check_at,
            "check_until": check_until,
        }

    @transition(field="state", source=["UNKNOWN"], target="ACCEPTED_UNKNOWN")
    @staticmethod
    def accept_unknown() -> Changes:
        """Two people decided that it can't be determined."""
        return {"next_check_at": None, "settled_at": Now(), "ground": "decided"}


def _decided(by: str, reason: str) -> dict[str, Any]:
    return {"decided_by": by, "reason": reason, "decided_at": Now(), "queued_at": None}


def _settled(ground: str, facts: dict[str, Any]) -> dict[str, Any]:
    return {"ground": ground, "settled_at": Now(), "next_check_at": None, **facts}
