"""What each drill showed, and when it is due again."""

import functools

from django.db import migrations, models

import runs.store


class Migration(migrations.Migration):
    dependencies = [
        ("dashboard", "0001_tables_of_notices"),
    ]

    operations = [
        migrations.CreateModel(
            name="DrillRun",
            fields=[
                (
                    "id",
                    models.CharField(
                        default=functools.partial(runs.store.new_id, "drl"),
                        max_length=40,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("name", models.CharField(max_length=60)),
                (
                    "via",
                    models.CharField(
                        choices=[("page", "Page"), ("command", "Command"), ("schedule", "Schedule")],
                        max_length=8,
                    ),
                ),
                ("by", models.CharField(max_length=60)),
                ("asked_at", models.DateTimeField(db_default=runs.store.Now())),
                ("started_at", models.DateTimeField(null=True)),
                ("alive_until", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("token", models.CharField(blank=True, max_length=40)),
                ("steps", models.JSONField(default=list)),
                (
                    "result",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("passed", "Passed"),
                            ("failed", "Failed"),
                            ("inconclusive", "Inconclusive"),
                            ("interrupted", "Interrupted"),
                        ],
                        max_length=12,
                    ),
                ),
                ("why", models.CharField(blank=True, max_length=500)),
                ("checks", models.JSONField(default=dict)),
                ("report", models.CharField(blank=True, max_length=200)),
                ("release", models.CharField(blank=True, max_length=60)),
                ("runtime", models.CharField(blank=True, max_length=200)),
                ("log", models.TextField(blank=True)),
            ],
            options={
                "indexes": [models.Index(fields=["name", "-id"], name="drill_newest")],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("result", "")), fields=("name",), name="drill_once_in_line"
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("result", ""), ("started_at__isnull", False)),
                        fields=("result",),
                        name="drill_one_at_a_time",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("result__in", ["", "passed", "failed", "inconclusive", "interrupted"])
                        ),
                        name="drill_result",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("via__in", ["page", "command", "schedule"])), name="drill_via"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("result", ""), ("finished_at__isnull", False), _connector="XOR"),
                        name="drill_finished_with_result",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="DrillSchedule",
            fields=[
                ("which", models.CharField(max_length=60, primary_key=True, serialize=False)),
                ("every", models.CharField(choices=[("daily", "Daily"), ("weekly", "Weekly")], max_length=6)),
                ("next_at", models.DateTimeField()),
                ("by", models.CharField(max_length=60)),
                ("set_at", models.DateTimeField(db_default=runs.store.Now())),
            ],
            options={
                "indexes": [models.Index(fields=["next_at"], name="drill_due")],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("every__in", ["daily", "weekly"])), name="drill_every"
                    )
                ],
            },
        ),
    ]
