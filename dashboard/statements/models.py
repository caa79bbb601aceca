"""The tables of statements and of the public keys that they are checked with. Both append-only."""

from __future__ import annotations

from functools import partial

from django.db import models
from django.db.models import Q

from effects.models import Report
from runs.models import Workspace
from runs.store import Now, new_id


class StatementKind(models.TextChoices):
    """What a statement was made for. Those of packs and hand-overs are not rows of this table."""

    REPORT = "report"
    DAILY = "daily"


class SealKey(models.Model):
    """A public key that this installation has signed with; the newest is in use.

    `id`: the first 16 hex digits of the SHA-256 of its 32 bytes; `public`: these in base64. `follows`: the
    key that handed over to it, in the text `handover`, signed by that one (`signature`) and by the new one
    (`accepted`); all "" for the first key, and for one that came without a hand-over.
    """

    id = models.CharField(max_length=16, primary_key=True)
    public = models.CharField(max_length=44)
    since = models.DateTimeField(db_default=Now())
    follows = models.CharField(max_length=16, blank=True, default="")
    handover = models.TextField(blank=True, default="")
    signature = models.CharField(max_length=88, blank=True, default="")
    accepted = models.CharField(max_length=88, blank=True, default="")

    def __str__(self) -> str:
        return self.id


class Statement(models.Model):
    """One statement: `body` is the canonical JSON whose bytes `signature` (base64, Ed25519) signs.

    `unsigned`: why there is no signature, "" where there is one. `day` and `part`: of a daily one, of which a
    large workspace has several; together they name all streams that have new heads since the one before.
    """

    id = models.CharField(max_length=40, primary_key=True, default=partial(new_id, "sta"))
    kind = models.CharField(max_length=6, choices=StatementKind)
    workspace = models.ForeignKey(Workspace, models.PROTECT, related_name="+")
    report = models.OneToOneField(Report, models.PROTECT, null=True, related_name="statement")
    day = models.DateField(null=True)
    part = models.PositiveIntegerField(default=1)
    at = models.DateTimeField()
    key = models.CharField(max_length=16, blank=True)
    body = models.TextField()
    signature = models.CharField(max_length=88, blank=True)
    unsigned = models.CharField(max_length=200, blank=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=["workspace", "day", "part"], name="statement_of_day", condition=Q(kind="daily")
            ),
            models.CheckConstraint(condition=Q(kind__in=StatementKind.values), name="statement_kind"),
            models.CheckConstraint(
                condition=Q(kind="report", report__isnull=False, day__isnull=True)
                | Q(kind="daily", report__isnull=True, day__isnull=False),
                name="statement_of_one_thing",
            ),
            models.CheckConstraint(
                condition=(Q(signature="") & ~Q(unsigned="")) | (~Q(signature="") & Q(unsigned="")),
                name="statement_signed_or_why_not",
            ),
        )
        indexes = (models.Index(fields=["workspace", "kind", "-id"], name="statement_newest"),)

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"
