"""A stop that somebody wants at a moment to come."""

from __future__ import annotations

from functools import partial

from django.db import models
from django.db.models import Q

from runs.columns import Prose
from runs.store import Now, new_id

from .scope import Policy, Session, Workspace
from .stop import Mode, StopRequest

SCHEDULABLE = ("run", "session", "workspace", "policy")


class ScheduledStop(models.Model):
    """Pressed by the system when `at` has come. `local` and `zone` are what the person said, `reading` how
    the clocks there were read (runs/schedules.py).

    Ends once: `pressed_at` with its `stop`, or `withdrawn_at`. `run_key`: of a run, registered or not.
    `key`: of the form it came by; the same person's same key is one scheduled stop.
    """

    id = models.CharField(max_length=40, primary_key=True, default=partial(new_id, "sch"))
    workspace = models.ForeignKey(Workspace, models.PROTECT, related_name="scheduled_stops")
    scope = models.CharField(max_length=10)
    run_key = models.CharField(max_length=200, blank=True)
    session = models.ForeignKey(Session, models.PROTECT, null=True, related_name="+")
    policy = models.ForeignKey(Policy, models.PROTECT, null=True, related_name="+")
    mode = models.CharField(max_length=8, choices=Mode)
    reason = models.CharField(max_length=40, default="other")
    note = Prose(blank=True)
    deadline_s = models.PositiveIntegerField(default=60)
    at = models.DateTimeField()
    local = models.CharField(max_length=30, blank=True)
    zone = models.CharField(max_length=60, blank=True)
    reading = models.CharField(max_length=8, default="exact")
    actor = models.CharField(max_length=60)
    key = models.CharField(max_length=200, blank=True, default="")
    created_at = models.DateTimeField(db_default=Now())
    withdrawn_at = models.DateTimeField(null=True)
    withdrawn_by = models.CharField(max_length=60, blank=True)
    withdrawn_why = Prose(blank=True, default="")
    pressed_at = models.DateTimeField(null=True)
    stop = models.ForeignKey(StopRequest, models.PROTECT, null=True, related_name="+")

    class Meta:
        constraints = (
            models.CheckConstraint(condition=Q(mode__in=Mode.values), name="scheduled_stop_mode"),
            models.CheckConstraint(condition=Q(scope__in=SCHEDULABLE), name="scheduled_stop_scope"),
            models.CheckConstraint(
                condition=Q(pressed_at__isnull=True) | Q(withdrawn_at__isnull=True),
                name="scheduled_stop_ends_once",
            ),
            models.UniqueConstraint(
                fields=["workspace", "actor", "key"], condition=~Q(key=""), name="scheduled_stop_once"
            ),
        )
        indexes = (
            models.Index(
                fields=["at"],
                name="scheduled_stop_due",
                condition=Q(pressed_at__isnull=True, withdrawn_at__isnull=True),
            ),
            models.Index(fields=["workspace", "-id"], name="scheduled_stop_newest"),
        )

    def __str__(self) -> str:
        return f"{self.scope} at {self.at}"
