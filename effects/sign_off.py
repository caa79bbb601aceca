"""The table of sign-offs: who has read which version of a report. Part of effects.models."""

from __future__ import annotations

from functools import partial

from django.db import models

from runs.models import User
from runs.store import Now, new_id


class SignOff(models.Model):
    """One person's word that they read one issued version. Append-only; it settles nothing.

    `digest` is the version's, as it was on the page that they signed. `newest`: the newest version at that
    moment; greater than `version` where an older one was signed. `open_items`: how much that version left
    open. `line`: the evidence of it, whose body holds the note: a note can be removed, and this row stays.
    """

    id = models.CharField(max_length=40, primary_key=True, default=partial(new_id, "sig"))
    report = models.ForeignKey("effects.Report", models.PROTECT, related_name="sign_offs")
    version = models.PositiveIntegerField()
    newest = models.PositiveIntegerField()
    digest = models.CharField(max_length=64)
    open_items = models.PositiveIntegerField()
    person = models.ForeignKey(User, models.PROTECT, related_name="+")
    line = models.BigIntegerField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["report", "person"], name="sign_off_once"),
            models.CheckConstraint(
                condition=models.Q(newest__gte=models.F("version")), name="sign_off_newest"
            ),
        )

    def __str__(self) -> str:
        return f"{self.report_id} signed by {self.person_id}"
