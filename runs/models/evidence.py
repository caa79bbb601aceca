"""Append-only lines. Bodies sit beside them, so that erasure keeps the line and its digest."""

from __future__ import annotations

from django.db import models

from runs.store import Now

EFFECTIVE = ("stop.acknowledged", "stop.bound")  # the lines with which a run is held


class Evidence(models.Model):
    """What, who, when, which version, on what ground. `stream` is a run's or workspace's id."""

    pk = models.CompositePrimaryKey("stream", "seq")
    stream = models.CharField(max_length=40)
    seq = models.BigIntegerField()
    at = models.DateTimeField(db_default=Now())
    kind = models.CharField(max_length=60)
    actor = models.CharField(max_length=60)
    boundary = models.CharField(max_length=8, blank=True)
    carried_version = models.BigIntegerField(null=True)
    current_version = models.BigIntegerField(null=True)
    ground = models.CharField(max_length=12, blank=True)
    stop_id = models.CharField(max_length=40, blank=True)
    step_id = models.CharField(max_length=40, blank=True)
    permit_id = models.CharField(max_length=40, blank=True)
    effect_key = models.CharField(max_length=200, blank=True)
    worker = models.CharField(max_length=120, blank=True)
    reported_at = models.DateTimeField(null=True)
    payload_digest = models.CharField(max_length=64, blank=True)

    class Meta:
        indexes = (
            models.Index(fields=["stream", "effect_key", "seq"], name="evidence_of_effect"),
            models.Index(fields=["at"], name="evidence_by_time"),
            models.Index(
                fields=["stream", "seq"], name="evidence_of_gate", condition=models.Q(kind__in=EFFECTIVE)
            ),
        )

    def __str__(self) -> str:
        return f"e-{self.seq} {self.kind}"


class EvidencePayload(models.Model):
    """The body of one line: canonical JSON text, or empty when it was removed."""

    pk = models.CompositePrimaryKey("stream", "seq")
    stream = models.CharField(max_length=40)
    seq = models.BigIntegerField()
    body = models.TextField(blank=True)
    removed_at = models.DateTimeField(null=True)
    removed_under = models.CharField(max_length=120, blank=True)

    def __str__(self) -> str:
        return self.body


class Seal(models.Model):
    """`head` chains every line of the stream up to `upto_seq` (inclusive) to the seal before."""

    pk = models.CompositePrimaryKey("stream", "upto_seq")
    stream = models.CharField(max_length=40)
    upto_seq = models.BigIntegerField()
    head = models.CharField(max_length=64)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = (models.Index(fields=["at"], name="seal_by_time"),)

    def __str__(self) -> str:
        return self.head
