"""What a model turn left: what it spent, and the output it had made when it was cut off."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from runs.columns import Prose, Words
from runs.store import Now

from .run import Permit


class Turn(models.Model):
    """What the holder of a model permit said of its turn; no row: nothing was reported.

    `tokens_in`, `tokens_out`: None where not reported. `cost`: text, as the holder wrote it.
    `output`: of a turn that was cut off, as text; empty when the rules drop it, and then size (in bytes)
    and digest (SHA-256 in hex) are what is left.
    """

    permit = models.OneToOneField(Permit, models.PROTECT, primary_key=True, related_name="turn")
    model = Words(max_length=120, blank=True)
    tokens_in = models.BigIntegerField(null=True)
    tokens_out = models.BigIntegerField(null=True)
    cost = Words(max_length=60, blank=True)
    output = Prose(blank=True)
    output_size = models.PositiveIntegerField(null=True)
    output_digest = models.CharField(max_length=64, blank=True)
    output_kept = models.BooleanField(default=False)
    told_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = (
            models.CheckConstraint(condition=Q(output="") | Q(output_kept=True), name="turn_output_kept"),
        )

    def __str__(self) -> str:
        return f"turn of {self.permit_id}"
