"""Halts of compensations: set by a stop of a scope, lifted by a reviewer."""

from __future__ import annotations

from functools import partial

from django.db import models
from django.db.models import Q

from runs.columns import Prose
from runs.store import Now, new_id

from .scope import Policy, Session, Workspace
from .stop import StopRequest


class Halt(models.Model):
    """No compensation starts in this scope until a reviewer lifts it; releasing the stop does not.

    The scope is the session, or the policy, or else the whole workspace. One not lifted for each.
    """

    id = models.CharField(max_length=40, primary_key=True, default=partial(new_id, "hlt"))
    workspace = models.ForeignKey(Workspace, models.PROTECT, related_name="halts")
    session = models.ForeignKey(Session, models.PROTECT, null=True, related_name="+")
    policy = models.ForeignKey(Policy, models.PROTECT, null=True, related_name="+")
    stop = models.ForeignKey(StopRequest, models.PROTECT, related_name="+")
    set_at = models.DateTimeField(db_default=Now())
    lifted_at = models.DateTimeField(null=True)
    lifted_by = models.CharField(max_length=60, blank=True)
    reason = Prose(blank=True)

    class Meta:
        constraints = (
            models.CheckConstraint(
                condition=Q(session__isnull=True) | Q(policy__isnull=True), name="halt_of_one_scope"
            ),
            models.CheckConstraint(
                condition=Q(lifted_at__isnull=True, lifted_by="")
                | (Q(lifted_at__isnull=False) & ~Q(lifted_by="")),
                name="halt_says_who_lifted_it",
            ),
        )
        indexes = (
            models.Index(fields=["workspace"], name="halt_in_force", condition=Q(lifted_at__isnull=True)),
        )

    def __str__(self) -> str:
        return f"halt by {self.stop_id}"
