"""Columns for what people, agents and providers say: no secret gets past them into the database.

What enters is redacted where it enters (runs/fields.py, effects/providers/answers.py, runs/evidence.py), so
that digests and answers are about what is kept. These columns are behind all of those: whatever verb, form or
task writes, by insert or by update. What has to be sent as it is, is bytes, and no column of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models

from . import redaction

if TYPE_CHECKING:
    _Char = models.CharField[Any, str]
    _Text = models.TextField[Any, str]
    _JSON = models.JSONField[Any, Any]
else:
    _Char, _Text, _JSON = models.CharField, models.TextField, models.JSONField


class Redacting:
    """What is saved is what `redact` leaves; the row in hand then holds the same."""

    max_length: int | None

    def kept(self, value: Any) -> Any:
        """As it is stored; a text that grew by its markers is cut to the column."""
        clean = redaction.redact(value) if isinstance(value, str | list | dict | tuple) else value
        if clean is not value and isinstance(clean, str) and self.max_length and isinstance(value, str):
            return clean[: self.max_length] if clean != value else value
        return clean

    def pre_save(self, instance: models.Model, add: bool) -> Any:
        value = super().pre_save(instance, add)  # type: ignore[misc]
        clean = self.kept(value)
        if clean != value:
            setattr(instance, self.attname, clean)  # type: ignore[attr-defined]
        return clean

    def get_db_prep_save(self, value: Any, connection: Any) -> Any:
        return super().get_db_prep_save(self.kept(value), connection)  # type: ignore[misc]

    def deconstruct(self) -> Any:
        """For migrations it is the plain column: nothing of the table differs."""
        name, _, args, kwargs = super().deconstruct()  # type: ignore[misc]
        return name, f"django.db.models.{PLAIN[type(self).__name__]}", args, kwargs


class Words(Redacting, _Char):
    """A short text that somebody said."""


class Prose(Redacting, _Text):
    """A long one."""


class Told(Redacting, _JSON):
    """JSON that somebody told."""


PLAIN = {"Words": "CharField", "Prose": "TextField", "Told": "JSONField"}
