"""Stops that somebody wants at a moment to come."""

import functools
from typing import Any

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q

import runs.store

TO_A: dict[str, Any] = {"null": True, "on_delete": django.db.models.deletion.PROTECT, "related_name": "+"}


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0013_refuse_runs_under_shut_policies"),
    ]

    operations = [
        migrations.CreateModel(
            name="ScheduledStop",
            fields=[
                (
                    "id",
                    models.CharField(
                        default=functools.partial(runs.store.new_id, *("sch",)),
                        max_length=40,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("scope", models.CharField(max_length=10)),
                ("run_key", models.CharField(blank=True, max_length=200)),
                (
                    "mode",
                    models.CharField(
                        choices=[("pause", "Pause"), ("cancel", "Cancel"), ("abandon", "Abandon")],
                        max_length=8,
                    ),
                ),
                ("reason", models.CharField(default="other", max_length=40)),
                ("note", models.TextField(blank=True)),
                ("deadline_s", models.PositiveIntegerField(default=60)),
                ("at", models.DateTimeField()),
                ("local", models.CharField(blank=True, max_length=30)),
                ("zone", models.CharField(blank=True, max_length=60)),
                ("reading", models.CharField(default="exact", max_length=8)),
                ("actor", models.CharField(max_length=60)),
                ("created_at", models.DateTimeField(db_default=runs.store.Now())),
                ("withdrawn_at", models.DateTimeField(null=True)),
                ("withdrawn_by", models.CharField(blank=True, max_length=60)),
                ("pressed_at", models.DateTimeField(null=True)),
                ("policy", models.ForeignKey(to="runs.policy", **TO_A)),
                ("session", models.ForeignKey(to="runs.session", **TO_A)),
                ("stop", models.ForeignKey(to="runs.stoprequest", **TO_A)),
                (
                    "workspace",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="scheduled_stops",
                        to="runs.workspace",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=Q(pressed_at__isnull=True, withdrawn_at__isnull=True),
                        fields=["at"],
                        name="scheduled_stop_due",
                    ),
                    models.Index(fields=["workspace", "-id"], name="scheduled_stop_newest"),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=Q(mode__in=["pause", "cancel", "abandon"]), name="scheduled_stop_mode"
                    ),
                    models.CheckConstraint(
                        condition=Q(scope__in=("run", "session", "workspace", "policy")),
                        name="scheduled_stop_scope",
                    ),
                    models.CheckConstraint(
                        condition=Q(pressed_at__isnull=True) | Q(withdrawn_at__isnull=True),
                        name="scheduled_stop_ends_once",
                    ),
                ],
            },
        ),
    ]
