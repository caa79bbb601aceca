"""What is on its way to the workspaces' streams: refusals, sign-ins, exports. Rows here come and go."""

from __future__ import annotations

from django.db import models

from runs.store import Now


class Installation(models.Model):
    """The row whose lock the installation's own stream is written under; there is one.

    `pressed_upto`: the newest press of Stop that was looked at for the workspaces' streams.
    """

    id = models.CharField(max_length=40, primary_key=True)
    pressed_upto = models.CharField(max_length=40, blank=True, default="")

    def __str__(self) -> str:
        return self.id


class AuditNote(models.Model):
    """Something that happened `count` times alike; `written` of them stand in the stream already.

    `same`: SHA-256 of what makes two of them alike. `stream` is "" until it is known where it belongs:
    to the workspaces of `person`. `told`: canonical JSON, without anything that a stranger typed.
    """

    same = models.CharField(max_length=64, unique=True)
    stream = models.CharField(max_length=40, blank=True)
    person = models.BigIntegerField(null=True)
    kind = models.CharField(max_length=60)
    actor = models.CharField(max_length=60)
    stop_id = models.CharField(max_length=40, blank=True)
    told = models.TextField(blank=True)
    first_at = models.DateTimeField(db_default=Now())
    last_at = models.DateTimeField(db_default=Now())
    count = models.PositiveBigIntegerField(default=1)
    written = models.PositiveBigIntegerField(default=0)
    written_at = models.DateTimeField(null=True)

    class Meta:
        indexes = (models.Index(fields=["stream", "id"], name="audit_note_of_stream"),)

    def __str__(self) -> str:
        return f"{self.kind} by {self.actor}, {self.count} times"
