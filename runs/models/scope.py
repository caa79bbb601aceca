"""Where a stop can reach: workspace, session, policy. Each has a gate and an epoch."""

from __future__ import annotations

from functools import partial

from django.db import models
from django.db.models import Q

from runs.store import Now, new_id


class Gate(models.TextChoices):
    """Whether runs under a scope may start new work."""

    OPEN = "OPEN"
    SHUT = "SHUT"


class Scope(models.Model):
    """What the three scopes share: `gate`, `epoch` (+1 each time the gate shuts), `gate_at`."""

    gate = models.CharField(max_length=4, choices=Gate, default=Gate.OPEN)
    epoch = models.BigIntegerField(default=1)
    gate_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        abstract = True


class Workspace(Scope):
    """The tenant: people, tokens, runs and policies of one team."""

    id = models.CharField(max_length=40, primary_key=True, default=partial(new_id, "ws"))
    name = models.CharField(max_length=120)
    slug = models.SlugField(max_length=60, unique=True)

    class Meta:
        constraints = (models.CheckConstraint(condition=Q(gate__in=Gate.values), name="workspace_gate"),)

    def __str__(self) -> str:
        return self.name


class StopCounter(models.Model):
    """Numbers a workspace's stop requests; apart, so that numbering waits for no admission."""

    workspace = models.OneToOneField(Workspace, models.CASCADE, primary_key=True)
    last = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return str(self.last)


class Session(Scope):
    """Runs that belong together; `key` is the agent's own name for it."""

    id = models.CharField(max_length=40, primary_key=True, default=partial(new_id, "ses"))
    workspace = models.ForeignKey(Workspace, models.PROTECT, related_name="sessions")
    key = models.CharField(max_length=200)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["workspace", "key"], name="session_once"),
            models.CheckConstraint(condition=Q(gate__in=Gate.values), name="session_gate"),
        )

    def __str__(self) -> str:
        return self.key


class Reach(models.TextChoices):
    """What a policy withholds while its gate is shut: whole runs, or only effects of a kind or class."""

    RUNS = "runs"
    EFFECTS = "effects"


class Policy(Scope):
    """A rule over runs by label, tool and class; `match` is the validated JSON of that rule.

    `reach` follows from the match: one that names kinds or classes withholds those effects and leaves its
    runs ACTIVE; one by labels alone withholds the runs.
    """

    id = models.CharField(max_length=40, primary_key=True, default=partial(new_id, "pol"))
    workspace = models.ForeignKey(Workspace, models.PROTECT, related_name="policies")
    name = models.CharField(max_length=120)
    match = models.JSONField(default=dict)
    reach = models.CharField(max_length=8, choices=Reach, default=Reach.RUNS, db_default=Reach.RUNS)
    created_by = models.CharField(max_length=60, default="", db_default="")

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["workspace", "name"], name="policy_once"),
            models.CheckConstraint(condition=Q(gate__in=Gate.values), name="policy_gate"),
        )
        indexes = (models.Index(fields=["workspace"], name="policy_shut", condition=Q(gate="SHUT")),)

    def __str__(self) -> str:
        return self.name
