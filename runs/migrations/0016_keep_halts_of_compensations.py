"""A halt of compensations: set by a stop of a scope, lifted by a reviewer."""

import functools

import django.db.models.deletion
from django.db import migrations, models

import runs.store


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0015_withdraw_scheduled_stops_with_a_reason"),
    ]

    operations = [
        migrations.CreateModel(
            name="Halt",
            fields=[
                (
                    "id",
                    models.CharField(
                        default=functools.partial(runs.store.new_id, *("hlt",)),
                        max_length=40,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("set_at", models.DateTimeField(db_default=runs.store.Now())),
                ("lifted_at", models.DateTimeField(null=True)),
                ("lifted_by", models.CharField(blank=True, max_length=60)),
                ("reason", models.TextField(blank=True)),
                (
                    "policy",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="runs.policy",
                    ),
                ),
                (
                    "session",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="runs.session",
                    ),
                ),
                (
                    "stop",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="runs.stoprequest"
                    ),
                ),
                (
                    "workspace",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="halts", to="runs.workspace"
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("lifted_at__isnull", True)),
                        fields=["workspace"],
                        name="halt_in_force",
                    )
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("session__isnull", True), ("policy__isnull", True), _connector="OR"
                        ),
                        name="halt_of_one_scope",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("lifted_at__isnull", True), ("lifted_by", "")),
                            models.Q(
                                ("lifted_at__isnull", False), models.Q(("lifted_by", ""), _negated=True)
                            ),
                            _connector="OR",
                        ),
                        name="halt_says_who_lifted_it",
                    ),
                ],
            },
        ),
    ]
