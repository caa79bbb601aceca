"""What a database can't know of itself: that it was put back from a backup, and what is missing since."""

from __future__ import annotations

from django.db import models

from runs.store import Now


class Restore(models.Model):
    """This database was restored: what was recorded between `taken_at` and `restored_at` is missing.

    `digest` is that of the backup; `release` the version of Allstop that took it. A restore of runs that
    were admitted later than it concerns them no more.
    """

    taken_at = models.DateTimeField()
    restored_at = models.DateTimeField(db_default=Now())
    digest = models.CharField(max_length=64)
    release = models.CharField(max_length=60, blank=True)

    class Meta:
        indexes = (models.Index(fields=["restored_at"], name="restore_by_time"),)

    def __str__(self) -> str:
        return f"{self.taken_at} restored {self.restored_at}"
