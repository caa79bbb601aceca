"""What this installation signed, and the public keys to check it with: append-only."""

import functools

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q

import runs.store
from runs.triggers import append_only, in_force


class Migration(migrations.Migration):
    dependencies = [
        ("dashboard", "0002_keep_drills"),
        ("effects", "0007_keep_what_really_happened"),
        ("runs", "0016_keep_halts_of_compensations"),
    ]

    operations = [
        migrations.CreateModel(
            name="SealKey",
            fields=[
                ("id", models.CharField(max_length=16, primary_key=True, serialize=False)),
                ("public", models.CharField(max_length=44)),
                ("since", models.DateTimeField(db_default=runs.store.Now())),
                ("follows", models.CharField(blank=True, default="", max_length=16)),
                ("handover", models.TextField(blank=True, default="")),
                ("signature", models.CharField(blank=True, default="", max_length=88)),
                ("accepted", models.CharField(blank=True, default="", max_length=88)),
            ],
        ),
        migrations.CreateModel(
            name="Statement",
            fields=[
                (
                    "id",
                    models.CharField(
                        default=functools.partial(runs.store.new_id, "sta"),
                        max_length=40,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "kind",
                    models.CharField(choices=[("report", "Report"), ("daily", "Daily")], max_length=6),
                ),
                ("day", models.DateField(null=True)),
                ("part", models.PositiveIntegerField(default=1)),
                ("at", models.DateTimeField()),
                ("key", models.CharField(blank=True, max_length=16)),
                ("body", models.TextField()),
                ("signature", models.CharField(blank=True, max_length=88)),
                ("unsigned", models.CharField(blank=True, max_length=200)),
                (
                    "report",
                    models.OneToOneField(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="statement",
                        to="effects.report",
                    ),
                ),
                (
                    "workspace",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="runs.workspace"
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["workspace", "kind", "-id"], name="statement_newest")],
                "constraints": [
                    models.UniqueConstraint(
                        condition=Q(kind="daily"),
                        fields=("workspace", "day", "part"),
                        name="statement_of_day",
                    ),
                    models.CheckConstraint(condition=Q(kind__in=["report", "daily"]), name="statement_kind"),
                    models.CheckConstraint(
                        condition=Q(kind="report", report__isnull=False, day__isnull=True)
                        | Q(kind="daily", report__isnull=True, day__isnull=False),
                        name="statement_of_one_thing",
                    ),
                    models.CheckConstraint(
                        condition=(Q(signature="") & ~Q(unsigned="")) | (~Q(signature="") & Q(unsigned="")),
                        name="statement_signed_or_why_not",
                    ),
                ],
            },
        ),
        in_force([*append_only("dashboard_sealkey"), *append_only("dashboard_statement")]),
    ]
