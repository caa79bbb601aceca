"""What a restore lost, in the one sentence that pages and reports have for it."""

from __future__ import annotations

from datetime import datetime

from dashboard import words
from runs.models import Restore


def missing(taken_at: datetime, restored_at: datetime) -> str:
    """Of a restore at that moment, from a backup of that moment."""
    return words.MISSING.format(taken=words.moment_utc(taken_at), at=words.moment_utc(restored_at))


def missing_for(admitted_at: datetime) -> str:
    """Of the newest restore that a run admitted then went through; "" when there was none."""
    restore = Restore.objects.filter(restored_at__gte=admitted_at).order_by("-pk").first()
    return missing(restore.taken_at, restore.restored_at) if restore else ""
