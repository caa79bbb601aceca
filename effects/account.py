"""Provider accounts: what we show them, what they may tell us, and what they told. Part of effects.models."""

from __future__ import annotations

from functools import partial

from django.db import models
from django.db.models import Q

from runs.models import Workspace
from runs.store import Now, new_id


class Account(models.Model):
    """An account of a workspace at a provider.

    `origin`: the one place that `credential` (sealed, never told again) goes to, in header `header`.
    `secrets`: as of an endpoint of notices, [{sealed, until}], oldest first; webhooks in are checked, and
    our own questions are signed, with them. `reads`: how its webhooks are read (effects/inbound.py).
    `moved_at`: since when origin, header and credential are what they are; None: from the beginning.
    """

    id = models.CharField(max_length=40, primary_key=True, default=partial(new_id, "acc"))
    workspace = models.ForeignKey(Workspace, models.PROTECT, related_name="accounts")
    name = models.CharField(max_length=120)
    origin = models.CharField(max_length=300, blank=True)
    header = models.CharField(max_length=60, blank=True)
    credential = models.TextField(blank=True)
    secrets = models.JSONField(default=list)
    reads = models.JSONField(default=dict)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())
    moved_at = models.DateTimeField(null=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["workspace", "name"], name="account_once"),)

    def __str__(self) -> str:
        return self.name


class Inbound(models.Model):
    """One webhook that an account sent and that was genuine; `message_id` is its own, once.

    `became`: settled · recorded (evidence only) · waiting (for its effect, or until it proves something) ·
    unread (no key or verdict in it) · expired (nothing claimed it in time). `body`: what was read in it, and
    the message as it is kept; `verdict`: happened · partly · did not happen · "". A waiting one that names a
    subject has met its effect.
    """

    id = models.CharField(max_length=40, primary_key=True, default=partial(new_id, "inb"))
    account = models.ForeignKey(Account, models.CASCADE, related_name="inbound")
    message_id = models.CharField(max_length=200)
    effect_key = models.CharField(max_length=200, blank=True)
    verdict = models.CharField(max_length=16, blank=True, default="", db_default="")
    body = models.TextField()
    digest = models.CharField(max_length=64)
    sent_at = models.DateTimeField()
    received_at = models.DateTimeField(db_default=Now())
    became = models.CharField(max_length=10, default="waiting")
    subject_id = models.CharField(max_length=40, blank=True)
    applied_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField()

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["account", "message_id"], name="inbound_once"),
            models.CheckConstraint(
                condition=Q(became__in=["settled", "recorded", "waiting", "unread", "expired"]),
                name="inbound_became",
            ),
        )
        indexes = (
            models.Index(
                fields=["account", "effect_key"], name="inbound_waiting", condition=Q(became="waiting")
            ),
            models.Index(fields=["expires_at"], name="inbound_due", condition=Q(became="waiting")),
            models.Index(fields=["subject_id"], name="inbound_of", condition=~Q(subject_id="")),
        )

    def __str__(self) -> str:
        return self.message_id
