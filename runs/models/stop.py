"""The stop request: moments set once, each press kept, the frozen list of what was in flight."""

from __future__ import annotations

from functools import partial

from django.db import models
from django.db.models import Q

from runs.store import Now, new_id

from .people import Token, User
from .run import Permit, PermitState, Run
from .scope import Workspace


class Mode(models.TextChoices):
    """What the stop asks for, mildest first."""

    PAUSE = "pause"
    CANCEL = "cancel"
    ABANDON = "abandon"


class StopRequest(models.Model):
    """No machine: the stage strip is computed from these moments and from the run.

    `gate_at`: no dispatch whose check begins later can succeed (the acknowledgement).
    `fenced_at`: the list of what was in flight is complete and frozen. `parent_stop`: the stop of the
    parent run from which this one came; `passed_on_at`: every child registered then was reached.
    """

    id = models.CharField(max_length=40, primary_key=True, default=partial(new_id, "stp"))
    workspace = models.ForeignKey(Workspace, models.PROTECT, related_name="stops")
    number = models.BigIntegerField()
    scope = models.CharField(max_length=10, default="run")
    run = models.ForeignKey(Run, models.PROTECT, null=True, related_name="stops")
    run_key = models.CharField(max_length=200)
    mode = models.CharField(max_length=8, choices=Mode)
    requested_mode = models.CharField(max_length=40, blank=True)
    reason = models.CharField(max_length=40, default="other")
    note = models.TextField(blank=True)
    actor = models.CharField(max_length=60)
    via = models.CharField(max_length=10)
    deadline_s = models.PositiveIntegerField(default=60)
    version_before = models.BigIntegerField(null=True)
    version_after = models.BigIntegerField(null=True)
    finished_before = models.BooleanField(default=False)
    reported_at = models.DateTimeField(null=True)
    recorded_at = models.DateTimeField(db_default=Now())
    gate_at = models.DateTimeField(null=True)
    fenced_at = models.DateTimeField(null=True)
    deadline_at = models.DateTimeField(null=True)
    ends_at = models.DateTimeField(null=True)
    quiet_at = models.DateTimeField(null=True)
    timed_out_at = models.DateTimeField(null=True)
    closed_at = models.DateTimeField(null=True)
    closed_because = models.CharField(max_length=40, blank=True)
    superseded_by = models.ForeignKey("self", models.PROTECT, null=True, related_name="+")
    released_at = models.DateTimeField(null=True)
    parent_stop = models.ForeignKey("self", models.PROTECT, null=True, related_name="passed_on")
    passed_on_at = models.DateTimeField(null=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["workspace", "number"], name="stop_number_once"),
            models.CheckConstraint(condition=Q(mode__in=Mode.values), name="stop_mode"),
            models.UniqueConstraint(
                fields=["workspace", "run_key"],
                condition=Q(run__isnull=True, scope="run", closed_at__isnull=True),
                name="stop_waits_once",
            ),
        )
        indexes = (
            models.Index(fields=["run", "-id"], name="stop_of_run"),
            models.Index(fields=["deadline_at"], name="stop_open", condition=Q(closed_at__isnull=True)),
            models.Index(
                fields=["recorded_at"],
                name="stop_to_pass_on",
                condition=Q(run__isnull=False, passed_on_at__isnull=True),
            ),
        )

    def __str__(self) -> str:
        return f"#{self.number}"


class Press(models.Model):
    """One press of Stop: who, when, from where, and the answer that it got."""

    id = models.CharField(max_length=40, primary_key=True, default=partial(new_id, "psh"))
    stop = models.ForeignKey(StopRequest, models.PROTECT, related_name="presses")
    at = models.DateTimeField(db_default=Now())
    actor = models.CharField(max_length=60)
    via = models.CharField(max_length=10)
    address = models.CharField(max_length=60, blank=True)
    key = models.CharField(max_length=255)
    mode = models.CharField(max_length=8, choices=Mode)
    requested_mode = models.CharField(max_length=40, blank=True)
    note = models.TextField(blank=True)
    ignored = models.JSONField(default=list)
    answer = models.CharField(max_length=16)
    parent_stop = models.ForeignKey(StopRequest, models.PROTECT, null=True, related_name="+")

    class Meta:
        constraints = (models.UniqueConstraint(fields=["actor", "key", "stop"], name="press_key_once"),)
        indexes = (models.Index(fields=["key", "actor"], name="press_by_key"),)

    def __str__(self) -> str:
        return f"{self.actor} {self.at}"


class InFlight(models.Model):
    """One permit that was OPEN or LOST when the stop fenced its run. Never shortened."""

    stop = models.ForeignKey(StopRequest, models.PROTECT, related_name="in_flight")
    permit = models.ForeignKey(Permit, models.PROTECT, related_name="+")
    state_then = models.CharField(max_length=8, choices=PermitState)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["stop", "permit"], name="in_flight_once"),)

    def __str__(self) -> str:
        return self.permit_id


class IdempotencyRecord(models.Model):
    """An API call's key, the digest of its request, and the answer that is replayed."""

    owner = models.CharField(max_length=60)
    key = models.CharField(max_length=255)
    request_digest = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField(null=True)
    body = models.TextField(blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = (models.UniqueConstraint(fields=["owner", "key"], name="idempotency_once"),)
        indexes = (models.Index(fields=["created_at"], name="idempotency_by_age"),)

    def __str__(self) -> str:
        return self.key


__all__ = ["IdempotencyRecord", "InFlight", "Mode", "Press", "StopRequest", "Token", "User"]
