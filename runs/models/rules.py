"""The rules of a workspace: one row each, written by runs.rules only."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from runs.columns import Told
from runs.store import Now

from .scope import Workspace


class RulesRow(models.Model):
    """What a workspace's admins decided for all its runs; without a row, the defaults hold.

    `body` is the validated JSON of runs.rules.Rules; `version` rises by 1 with each change.
    """

    workspace = models.OneToOneField(Workspace, models.CASCADE, primary_key=True, related_name="+")
    version = models.PositiveIntegerField(default=1)
    body = Told(default=dict)
    changed_by = models.CharField(max_length=60)
    changed_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = (models.CheckConstraint(condition=Q(version__gte=1), name="rules_version"),)

    def __str__(self) -> str:
        return f"rules of {self.workspace_id}, version {self.version}"
