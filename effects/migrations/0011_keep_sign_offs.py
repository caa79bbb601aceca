"""Who has read which version of a report: append-only."""

import functools

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import runs.store
from runs.triggers import append_only, in_force


class Migration(migrations.Migration):
    dependencies = [
        ("effects", "0010_find_jobs_to_ask_about"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="SignOff",
            fields=[
                (
                    "id",
                    models.CharField(
                        default=functools.partial(runs.store.new_id, *("sig",)),
                        max_length=40,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("version", models.PositiveIntegerField()),
                ("newest", models.PositiveIntegerField()),
                ("digest", models.CharField(max_length=64)),
                ("open_items", models.PositiveIntegerField()),
                ("line", models.BigIntegerField()),
                ("at", models.DateTimeField(db_default=runs.store.Now())),
                (
                    "person",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "report",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="sign_offs",
                        to="effects.report",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("report", "person"), name="sign_off_once"),
                    models.CheckConstraint(
                        condition=models.Q(("newest__gte", models.F("version"))), name="sign_off_newest"
                    ),
                ],
            },
        ),
        in_force(append_only("effects_signoff")),
    ]
