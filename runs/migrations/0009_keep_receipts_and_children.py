"""Receipts per worker and boundary, silent runs, child runs and the stops that reach them."""

from typing import Any

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import F
from django.db.models.functions import Coalesce

import runs.store
from runs.triggers import RULES, in_force

NEW = ("run_parent_stays", "run_is_not_its_own_parent")  # a new database has them since 0002


def forwards(apps: Any, schema_editor: Any) -> None:
    """No run has a child yet: no stop is left to be passed on. A run counts as silent by its last sign."""
    stops = apps.get_model("runs", "StopRequest")._base_manager
    stops.filter(passed_on_at=None).update(passed_on_at=F("recorded_at"))
    open_ones = ("ACTIVE", "PAUSING", "CANCELLING", "CANCELLING_TIMEOUT")
    runs = apps.get_model("runs", "Run")._base_manager
    runs.filter(status__in=open_ones).update(silent_at=Coalesce("last_heard_at", "admitted_at"))


def backwards(apps: Any, schema_editor: Any) -> None:
    """The columns go as a whole."""


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0008_remember_restores"),
    ]

    operations = [
        migrations.AddField("run", "parent_version", models.BigIntegerField(null=True)),
        migrations.AddField("run", "silent_at", models.DateTimeField(null=True)),
        migrations.AddField(
            "stoprequest",
            "parent_stop",
            models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="passed_on",
                to="runs.stoprequest",
            ),
        ),
        migrations.AddField("stoprequest", "passed_on_at", models.DateTimeField(null=True)),
        migrations.AddField(
            "press",
            "parent_stop",
            models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="runs.stoprequest",
            ),
        ),
        migrations.CreateModel(
            name="Receipt",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("boundary", models.CharField(max_length=10)),
                ("version", models.BigIntegerField()),
                ("confirmed_at", models.DateTimeField(db_default=runs.store.Now())),
                ("heard_at", models.DateTimeField(db_default=runs.store.Now())),
                ("worker", models.CharField(max_length=120)),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="receipts",
                        to="runs.run",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("run", "worker", "boundary"), name="receipt_once"),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "boundary__in",
                                (
                                    "admit",
                                    "claim",
                                    "model",
                                    "dispatch",
                                    "retry",
                                    "act",
                                    "deliver",
                                    "checkpoint",
                                ),
                            )
                        ),
                        name="receipt_boundary",
                    ),
                ],
            },
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("status__in", ["ACTIVE", "PAUSING", "CANCELLING", "CANCELLING_TIMEOUT"])),
                fields=["workspace", "silent_at"],
                name="run_silent",
            ),
        ),
        migrations.AddIndex(
            model_name="stoprequest",
            index=models.Index(
                condition=models.Q(("passed_on_at__isnull", True), ("run__isnull", False)),
                fields=["recorded_at"],
                name="stop_to_pass_on",
            ),
        ),
        in_force([rule for rule in RULES if rule.name in NEW]),
        migrations.RunPython(forwards, backwards),
    ]
