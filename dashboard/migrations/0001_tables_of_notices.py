"""Notices, who wants them, and how telling them went."""

import functools

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import runs.store


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("runs", "0006_find_old_answers"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="NoMail",
            fields=[
                (
                    "user",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("since", models.DateTimeField(db_default=runs.store.Now())),
            ],
        ),
        migrations.CreateModel(
            name="Endpoint",
            fields=[
                (
                    "id",
                    models.CharField(
                        default=functools.partial(runs.store.new_id, "end"),
                        max_length=40,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("name", models.CharField(max_length=120)),
                ("url", models.CharField(max_length=2000)),
                ("events", models.JSONField(default=list)),
                ("secrets", models.JSONField(default=list)),
                ("created_at", models.DateTimeField(db_default=runs.store.Now())),
                ("failures", models.PositiveIntegerField(default=0)),
                ("failing_since", models.DateTimeField(null=True)),
                ("busy_until", models.DateTimeField(null=True)),
                ("rest_until", models.DateTimeField(null=True)),
                ("off_at", models.DateTimeField(null=True)),
                ("off_because", models.CharField(blank=True, max_length=200)),
                (
                    "workspace",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="endpoints",
                        to="runs.workspace",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Notice",
            fields=[
                (
                    "id",
                    models.CharField(
                        default=functools.partial(runs.store.new_id, "ntc"),
                        max_length=40,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "event",
                    models.CharField(
                        choices=[
                            ("stop.recorded", "A stop was recorded"),
                            ("stop.timed_out", "A stop timed out"),
                            ("stop.closed", "A stop closed"),
                            ("unknown.past_due", "Something is unknown past its due time"),
                            ("review.waiting", "A review waits for a person"),
                            ("test", "A test"),
                        ],
                        max_length=20,
                    ),
                ),
                ("stop_id", models.CharField(blank=True, max_length=40)),
                ("subject", models.CharField(blank=True, max_length=40)),
                ("subject_at", models.DateTimeField(null=True)),
                ("seq", models.BigIntegerField(null=True)),
                ("at", models.DateTimeField(db_default=runs.store.Now())),
                ("body", models.TextField(blank=True)),
                ("told_at", models.DateTimeField(null=True)),
                (
                    "run",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="runs.run",
                    ),
                ),
                (
                    "workspace",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="runs.workspace"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Posting",
            fields=[
                (
                    "id",
                    models.CharField(
                        default=functools.partial(runs.store.new_id, "pst"),
                        max_length=40,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[("WAITING", "Waiting"), ("SENT", "Sent"), ("GIVEN_UP", "Given Up")],
                        default="WAITING",
                        max_length=8,
                    ),
                ),
                ("tries", models.PositiveIntegerField(default=0)),
                ("next_at", models.DateTimeField(null=True)),
                ("settled_at", models.DateTimeField(null=True)),
                (
                    "endpoint",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="postings",
                        to="dashboard.endpoint",
                    ),
                ),
                (
                    "notice",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="postings",
                        to="dashboard.notice",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Attempt",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("at", models.DateTimeField(db_default=runs.store.Now())),
                ("took_ms", models.PositiveIntegerField()),
                ("taken", models.BooleanField()),
                ("status", models.PositiveSmallIntegerField(null=True)),
                ("detail", models.CharField(max_length=200)),
                (
                    "posting",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="attempts",
                        to="dashboard.posting",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Subscription",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("events", models.JSONField(default=list)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "workspace",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="runs.workspace"
                    ),
                ),
            ],
        ),
        migrations.AddConstraint(
            model_name="endpoint",
            constraint=models.UniqueConstraint(fields=("workspace", "name"), name="endpoint_once"),
        ),
        migrations.AddIndex(
            model_name="notice",
            index=models.Index(
                condition=models.Q(("told_at__isnull", True)), fields=["id"], name="notice_untold"
            ),
        ),
        migrations.AddIndex(
            model_name="notice",
            index=models.Index(fields=["at"], name="notice_by_age"),
        ),
        migrations.AddConstraint(
            model_name="notice",
            constraint=models.UniqueConstraint(
                condition=models.Q(("subject_at__isnull", False)),
                fields=("event", "subject", "subject_at"),
                name="notice_once",
            ),
        ),
        migrations.AddIndex(
            model_name="posting",
            index=models.Index(
                condition=models.Q(("state", "WAITING")), fields=["next_at"], name="posting_due"
            ),
        ),
        migrations.AddIndex(
            model_name="posting",
            index=models.Index(fields=["endpoint", "-id"], name="posting_log"),
        ),
        migrations.AddConstraint(
            model_name="posting",
            constraint=models.UniqueConstraint(fields=("notice", "endpoint"), name="posting_once"),
        ),
        migrations.AddConstraint(
            model_name="posting",
            constraint=models.UniqueConstraint(fields=("notice", "user"), name="posting_to_person_once"),
        ),
        migrations.AddConstraint(
            model_name="posting",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["WAITING", "SENT", "GIVEN_UP"])), name="posting_state"
            ),
        ),
        migrations.AddConstraint(
            model_name="posting",
            constraint=models.CheckConstraint(
                condition=models.Q(("endpoint__isnull", True), ("user__isnull", True), _connector="XOR"),
                name="posting_to_one",
            ),
        ),
        migrations.AddIndex(
            model_name="attempt",
            index=models.Index(fields=["posting", "id"], name="attempt_of_posting"),
        ),
        migrations.AddConstraint(
            model_name="subscription",
            constraint=models.UniqueConstraint(fields=("user", "workspace"), name="subscription_once"),
        ),
    ]
