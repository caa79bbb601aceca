"""Delivery: one outbound message of a run, with its own record and gate. Part of effects.models.

Cancelling a run does not prove a message unsent: a delivery says itself what became of it.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from django.db import models
from django.db.models import F, Q
from django_fsm import FSMField

from runs.columns import Words
from runs.machine import Changes, Machine, transition
from runs.models import Permit, Run
from runs.store import Now, new_id


class Channel(models.TextChoices):
    """How a message leaves: we send it to a URL or by e-mail, or the agent hands it over itself."""

    WEBHOOK = "webhook"
    EMAIL = "email"
    OUTSIDE = "outside"


class DeliveryState(models.TextChoices):
    """What is known of a message."""

    QUEUED = "QUEUED"
    DISPATCHED = "DISPATCHED"
    HELD = "HELD"
    WITHHELD = "WITHHELD"
    HANDED_OVER = "HANDED_OVER"
    NOT_HANDED_OVER = "NOT_HANDED_OVER"
    UNKNOWN = "UNKNOWN"
    ACCEPTED_UNKNOWN = "ACCEPTED_UNKNOWN"


class Delivery(Machine):
    """One message under a stable key. `queued_version`: the run's version at which it may be sent.

    `ground`: on what its settlement stands; None: its holder's word. UNKNOWN with `settled_at`: contradicted.
    `body` holds the bytes exactly as they were queued; `turn_at` is when our sender asks next.
    """

    moved: ClassVar[frozenset[str]] = frozenset({"state"})

    id = models.CharField(max_length=40, primary_key=True, default=partial(new_id, "dlv"))
    run = models.ForeignKey(Run, models.PROTECT, related_name="deliveries")
    permit = models.ForeignKey(Permit, models.PROTECT, null=True, related_name="+")
    key = models.CharField(max_length=200)
    channel = models.CharField(max_length=8, choices=Channel)
    target = models.CharField(max_length=2000)
    title = Words(max_length=300)
    content_type = models.CharField(max_length=100)
    body = models.BinaryField(default=bytes)
    body_digest = models.CharField(max_length=64)
    parameters_digest = models.CharField(max_length=64)
    state = FSMField(max_length=16, choices=DeliveryState, default=DeliveryState.QUEUED)
    queued_version = models.BigIntegerField()
    attempt = models.PositiveIntegerField(default=0)
    late = models.BooleanField(default=False)
    ground = models.CharField(max_length=12, null=True)  # noqa: DJ001  (nullable: see docs/operating.md)
    detail = Words(max_length=300, blank=True)
    provider_ref = Words(max_length=300, blank=True)
    queued_at = models.DateTimeField(db_default=Now())
    turn_at = models.DateTimeField(null=True)
    dispatched_at = models.DateTimeField(null=True)
    settled_at = models.DateTimeField(null=True)
    unknown_since = models.DateTimeField(null=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["run", "key"], name="delivery_key_once"),
            models.CheckConstraint(condition=Q(state__in=DeliveryState.values), name="delivery_state"),
            models.CheckConstraint(condition=Q(channel__in=Channel.values), name="delivery_channel"),
        )
        indexes = (
            models.Index(fields=["run", "state"], name="delivery_by_state"),
            models.Index(
                fields=["turn_at"],
                name="delivery_to_send",
                condition=Q(state="QUEUED", turn_at__isnull=False),
            ),
            models.Index(fields=["unknown_since"], name="delivery_unknown", condition=Q(state="UNKNOWN")),
            models.Index(
                fields=["settled_at"],
                name="delivery_was_unknown",
                condition=Q(unknown_since__isnull=False, settled_at__isnull=False),
            ),
        )

    def __str__(self) -> str:
        return self.title

    @transition(field="state", source=["QUEUED"], target="DISPATCHED")
    @staticmethod
    def dispatch(permit: Permit) -> Changes:
        """A permit to hand it over was opened in this transaction."""
        return {
            "permit": permit,
            "attempt": F("attempt") + 1,
            "dispatched_at": Now(),
            "settled_at": None,
            "turn_at": None,
            "detail": "",
            "late": False,
            "ground": None,
            "unknown_since": None,
        }

    @transition(field="state", source=["QUEUED"], target="HELD")
    @staticmethod
    def hold() -> Changes:
        """A pause: nothing was handed over; a resume queues it again."""
        return {"turn_at": None}

    @transition(field="state", source=["HELD", "NOT_HANDED_OVER"], target="QUEUED")
    @staticmethod
    def queue_again(version: int, turn_at: Any = None) -> Changes:
        """A resume, or a retry of what is known not to have been handed over. The gate is asked again."""
        return {"queued_version": version, "turn_at": turn_at, "settled_at": None}

    @transition(field="state", source=["DISPATCHED"], target="QUEUED")
    @staticmethod
    def take_back(turn_at: Any = None) -> Changes:
        """Its permit was NOT_SENT, by its own token."""
        return {"turn_at": turn_at}

    @transition(field="state", source=["QUEUED", "HELD", "NOT_HANDED_OVER"], target="WITHHELD")
    @staticmethod
    def withhold() -> Changes:
        """A stop came first: it will not be handed over."""
        return {"turn_at": None, "settled_at": Now()}

    @transition(field="state", source=["DISPATCHED", "UNKNOWN", "ACCEPTED_UNKNOWN"], target="HANDED_OVER")
    @staticmethod
    def hand_over(**facts: Any) -> Changes:
        """Its receiver took it. Nothing calls it back."""
        return _settled(facts)

    @transition(field="state", source=["DISPATCHED", "UNKNOWN", "ACCEPTED_UNKNOWN"], target="NOT_HANDED_OVER")
    @staticmethod
    def fail(**facts: Any) -> Changes:
        """It is known that it was not taken."""
        return _settled(facts)

    @transition(field="state", source=["DISPATCHED"], target="UNKNOWN")
    @staticmethod
    def lose(why: str) -> Changes:
        """Timeout, lost reply, killed process: we lack confirmation."""
        return {"detail": why, "unknown_since": Now()}

    @transition(field="state", source=["HANDED_OVER", "NOT_HANDED_OVER"], target="UNKNOWN")
    @staticmethod
    def contradict(why: str, late: bool = False) -> Changes:
        """Later evidence of equal or stronger ground disagrees, or a second person does; `late`: its run had
        ended by then."""
        return {**({"late": True} if late else {}), "detail": why, "unknown_since": Now()}

    @transition(field="state", source=["UNKNOWN"], target="ACCEPTED_UNKNOWN")
    @staticmethod
    def accept_unknown() -> Changes:
        """Two people accepted that it cannot be determined."""
        return {"settled_at": Now(), "ground": "decided"}


def _settled(facts: dict[str, Any]) -> Changes:
    return {"settled_at": Now(), **facts}
