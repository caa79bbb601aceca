"""What people say of an unknown: their verdicts, what they attach, and who looks after it.

Part of effects.models. A subject is an effect, a delivery or a compensation, by its id.
"""

from __future__ import annotations

from functools import partial

from django.db import models
from django.db.models import F, Q

from runs.columns import Prose, Told, Words
from runs.models import Run, User, Workspace
from runs.store import Now, new_id


class Matter(models.TextChoices):
    """What can be unknown."""

    EFFECT = "effect"
    DELIVERY = "delivery"
    COMPENSATION = "compensation"


class Verdict(models.TextChoices):
    """What a person says of it; the last needs a second person."""

    HAPPENED = "happened"
    DID_NOT = "did not happen"
    PARTLY = "partly happened"
    CANNOT_TELL = "cannot be determined"


class Attachment(models.Model):
    """Evidence that a person attached: a provider's reference, a link, a quote, or a file. Only ever emptied.

    `content` is empty for all but a file; `digest` is the SHA-256 of the file, or of the text.
    """

    id = models.CharField(max_length=40, primary_key=True, default=partial(new_id, "att"))
    workspace = models.ForeignKey(Workspace, models.PROTECT, related_name="+")
    run = models.ForeignKey(Run, models.PROTECT, related_name="attachments")
    matter = models.CharField(max_length=12, choices=Matter)
    subject_id = models.CharField(max_length=40)
    form = models.CharField(
        max_length=9,
        choices=[("reference", "Reference"), ("link", "Link"), ("quote", "Quote"), ("file", "File")],
    )
    text = Prose(blank=True)
    file_name = Words(max_length=200, blank=True)
    content_type = Words(max_length=100, blank=True)
    content = models.BinaryField(default=bytes)
    digest = models.CharField(max_length=64)
    person = models.ForeignKey(User, models.PROTECT, related_name="+")
    at = models.DateTimeField(db_default=Now())
    removed_at = models.DateTimeField(null=True)
    removed_under = models.CharField(max_length=120, null=True)  # noqa: DJ001  (nullable: see docs/operating.md)

    class Meta:
        indexes = (models.Index(fields=["subject_id", "id"], name="attachment_of"),)

    def __str__(self) -> str:
        return f"{self.form} for {self.subject_id}"


class Resolution(models.Model):
    """One person's verdict on an unknown. Never changed but for the moments that it waits for.

    `in_force_at`: since when it counts; without it, it waits for a second person (or was withdrawn).
    `supersedes`: what it corrects; both stay. `settled_as`: what the subject became by it.
    """

    id = models.CharField(max_length=40, primary_key=True, default=partial(new_id, "res"))
    workspace = models.ForeignKey(Workspace, models.PROTECT, related_name="+")
    run = models.ForeignKey(Run, models.PROTECT, related_name="resolutions")
    matter = models.CharField(max_length=12, choices=Matter)
    subject_id = models.CharField(max_length=40)
    number = models.PositiveIntegerField(default=1)
    verdict = models.CharField(max_length=20, choices=Verdict)
    items = Told(null=True)
    evidence = Prose()
    attachments = models.JSONField(default=list)
    lines = models.JSONField(default=list)
    supersedes = models.ForeignKey("self", models.PROTECT, null=True, related_name="+")
    person = models.ForeignKey(User, models.PROTECT, related_name="+")
    second = models.ForeignKey(User, models.PROTECT, null=True, related_name="+")
    recorded_at = models.DateTimeField(db_default=Now())
    in_force_at = models.DateTimeField(null=True)
    withdrawn_at = models.DateTimeField(null=True)
    withdrawn_by = models.CharField(max_length=60, blank=True)
    withdrawn_why = Words(max_length=200, blank=True)
    settled_as = models.CharField(max_length=16, blank=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["subject_id", "number"], name="resolution_number_once"),
            models.UniqueConstraint(
                fields=["subject_id"],
                name="resolution_waits_once",
                condition=Q(in_force_at__isnull=True, withdrawn_at__isnull=True),
            ),
            models.CheckConstraint(
                condition=Q(second__isnull=True) | ~Q(second=F("person")), name="resolution_by_two"
            ),
            models.CheckConstraint(
                condition=~Q(verdict=Verdict.CANNOT_TELL)
                | Q(in_force_at__isnull=True)
                | Q(second__isnull=False),
                name="resolution_accepts_by_two",
            ),
        )
        indexes = (
            models.Index(fields=["run", "subject_id"], name="resolution_of_run"),
            models.Index(fields=["workspace", "-id"], name="resolution_newest"),
        )

    def __str__(self) -> str:
        return f"{self.verdict}: {self.subject_id}"


class Care(models.Model):
    """Who looks after an unknown, and whether anybody was told that it is overdue."""

    subject_id = models.CharField(max_length=40, primary_key=True)
    workspace = models.ForeignKey(Workspace, models.PROTECT, related_name="+")
    run = models.ForeignKey(Run, models.PROTECT, related_name="+")
    matter = models.CharField(max_length=12, choices=Matter)
    person = models.ForeignKey(User, models.PROTECT, null=True, related_name="+")
    taken_at = models.DateTimeField(null=True)
    overdue_told_at = models.DateTimeField(null=True)

    class Meta:
        indexes = (models.Index(fields=["workspace", "person"], name="care_of_person"),)

    def __str__(self) -> str:
        return self.subject_id
