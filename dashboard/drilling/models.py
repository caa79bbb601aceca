"""A drill that was asked for, and a drill that is asked for again and again."""

from __future__ import annotations

from functools import partial

from django.db import models
from django.db.models import Q

from runs.columns import Prose, Told, Words
from runs.store import Now, new_id


class DrillResult(models.TextChoices):
    """How a drill ended. INTERRUPTED: nobody carried it to its end, so it says nothing."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    INTERRUPTED = "interrupted"


class Via(models.TextChoices):
    """How it was asked for."""

    PAGE = "page"
    COMMAND = "command"
    SCHEDULE = "schedule"


IN_LINE = Q(result="")
RUNNING = Q(result="", started_at__isnull=False)


class DrillRun(models.Model):
    """One drill, from the press to its result. At most one runs; each drill stands in line once.

    `by`: the actor's id. `alive_until`: whoever carries it out says so again and again; past it, it is
    interrupted. `token`: the id of the token it was given. `steps`: what was done so far, each
    {"at": ISO time, "said": text}. `checks`: {"situation" | "safety" | "evidence": [{"what", "expected",
    "observed", "ok"}]}. `report`: the path of its run's report. `log`: what it said that is no step.
    """

    id = models.CharField(max_length=40, primary_key=True, default=partial(new_id, "drl"))
    name = models.CharField(max_length=60)
    via = models.CharField(max_length=8, choices=Via)
    by = models.CharField(max_length=60)
    asked_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True)
    alive_until = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    token = models.CharField(max_length=40, blank=True)
    steps = Told(default=list)
    result = models.CharField(max_length=12, choices=DrillResult, blank=True)
    why = Words(max_length=500, blank=True)
    checks = Told(default=dict)
    report = models.CharField(max_length=200, blank=True)
    release = models.CharField(max_length=60, blank=True)
    runtime = models.CharField(max_length=200, blank=True)
    log = Prose(blank=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["name"], condition=IN_LINE, name="drill_once_in_line"),
            models.UniqueConstraint(fields=["result"], condition=RUNNING, name="drill_one_at_a_time"),
            models.CheckConstraint(condition=Q(result__in=["", *DrillResult.values]), name="drill_result"),
            models.CheckConstraint(condition=Q(via__in=Via.values), name="drill_via"),
            models.CheckConstraint(
                condition=Q(result="") ^ Q(finished_at__isnull=False), name="drill_finished_with_result"
            ),
        )
        indexes = (models.Index(fields=["name", "-id"], name="drill_newest"),)

    def __str__(self) -> str:
        return f"{self.name} {self.result}"


class Every(models.TextChoices):
    """How often."""

    DAILY = "daily"
    WEEKLY = "weekly"


class DrillSchedule(models.Model):
    """A drill, or ALL of them, asked for at `next_at` and then every day or week. Off: no row."""

    which = models.CharField(max_length=60, primary_key=True)
    every = models.CharField(max_length=6, choices=Every)
    next_at = models.DateTimeField()
    by = models.CharField(max_length=60)
    set_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = (models.CheckConstraint(condition=Q(every__in=Every.values), name="drill_every"),)
        indexes = (models.Index(fields=["next_at"], name="drill_due"),)

    def __str__(self) -> str:
        return f"{self.which} {self.every}"
