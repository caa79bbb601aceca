"""Run, step, permit: the state table. Each decorated method is one arrow of it."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any, ClassVar

from django.db import models
from django.db.models import Exists, F, OuterRef, Q
from django_fsm import FSMField

from runs.columns import Prose, Told, Words
from runs.machine import Changes, Machine, transition
from runs.store import Now, new_id

from .people import User
from .scope import Session, Workspace


class RunStatus(models.TextChoices):
    """Where a run stands (the sentence people read is `words.run`)."""

    ACTIVE = "ACTIVE"
    PAUSING = "PAUSING"
    PAUSED = "PAUSED"
    CANCELLING = "CANCELLING"
    CANCELLING_TIMEOUT = "CANCELLING_TIMEOUT"
    UNKNOWN = "UNKNOWN"
    CANCELLED = "CANCELLED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    ABANDONED = "ABANDONED"


FINAL = (RunStatus.CANCELLED, RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.ABANDONED)
STOPPING = (
    RunStatus.PAUSING,
    RunStatus.CANCELLING,
    RunStatus.CANCELLING_TIMEOUT,
)


class StepStatus(models.TextChoices):
    """Where a step stands; WITHHELD means it was refused before any dispatch."""

    PENDING = "PENDING"
    CLAIMED = "CLAIMED"
    WAITING_APPROVAL = "WAITING_APPROVAL"
    DISPATCHED = "DISPATCHED"
    RETRY_WAIT = "RETRY_WAIT"
    SUCCEEDED = "SUCCEEDED"
    PARTIAL = "PARTIAL"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"
    WITHHELD = "WITHHELD"


NOT_DISPATCHED = (
    StepStatus.PENDING,
    StepStatus.CLAIMED,
    StepStatus.WAITING_APPROVAL,
    StepStatus.RETRY_WAIT,
)
BUSY = (StepStatus.CLAIMED, StepStatus.DISPATCHED)


class PermitState(models.TextChoices):
    """How one attempt to cross a boundary ended, as its holder told us."""

    OPEN = "OPEN"
    REPORTED = "REPORTED"
    NOT_SENT = "NOT_SENT"
    LOST = "LOST"


class Boundary(models.TextChoices):
    """The seven places where work can begin."""

    ADMIT = "admit"
    CLAIM = "claim"
    MODEL = "model"
    DISPATCH = "dispatch"
    RETRY = "retry"
    ACT = "act"
    DELIVER = "deliver"


class OperationClass(models.TextChoices):
    """What kind of operation a step and its effects are."""

    MODEL_TURN = "model_turn"
    READ = "read"
    WORKSPACE_CHANGE = "workspace_change"
    EXTERNAL_JOB = "external_job"
    EXTERNAL_WRITE = "external_write"
    APPROVAL_WAIT = "approval_wait"
    BROWSER_ACTION = "browser_action"
    DELIVERY = "delivery"


LEASE = timedelta(seconds=30)  # how long a claim lasts without a sign of life, unless asked otherwise
INCONSEQUENTIAL = (OperationClass.READ, OperationClass.MODEL_TURN, OperationClass.APPROVAL_WAIT)


def _nothing_begun(seen: int, summary: str = "") -> Q:
    """COMPLETED needs the seen version, no OPEN permit and no step CLAIMED or DISPATCHED."""
    mine = {"run_id": OuterRef("pk")}
    return (
        Q(cancel_version=seen)
        & ~Exists(Permit.objects.filter(**mine, state=PermitState.OPEN))
        & ~Exists(Step.objects.filter(**mine, status__in=BUSY))
    )


class Run(Machine):
    """One execution of an agent or automation.

    `cancel_version` starts at 1 and never falls; `*_epoch` are those of the scopes at admission, and
    `parent_version` is the parent's then. `silent_at`: not silent before this (runs/receipts.py).
    """

    S: ClassVar = RunStatus
    moved: ClassVar[frozenset[str]] = frozenset({"status", "cancel_version"})

    id = models.CharField(max_length=40, primary_key=True, default=partial(new_id, "run"))
    workspace = models.ForeignKey(Workspace, models.PROTECT, related_name="runs")
    session = models.ForeignKey(Session, models.PROTECT, null=True, related_name="runs")
    parent = models.ForeignKey("self", models.PROTECT, null=True, related_name="children")
    parent_version = models.BigIntegerField(null=True)
    owner = models.ForeignKey(User, models.PROTECT, null=True, related_name="+")
    key = models.CharField(max_length=200)
    name = Words(max_length=300)
    agent = Words(max_length=120, blank=True)
    runtime = Words(max_length=120, blank=True)
    labels = Told(default=dict)
    ungateable = Told(default=list)
    parameters_digest = models.CharField(max_length=64)
    drill = models.BooleanField(default=False)
    status = FSMField(max_length=20, choices=RunStatus, default=RunStatus.ACTIVE)
    cancel_version = models.BigIntegerField(default=1)
    admitted_epoch = models.BigIntegerField(default=1)
    session_epoch = models.BigIntegerField(null=True)
    policy_epochs = models.JSONField(default=dict)
    silent_after_s = models.PositiveIntegerField(default=900)
    admitted_at = models.DateTimeField(db_default=Now())
    last_heard_at = models.DateTimeField(null=True)
    silent_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    summary = Prose(blank=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["workspace", "key"], name="run_key_once"),
            models.CheckConstraint(condition=Q(status__in=RunStatus.values), name="run_status"),
            models.CheckConstraint(condition=Q(cancel_version__gte=1), name="run_version"),
        )
        indexes = (
            models.Index(fields=["workspace", "-id"], name="run_newest"),
            models.Index(fields=["workspace", "status", "-id"], name="run_by_status"),
            models.Index(
                fields=["status"],
                name="run_stopping",
                condition=Q(status__in=["PAUSING", "CANCELLING", "CANCELLING_TIMEOUT", "UNKNOWN"]),
            ),
            models.Index(
                fields=["workspace", "silent_at"],
                name="run_silent",
                condition=Q(status__in=["ACTIVE", "PAUSING", "CANCELLING", "CANCELLING_TIMEOUT"]),
            ),
        )

    def __str__(self) -> str:
        return self.name

    @transition(source=["ACTIVE"], target="PAUSING")
    @staticmethod
    def pause() -> Changes:
        """A stop request of mode pause."""
        return {"cancel_version": F("cancel_version") + 1}

    @transition(source=["ACTIVE", "PAUSING", "PAUSED"], target="CANCELLING")
    @staticmethod
    def cancel() -> Changes:
        """A stop request of mode cancel."""
        return {"cancel_version": F("cancel_version") + 1}

    @transition(
        source=[
            "ACTIVE",
            "PAUSING",
            "PAUSED",
            "CANCELLING",
            "CANCELLING_TIMEOUT",
            "UNKNOWN",
        ],
        target="ABANDONED",
    )
    @staticmethod
    def abandon() -> Changes:
        """A stop request of mode abandon."""
        return {"cancel_version": F("cancel_version") + 1, "ended_at": Now()}

    @transition(source=["ACTIVE"], target="COMPLETED", guard=_nothing_begun)
    @staticmethod
    def complete(seen: int, summary: str = "") -> Changes:
        """The runtime's word, at the version it saw, with nothing begun."""
        return {"ended_at": Now(), "summary": summary}

    @transition(source=["ACTIVE"], target="FAILED")
    @staticmethod
    def fail(summary: str = "") -> Changes:
        """The runtime's word; always allowed from ACTIVE."""
        return {"ended_at": Now(), "summary": summary}

    @transition(source=["PAUSING"], target="PAUSED")
    @staticmethod
    def hold() -> Changes:
        """Quiet, or the deadline passed and the leases were fenced."""
        return {}

    @transition(source=["PAUSED"], target="ACTIVE")
    @staticmethod
    def resume(epochs: dict[str, Any]) -> Changes:
        """A resume decision; `epochs` are the current ones of the scopes above."""
        return {"cancel_version": F("cancel_version") + 1, **epochs}

    @transition(source=["CANCELLING"], target="CANCELLING_TIMEOUT")
    @staticmethod
    def time_out() -> Changes:
        """The deadline passed and the run is not quiet."""
        return {}

    @transition(source=["CANCELLING", "CANCELLING_TIMEOUT"], target="UNKNOWN")
    @staticmethod
    def rest_unknown() -> Changes:
        """Quiet, but an effect can't be settled now."""
        return {}

    @transition(source=["CANCELLING", "CANCELLING_TIMEOUT", "UNKNOWN"], target="CANCELLED")
    @staticmethod
    def settle() -> Changes:
        """Quiet, and every effect is settled."""
        return {"ended_at": Now()}

    @transition(source=["ACTIVE", "PAUSING"], target="PAUSED")
    @staticmethod
    def restore() -> Changes:
        """A restore from a dump: every worker from before is refused."""
        return {"cancel_version": F("cancel_version") + 1_000_000}


class Step(Machine):
    """One unit of a run that a worker may claim.

    `happened`: an effect of it took place. `ends_with_effect`: registered with its only effect.
    """

    id = models.CharField(max_length=40, primary_key=True, default=partial(new_id, "ste"))
    run = models.ForeignKey(Run, models.PROTECT, related_name="steps")
    key = models.CharField(max_length=200)
    name = Words(max_length=300)
    op_class = models.CharField(max_length=20, choices=OperationClass)
    cleanup = models.BooleanField(default=False)
    status = FSMField(max_length=20, choices=StepStatus, default=StepStatus.PENDING)
    worker = models.CharField(max_length=120, blank=True)
    claim_token = models.CharField(max_length=64, blank=True)
    claim_version = models.BigIntegerField(null=True)
    lease_until = models.DateTimeField(null=True)
    lease = models.DurationField(default=LEASE, db_default=LEASE)
    attempt = models.PositiveIntegerField(default=0)
    ends_with_effect = models.BooleanField(default=False)
    happened = models.BooleanField(default=False)
    reported_after_stop = models.BooleanField(default=False)
    stopped_at = models.DateTimeField(null=True)
    due_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    dispatched_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    detail = Prose(blank=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["run", "key"], name="step_key_once"),
            models.CheckConstraint(condition=Q(status__in=StepStatus.values), name="step_status"),
        )
        indexes = (
            models.Index(fields=["run", "status"], name="step_by_status"),
            models.Index(
                fields=["lease_until"],
                name="step_leased",
                condition=Q(status__in=["CLAIMED", "DISPATCHED"]),
            ),
            models.Index(fields=["due_at"], name="step_due", condition=Q(due_at__isnull=False)),
        )

    def __str__(self) -> str:
        return self.name

    @transition(source=["PENDING"], target="CLAIMED")
    @staticmethod
    def claim(worker: str, token: str, version: int, lease_until: Any, lease: timedelta = LEASE) -> Changes:
        """A worker takes the step at the version it saw."""
        return {
            "worker": worker,
            "claim_token": token,
            "claim_version": version,
            "lease_until": lease_until,
            "lease": lease,
            "attempt": F("attempt") + 1,
        }

    @transition(source=["CLAIMED"], target="DISPATCHED")
    @staticmethod
    def dispatch(lease_until: Any, lease: timedelta = LEASE) -> Changes:
        """Its first permit was opened; later permits leave it here."""
        return {"dispatched_at": Now(), "lease_until": lease_until, "lease": lease}

    @transition(source=["PENDING", "CLAIMED", "DISPATCHED"], target="WAITING_APPROVAL")
    @staticmethod
    def wait_for_approval() -> Changes:
        """The gate asks people first."""
        return {"claim_token": "", "lease_until": None}

    @transition(source=["WAITING_APPROVAL"], target="PENDING")
    @staticmethod
    def grant() -> Changes:
        """People allowed it; a worker may claim it."""
        return {}

    @transition(source=["CLAIMED", "DISPATCHED"], target="PENDING")
    @staticmethod
    def release() -> Changes:
        """Given back before anything was sent (or a lease ran out, or a pause)."""
        return {"claim_token": "", "lease_until": None, "worker": ""}

    @transition(
        source=["PENDING", "CLAIMED", "WAITING_APPROVAL", "RETRY_WAIT", "DISPATCHED"],
        target="WITHHELD",
    )
    @staticmethod
    def withhold() -> Changes:
        """Cancelled before dispatch. The caller excludes permits that may have been sent."""
        return {"claim_token": "", "lease_until": None, "finished_at": Now()}

    @transition(
        source=[
            "PENDING",
            "CLAIMED",
            "WAITING_APPROVAL",
            "RETRY_WAIT",
            "DISPATCHED",
            "UNKNOWN",
        ],
        target="PARTIAL",
    )
    @staticmethod
    def finish_partly(detail: str = "") -> Changes:
        """Part of it took place."""
        return {"lease_until": None, "finished_at": Now(), "detail": detail}

    @transition(source=["DISPATCHED", "UNKNOWN"], target="SUCCEEDED")
    @staticmethod
    def succeed(detail: str = "") -> Changes:
        """The worker's report, or evidence that came later."""
        return {"lease_until": None, "finished_at": Now(), "detail": detail}

    @transition(source=["DISPATCHED", "UNKNOWN"], target="FAILED")
    @staticmethod
    def fail(detail: str = "") -> Changes:
        """The worker's report, evidence, or a worker lost with nothing in progress."""
        return {"lease_until": None, "finished_at": Now(), "detail": detail}

    @transition(source=["DISPATCHED"], target="UNKNOWN")
    @staticmethod
    def lose(detail: str = "") -> Changes:
        """We can't say how it ended."""
        return {"lease_until": None, "detail": detail}

    @transition(source=["FAILED"], target="RETRY_WAIT")
    @staticmethod
    def wait_for_retry(due_at: Any, version: int | None = None) -> Changes:
        """Scheduled again, at this version; the gate is asked now and when it is due."""
        seen = {} if version is None else {"claim_version": version}
        return {"due_at": due_at, "finished_at": None, **seen}

    @transition(source=["RETRY_WAIT"], target="PENDING")
    @staticmethod
    def fall_due() -> Changes:
        """Due, and the gate is open."""
        return {"due_at": None}


class Permit(Machine):
    """One attempt to cross a boundary that can touch the world. `kind`: of the effect, for policies."""

    moved: ClassVar[frozenset[str]] = frozenset({"state"})

    id = models.CharField(max_length=40, primary_key=True, default=partial(new_id, "prm"))
    run = models.ForeignKey(Run, models.PROTECT, related_name="permits")
    step = models.ForeignKey(Step, models.PROTECT, related_name="permits")
    boundary = models.CharField(max_length=8, choices=Boundary)
    guard = models.CharField(max_length=16, default="ordinary")
    op_class = models.CharField(max_length=20, choices=OperationClass)
    kind = models.CharField(max_length=120, blank=True, default="", db_default="")
    effect_key = models.CharField(max_length=200, blank=True)
    attempt = models.PositiveIntegerField(default=1)
    seen_version = models.BigIntegerField()
    token = models.CharField(max_length=64)
    worker = models.CharField(max_length=120)
    state = FSMField(max_length=8, choices=PermitState, default=PermitState.OPEN)
    opened_at = models.DateTimeField(db_default=Now())
    permit_until = models.DateTimeField()
    lease_until = models.DateTimeField()
    lease = models.DurationField(default=LEASE, db_default=LEASE)
    ended_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=12, blank=True)

    class Meta:
        constraints = (
            models.CheckConstraint(condition=Q(state__in=PermitState.values), name="permit_state"),
        )
        indexes = (
            models.Index(fields=["run", "state"], name="permit_by_state"),
            models.Index(fields=["step", "state"], name="permit_of_step"),
            models.Index(fields=["lease_until"], name="permit_leased", condition=Q(state="OPEN")),
            models.Index(fields=["run"], name="permit_compensating", condition=Q(guard="compensate")),
        )

    def __str__(self) -> str:
        return f"{self.boundary} {self.effect_key or self.step_id}"

    @transition(field="state", source=["OPEN", "LOST"], target="REPORTED")
    @staticmethod
    def report(outcome: str) -> Changes:
        """Its holder said that its call is over; late when it was LOST."""
        return {"ended_at": Now(), "outcome": outcome}

    @transition(field="state", source=["OPEN", "LOST"], target="NOT_SENT")
    @staticmethod
    def not_sent() -> Changes:
        """Its holder attests that nothing was sent under it."""
        return {"ended_at": Now(), "outcome": "not_sent"}

    @transition(field="state", source=["OPEN"], target="LOST")
    @staticmethod
    def lose() -> Changes:
        """Its lease ran out: nobody says what happened."""
        return {"ended_at": Now()}


class Refusal(models.Model):
    """A compare-and-set that said no: one row for the same refusal by the same stop, with its count."""

    run = models.ForeignKey(Run, models.PROTECT, null=True, related_name="refusals")
    workspace = models.ForeignKey(Workspace, models.PROTECT, related_name="+")
    boundary = models.CharField(max_length=8, choices=Boundary)
    reason = models.CharField(max_length=16)
    step_key = models.CharField(max_length=200, blank=True)
    step_name = Words(max_length=300, blank=True)
    effect_key = models.CharField(max_length=200, blank=True)
    run_key = models.CharField(max_length=200, blank=True)
    worker = models.CharField(max_length=120, blank=True)
    carried_version = models.BigIntegerField(null=True)
    current_version = models.BigIntegerField(null=True)
    count = models.PositiveIntegerField(default=1)
    first_at = models.DateTimeField(db_default=Now())
    last_at = models.DateTimeField(db_default=Now())
    evidence_seq = models.BigIntegerField(null=True)
    stop = models.ForeignKey("runs.StopRequest", models.PROTECT, null=True, related_name="refusals")

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=[
                    "run",
                    "boundary",
                    "reason",
                    "step_key",
                    "effect_key",
                    "carried_version",
                    "current_version",
                    "stop",
                ],
                name="refusal_once",
                condition=Q(run__isnull=False),
            ),
        )
        indexes = (models.Index(fields=["run", "first_at"], name="refusal_of_run"),)

    def __str__(self) -> str:
        return f"{self.boundary} {self.reason} x{self.count}"
