"""What touched the world: kinds, effects and the issued reports."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any, ClassVar

from django.db import models
from django.db.models import F, Q
from django_fsm import FSMField

from runs.columns import Prose, Told, Words
from runs.machine import Changes, Machine, transition
from runs.models import OperationClass, Permit, Run, Step, Workspace
from runs.store import Now, new_id

from .account import Account, Inbound
from .compensation import Compensation, CompensationState
from .delivery import Channel, Delivery, DeliveryState
from .resolution import Attachment, Care, Matter, Resolution, Verdict
from .review_tables import Approval, Review
from .sign_off import SignOff


class Provider(models.TextChoices):
    """Who sends: our executor, by one of the modules in effects/providers, or the agent itself."""

    HTTP = "http"
    WORKSPACE = "workspace"
    JOB = "job"
    EMAIL = "email"
    BROWSER = "browser"
    MODEL = "model"
    OUTSIDE = "outside"


SENT_BY_US = tuple(one for one in Provider if one != Provider.OUTSIDE)
DUE_AFTER = timedelta(hours=4)


class Kind(models.Model):
    """An effect kind and its six answers, given before any effect of it may be declared.

    `account`: the provider account that its webhooks and credentials belong to, by name. `reversible`: a
    preset of effects/presets.py. `compensate`: the template of the call that would lessen it. `due_after`:
    how long an effect of it may stay unknown before people are told.
    """

    id = models.CharField(max_length=40, primary_key=True, default=partial(new_id, "knd"))
    workspace = models.ForeignKey(Workspace, models.PROTECT, related_name="kinds")
    name = models.CharField(max_length=120)
    title = Words(max_length=200, blank=True)
    op_class = models.CharField(max_length=20, choices=OperationClass)
    provider = models.CharField(max_length=10, choices=Provider, default=Provider.OUTSIDE)
    commits = Prose()
    tells_apart = Told(default=list)
    idempotency = Prose()
    compensation = Prose()
    durable_before_pause = Prose()
    when_unknown = Prose()
    send = models.JSONField(default=dict)
    lookup = models.JSONField(default=dict)
    settle_window_s = models.PositiveIntegerField(default=60)
    check_every_s = models.JSONField(default=list)
    check_for_s = models.PositiveIntegerField(default=86_400)
    key_fencing = models.BooleanField(default=False)
    key_retention_s = models.PositiveIntegerField(default=86_400)
    retry_after_s = models.JSONField(default=list)
    account = models.CharField(max_length=120, blank=True, default="", db_default="")
    reversible = models.CharField(max_length=40, blank=True, default="", db_default="")
    compensate = models.JSONField(default=dict)
    due_after = models.DurationField(default=DUE_AFTER, db_default=DUE_AFTER)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["workspace", "name"], name="kind_once"),
            models.CheckConstraint(condition=Q(provider__in=Provider.values), name="kind_provider"),
        )

    def __str__(self) -> str:
        return self.name


class Settlement(models.TextChoices):
    """What is known of an effect."""

    DECLARED = "DECLARED"
    DISPATCHED = "DISPATCHED"
    CONFIRMED = "CONFIRMED"
    PARTIAL = "PARTIAL"
    NOT_APPLIED = "NOT_APPLIED"
    NOT_STARTED = "NOT_STARTED"
    UNKNOWN = "UNKNOWN"
    ACCEPTED_UNKNOWN = "ACCEPTED_UNKNOWN"


SETTLED = (
    Settlement.CONFIRMED,
    Settlement.PARTIAL,
    Settlement.NOT_APPLIED,
    Settlement.NOT_STARTED,
)


class Ground(models.TextChoices):
    """On what ground a settlement stands, weakest first. DECIDED: a named person, with evidence."""

    DECIDED = "decided"
    REPORTED = "reported"
    LOOKED_UP = "looked up"
    WEBHOOK = "webhook"
    INSPECTED = "inspected"


class Effect(Machine):
    """One change of the outside world, recorded before it is sent, under a stable key.

    `body` holds the raw bytes exactly as they were declared; `body_digest` is their SHA-256. `job_state`
    is as of `job_at`; `next_check_at`: of an unknown one, or of a job that its provider accepted.
    `counted`: the most objects that a look-up saw under the key; None: none could count.
    `on_stop`: "ask_provider" when its provider may be asked to cancel it; such a request is an effect of
    its own, whose `asks_about` is this one.
    """

    moved: ClassVar[frozenset[str]] = frozenset({"settlement"})

    id = models.CharField(max_length=40, primary_key=True, default=partial(new_id, "eff"))
    run = models.ForeignKey(Run, models.PROTECT, related_name="effects")
    step = models.ForeignKey(Step, models.PROTECT, related_name="effects")
    permit = models.ForeignKey(Permit, models.PROTECT, null=True, related_name="+")
    kind = models.ForeignKey(Kind, models.PROTECT, null=True, related_name="effects")
    kind_name = models.CharField(max_length=120)
    key = models.CharField(max_length=200)
    op_class = models.CharField(max_length=20, choices=OperationClass)
    title = Words(max_length=300)
    target = Words(max_length=300, blank=True)
    amount = Words(max_length=60, blank=True)
    body = models.BinaryField(default=bytes)
    body_digest = models.CharField(max_length=64)
    plan = models.BinaryField(default=bytes)
    plan_digest = models.CharField(max_length=64)
    parameters_digest = models.CharField(max_length=64)
    settlement = FSMField(max_length=16, choices=Settlement, default=Settlement.DECLARED)
    ground = models.CharField(max_length=12, choices=Ground, blank=True)
    contradicted = models.BooleanField(default=False)
    late = models.BooleanField(default=False)
    attempt = models.PositiveIntegerField(default=0)
    result = Told(null=True)
    provider_ref = Words(max_length=300, blank=True)
    items = Told(null=True)
    why_unknown = Words(max_length=200, blank=True)
    job_state = models.CharField(max_length=12, blank=True)
    job_at = models.DateTimeField(null=True)
    counted = models.PositiveIntegerField(null=True)
    on_stop = models.CharField(max_length=12, null=True)  # noqa: DJ001  (nullable: see docs/operating.md)
    asks_about = models.ForeignKey("self", models.PROTECT, null=True, related_name="asked")
    declared_at = models.DateTimeField(db_default=Now())
    dispatched_at = models.DateTimeField(null=True)
    settled_at = models.DateTimeField(null=True)
    unknown_since = models.DateTimeField(null=True)
    next_check_at = models.DateTimeField(null=True)
    check_until = models.DateTimeField(null=True)
    turn_until = models.DateTimeField(null=True)  # somebody asks about it until then
    checks = models.PositiveIntegerField(default=0)
    seen_twice = models.PositiveIntegerField(default=0)
    queued_at = models.DateTimeField(null=True)
    approvals = models.PositiveSmallIntegerField(null=True)  # so many its agent asked for

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["run", "key"], name="effect_key_once"),
            models.CheckConstraint(condition=Q(settlement__in=Settlement.values), name="effect_settlement"),
        )
        indexes = (
            models.Index(fields=["run", "settlement"], name="effect_by_settlement"),
            models.Index(fields=["kind", "key"], name="effect_by_key"),
            models.Index(
                fields=["next_check_at"],
                name="effect_to_check",
                condition=Q(settlement="UNKNOWN", next_check_at__isnull=False),
            ),
            models.Index(
                fields=["next_check_at"],
                name="effect_job_to_ask",
                condition=Q(settlement__in=["CONFIRMED", "PARTIAL"], next_check_at__isnull=False),
            ),
            models.Index(
                fields=["queued_at"],
                name="effect_queued",
                condition=Q(queued_at__isnull=False),
            ),
            models.Index(
                fields=["unknown_since"],
                name="effect_unknown",
                condition=Q(settlement="UNKNOWN"),
            ),
            models.Index(
                fields=["settled_at"],
                name="effect_was_unknown",
                condition=Q(unknown_since__isnull=False, settled_at__isnull=False),
            ),
            models.Index(
                fields=["dispatched_at"],
                name="effect_by_dispatch",
                condition=Q(dispatched_at__isnull=False),
            ),
        )

    def __str__(self) -> str:
        return self.title

    @transition(field="settlement", source=["DECLARED", "NOT_APPLIED"], target="DISPATCHED")
    @staticmethod
    def dispatch(permit: Permit) -> Changes:
        """A permit was opened for it in this transaction."""
        return {
            "permit": permit,
            "attempt": F("attempt") + 1,
            "dispatched_at": Now(),
            "settled_at": None,
            "queued_at": None,
            **UNTOLD,
        }

    @transition(field="settlement", source=["DECLARED"], target="NOT_STARTED")
    @staticmethod
    def never_start() -> Changes:
        """The run ended, and no permit of it was ever sent under."""
        return {"settled_at": Now(), "queued_at": None}

    @transition(field="settlement", source=["DISPATCHED"], target="DECLARED")
    @staticmethod
    def take_back(queued_at: Any = None) -> Changes:
        """Its permit was NOT_SENT, by its own token.

        `queued_at`: it was our executor's, which asks again.
        """
        return {"queued_at": queued_at}

    @transition(
        field="settlement",
        source=["DISPATCHED", "UNKNOWN", "ACCEPTED_UNKNOWN"],
        target="CONFIRMED",
    )
    @staticmethod
    def confirm(ground: str, **facts: Any) -> Changes:
        """It happened."""
        return _settled(ground, facts)

    @transition(
        field="settlement",
        source=["DISPATCHED", "UNKNOWN", "ACCEPTED_UNKNOWN"],
        target="PARTIAL",
    )
    @staticmethod
    def confirm_partly(ground: str, **facts: Any) -> Changes:
        """Part of it happened; `items` says which."""
        return _settled(ground, facts)

    @transition(
        field="settlement",
        source=["DISPATCHED", "UNKNOWN", "ACCEPTED_UNKNOWN"],
        target="NOT_APPLIED",
    )
    @staticmethod
    def deny(ground: str, **facts: Any) -> Changes:
        """It did not happen, and can't any more."""
        return _settled(ground, facts)

    @transition(field="settlement", source=["DISPATCHED"], target="UNKNOWN")
    @staticmethod
    def lose(why: str, next_check_at: Any = None, check_until: Any = None) -> Changes:
        """Timeout, lost reply, killed process: we lack confirmation."""
        return {
            "why_unknown": why,
            "unknown_since": Now(),
            "next_check_at": next_check_at,
            "check_until": check_until,
        }

    @transition(
        field="settlement",
        source=["CONFIRMED", "PARTIAL", "NOT_APPLIED", "NOT_STARTED"],
        target="UNKNOWN",
    )
    @staticmethod
    def contradict(
        why: str, next_check_at: Any = None, check_until: Any = None, late: bool = False
    ) -> Changes:
        """Later evidence of equal or stronger ground disagrees; `late`: after its run had ended."""
        return {
            **({"late": True} if late else {}),
            "why_unknown": why,
            "contradicted": True,
            "unknown_since": Now(),
            "next_check_at": next_check_at,
            "check_until": check_until,
        }

    @transition(field="settlement", source=["UNKNOWN"], target="ACCEPTED_UNKNOWN")
    @staticmethod
    def accept_unknown() -> Changes:
        """Two people decided that it can't be determined."""
        return {"next_check_at": None, "settled_at": Now(), "ground": Ground.DECIDED}


# What one attempt told is not told of the next.
UNTOLD: Changes = {
    "ground": "",
    "late": False,
    "result": None,
    "provider_ref": "",
    "items": None,
    "why_unknown": "",
    "unknown_since": None,
}


def _settled(ground: str, facts: dict[str, Any]) -> Changes:
    return {"ground": ground, "settled_at": Now(), "next_check_at": None, **facts}


class Report(models.Model):
    """An issued report version; never changed, replaced by the next version."""

    id = models.CharField(max_length=40, primary_key=True, default=partial(new_id, "rep"))
    run = models.ForeignKey(Run, models.PROTECT, related_name="reports")
    version = models.PositiveIntegerField()
    outcome = models.CharField(max_length=60)
    final = models.BooleanField()
    upto_seq = models.BigIntegerField()
    body = models.TextField()
    digest = models.CharField(max_length=64)
    issued_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = (models.UniqueConstraint(fields=["run", "version"], name="report_version_once"),)
        indexes = (models.Index(fields=["issued_at"], name="report_by_time"),)

    def __str__(self) -> str:
        return f"{self.run_id} v{self.version}"


__all__ = [
    "SETTLED",
    "Account",
    "Approval",
    "Attachment",
    "Care",
    "Channel",
    "Compensation",
    "CompensationState",
    "Delivery",
    "DeliveryState",
    "Effect",
    "Ground",
    "Inbound",
    "Kind",
    "Matter",
    "Provider",
    "Report",
    "Resolution",
    "Review",
    "Settlement",
    "SignOff",
    "Verdict",
]
