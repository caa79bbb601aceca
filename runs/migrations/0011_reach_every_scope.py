"""What a stop of a session, a policy, a whole workspace, all workspaces or a list of runs keeps."""

import functools

import django.db.models.deletion
from django.db import migrations, models

import runs.store


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0010_keep_what_a_model_turn_left"),
    ]

    operations = [
        migrations.CreateModel(
            name="Release",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("asked_by", models.CharField(max_length=60)),
                ("asked_at", models.DateTimeField(db_default=runs.store.Now())),
                ("reason", models.TextField()),
                ("granted_by", models.CharField(blank=True, max_length=60)),
                ("granted_at", models.DateTimeField(null=True)),
                ("void_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="StopPart",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "result",
                    models.CharField(
                        choices=[
                            ("pending", "Pending"),
                            ("recorded", "Recorded"),
                            ("joined", "Joined"),
                            ("finished", "Finished"),
                            ("not_permitted", "Not Permitted"),
                            ("listed", "Listed"),
                        ],
                        default="pending",
                        max_length=13,
                    ),
                ),
                ("at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="WideStop",
            fields=[
                (
                    "id",
                    models.CharField(
                        default=functools.partial(runs.store.new_id, *("wid",)),
                        max_length=40,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
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
                ("actor", models.CharField(max_length=60)),
                ("via", models.CharField(max_length=10)),
                ("address", models.CharField(blank=True, max_length=60)),
                ("key", models.CharField(max_length=255)),
                ("recorded_at", models.DateTimeField(db_default=runs.store.Now())),
                ("shut_at", models.DateTimeField(null=True)),
                ("released_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="WouldRefuse",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("boundary", models.CharField(max_length=8)),
                ("count", models.PositiveIntegerField(default=1)),
                ("first_at", models.DateTimeField(db_default=runs.store.Now())),
                ("last_at", models.DateTimeField(db_default=runs.store.Now())),
            ],
        ),
        migrations.AddField(
            model_name="policy",
            name="created_by",
            field=models.CharField(db_default="", default="", max_length=60),
        ),
        migrations.AddField(
            model_name="policy",
            name="reach",
            field=models.CharField(
                choices=[("runs", "Runs"), ("effects", "Effects")],
                db_default="runs",
                default="runs",
                max_length=8,
            ),
        ),
        migrations.AddField(
            model_name="refusal",
            name="stop",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="refusals",
                to="runs.stoprequest",
            ),
        ),
        migrations.AddField(
            model_name="stoprequest",
            name="observes",
            field=models.BooleanField(null=True),
        ),
        migrations.AddField(
            model_name="stoprequest",
            name="policy",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="stops", to="runs.policy"
            ),
        ),
        migrations.AddField(
            model_name="stoprequest",
            name="review_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="stoprequest",
            name="runs_n",
            field=models.PositiveIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="stoprequest",
            name="scope_stop",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="run_stops",
                to="runs.stoprequest",
            ),
        ),
        migrations.AddField(
            model_name="stoprequest",
            name="selection",
            field=models.JSONField(null=True),
        ),
        migrations.AddField(
            model_name="stoprequest",
            name="session",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="stops",
                to="runs.session",
            ),
        ),
        migrations.AddField(
            model_name="stoprequest",
            name="step",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="stops", to="runs.step"
            ),
        ),
        migrations.AddIndex(
            model_name="policy",
            index=models.Index(
                condition=models.Q(("gate", "SHUT")), fields=["workspace"], name="policy_shut"
            ),
        ),
        migrations.AddField(
            model_name="release",
            name="stop",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="releases", to="runs.stoprequest"
            ),
        ),
        migrations.AddField(
            model_name="stoppart",
            name="run",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="stop_parts", to="runs.run"
            ),
        ),
        migrations.AddField(
            model_name="stoppart",
            name="run_stop",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="runs.stoprequest",
            ),
        ),
        migrations.AddField(
            model_name="stoppart",
            name="stop",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="parts", to="runs.stoprequest"
            ),
        ),
        migrations.AddConstraint(
            model_name="widestop",
            constraint=models.UniqueConstraint(fields=("actor", "key"), name="wide_stop_once"),
        ),
        migrations.AddConstraint(
            model_name="widestop",
            constraint=models.CheckConstraint(
                condition=models.Q(("mode__in", ["pause", "cancel", "abandon"])), name="wide_stop_mode"
            ),
        ),
        migrations.AddField(
            model_name="stoprequest",
            name="wide",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="stops",
                to="runs.widestop",
            ),
        ),
        migrations.AddIndex(
            model_name="stoprequest",
            index=models.Index(
                condition=models.Q(
                    ("closed_at__isnull", True), ("released_at__isnull", True), ("run__isnull", True)
                ),
                fields=["workspace", "scope"],
                name="stop_standing",
            ),
        ),
        migrations.AddField(
            model_name="wouldrefuse",
            name="run",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="runs.run"
            ),
        ),
        migrations.AddField(
            model_name="wouldrefuse",
            name="stop",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT,
                related_name="would_refuse",
                to="runs.stoprequest",
            ),
        ),
        migrations.AddConstraint(
            model_name="release",
            constraint=models.UniqueConstraint(
                condition=models.Q(("granted_at__isnull", True), ("void_at__isnull", True)),
                fields=("stop",),
                name="release_open_once",
            ),
        ),
        migrations.AddConstraint(
            model_name="release",
            constraint=models.CheckConstraint(
                condition=models.Q(("granted_by", models.F("asked_by")), _negated=True),
                name="release_two_people",
            ),
        ),
        migrations.AddIndex(
            model_name="stoppart",
            index=models.Index(fields=["stop", "result", "run"], name="stop_part_by_result"),
        ),
        migrations.AddConstraint(
            model_name="stoppart",
            constraint=models.UniqueConstraint(fields=("stop", "run"), name="stop_part_once"),
        ),
        migrations.AddConstraint(
            model_name="stoppart",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("result__in", ["pending", "recorded", "joined", "finished", "not_permitted", "listed"])
                ),
                name="stop_part_result",
            ),
        ),
        migrations.AddConstraint(
            model_name="wouldrefuse",
            constraint=models.UniqueConstraint(
                condition=models.Q(("run__isnull", False)),
                fields=("stop", "run", "boundary"),
                name="would_refuse_once",
            ),
        ),
    ]
