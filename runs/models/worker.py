"""Workers and what they said: the version that each enforcement point holds (a receipt)."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from runs.store import Now

from .run import Boundary, Run

POINTS = (*Boundary.values, "checkpoint")  # where a worker can hold a version


class Worker(models.Model):
    """A process that works on a run. `confirmed_version`: the newest that it said it holds, anywhere."""

    run = models.ForeignKey(Run, models.CASCADE, related_name="workers")
    name = models.CharField(max_length=120)
    confirmed_version = models.BigIntegerField(null=True)
    confirmed_at = models.DateTimeField(null=True)
    last_heard_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = (models.UniqueConstraint(fields=["run", "name"], name="worker_once"),)

    def __str__(self) -> str:
        return self.name


class Receipt(models.Model):
    """One enforcement point's own statement that it holds a version: a worker, at one boundary.

    `version` never falls. `heard_at`: when it last spoke at this boundary, to within a few seconds.
    """

    run = models.ForeignKey(Run, models.CASCADE, related_name="receipts")
    worker = models.CharField(max_length=120)
    boundary = models.CharField(max_length=10)
    version = models.BigIntegerField()
    confirmed_at = models.DateTimeField(db_default=Now())
    heard_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["run", "worker", "boundary"], name="receipt_once"),
            models.CheckConstraint(condition=Q(boundary__in=POINTS), name="receipt_boundary"),
        )

    def __str__(self) -> str:
        return f"{self.boundary} v{self.version}"
