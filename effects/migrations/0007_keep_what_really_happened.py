"""Compensations, verdicts of people, provider accounts and their webhooks; and what kinds say of all that."""

import datetime
import functools

import django.db.models.deletion
import django_fsm
from django.conf import settings
from django.db import migrations, models

import runs.store
from runs.triggers import Rule, append_only, in_force, set_once

RULES = [
    *append_only("effects_attachment"),
    Rule("compensation_stays", "effects_compensation", "DELETE", "1=1", "a compensation is never deleted"),
    Rule(
        "compensation_call_stays",
        "effects_compensation",
        "UPDATE",
        "OLD.key <> NEW.key OR OLD.effect_id <> NEW.effect_id OR (OLD.state <> 'PROPOSED' AND"
        " (OLD.body <> NEW.body OR OLD.body_digest <> NEW.body_digest OR OLD.target <> NEW.target"
        " OR OLD.amount <> NEW.amount OR OLD.kind_name <> NEW.kind_name))",
        "what was approved is not changed",
    ),
    Rule("resolution_stays", "effects_resolution", "DELETE", "1=1", "a verdict is never deleted"),
    Rule(
        "resolution_verdict_stays",
        "effects_resolution",
        "UPDATE",
        "OLD.verdict <> NEW.verdict OR OLD.evidence <> NEW.evidence OR OLD.person_id <> NEW.person_id"
        " OR OLD.subject_id <> NEW.subject_id OR (OLD.in_force_at IS NOT NULL AND"
        " (NEW.in_force_at IS NULL OR NEW.in_force_at <> OLD.in_force_at))",
        "a verdict is corrected by another, never changed",
    ),
    # As before: SQLite makes the table of reviews anew for its constraint, and loses these with it.
    Rule(
        "review_moments_stay",
        "effects_review",
        "UPDATE",
        "NEW.run_id <> OLD.run_id OR NEW.subject_id <> OLD.subject_id OR NEW.asked_at <> OLD.asked_at"
        " OR NEW.needed < OLD.needed OR (OLD.closed_at IS NOT NULL AND NEW.closed_as <> OLD.closed_as) OR "
        + set_once("closed_at"),
        "what was asked stays, and a review closes once",
    ),
    Rule("review_stays", "effects_review", "DELETE", "1=1", "a review is never deleted"),
]


class Migration(migrations.Migration):
    dependencies = [
        ("effects", "0006_let_our_executor_write_files"),
        ("runs", "0016_keep_halts_of_compensations"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Account",
            fields=[
                (
                    "id",
                    models.CharField(
                        default=functools.partial(runs.store.new_id, *("acc",)),
                        max_length=40,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("name", models.CharField(max_length=120)),
                ("origin", models.CharField(blank=True, max_length=300)),
                ("header", models.CharField(blank=True, max_length=60)),
                ("credential", models.TextField(blank=True)),
                ("secrets", models.JSONField(default=list)),
                ("reads", models.JSONField(default=dict)),
                ("created_at", models.DateTimeField(db_default=runs.store.Now())),
                ("updated_at", models.DateTimeField(db_default=runs.store.Now())),
            ],
        ),
        migrations.CreateModel(
            name="Attachment",
            fields=[
                (
                    "id",
                    models.CharField(
                        default=functools.partial(runs.store.new_id, *("att",)),
                        max_length=40,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "matter",
                    models.CharField(
                        choices=[
                            ("effect", "Effect"),
                            ("delivery", "Delivery"),
                            ("compensation", "Compensation"),
                        ],
                        max_length=12,
                    ),
                ),
                ("subject_id", models.CharField(max_length=40)),
                (
                    "form",
                    models.CharField(
                        choices=[
                            ("reference", "Reference"),
                            ("link", "Link"),
                            ("quote", "Quote"),
                            ("file", "File"),
                        ],
                        max_length=9,
                    ),
                ),
                ("text", models.TextField(blank=True)),
                ("file_name", models.CharField(blank=True, max_length=200)),
                ("content_type", models.CharField(blank=True, max_length=100)),
                ("content", models.BinaryField(default=bytes)),
                ("digest", models.CharField(max_length=64)),
                ("at", models.DateTimeField(db_default=runs.store.Now())),
            ],
        ),
        migrations.CreateModel(
            name="Care",
            fields=[
                ("subject_id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                (
                    "matter",
                    models.CharField(
                        choices=[
                            ("effect", "Effect"),
                            ("delivery", "Delivery"),
                            ("compensation", "Compensation"),
                        ],
                        max_length=12,
                    ),
                ),
                ("taken_at", models.DateTimeField(null=True)),
                ("overdue_told_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="Compensation",
            fields=[
                (
                    "id",
                    models.CharField(
                        default=functools.partial(runs.store.new_id, *("cmp",)),
                        max_length=40,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("number", models.PositiveSmallIntegerField(default=1)),
                ("kind_name", models.CharField(max_length=120)),
                (
                    "op_class",
                    models.CharField(
                        choices=[
                            ("model_turn", "Model Turn"),
                            ("read", "Read"),
                            ("workspace_change", "Workspace Change"),
                            ("external_job", "External Job"),
                            ("external_write", "External Write"),
                            ("approval_wait", "Approval Wait"),
                            ("browser_action", "Browser Action"),
                            ("delivery", "Delivery"),
                        ],
                        max_length=20,
                    ),
                ),
                ("key", models.CharField(max_length=200)),
                ("title", models.CharField(max_length=300)),
                ("target", models.CharField(blank=True, max_length=300)),
                ("amount", models.CharField(blank=True, max_length=60)),
                ("body", models.BinaryField(default=bytes)),
                ("body_digest", models.CharField(max_length=64)),
                ("expected", models.TextField(blank=True)),
                ("risks", models.TextField(blank=True)),
                (
                    "state",
                    django_fsm.FSMField(
                        choices=[
                            ("PROPOSED", "Proposed"),
                            ("APPROVED", "Approved"),
                            ("REJECTED", "Rejected"),
                            ("EXPIRED", "Expired"),
                            ("VOID", "Void"),
                            ("NOT_NEEDED", "Not Needed"),
                            ("DISPATCHED", "Dispatched"),
                            ("VERIFIED", "Verified"),
                            ("FAILED", "Failed"),
                            ("UNKNOWN", "Unknown"),
                            ("ACCEPTED_UNKNOWN", "Accepted Unknown"),
                        ],
                        default="PROPOSED",
                        max_length=16,
                    ),
                ),
                ("run_version", models.BigIntegerField()),
                ("proposed_by", models.CharField(max_length=60)),
                ("edits", models.PositiveSmallIntegerField(default=0)),
                ("wishes", models.TextField(blank=True)),
                ("decided_by", models.CharField(blank=True, max_length=60)),
                ("reason", models.TextField(blank=True)),
                ("proposed_at", models.DateTimeField(db_default=runs.store.Now())),
                ("decided_at", models.DateTimeField(null=True)),
                ("queued_at", models.DateTimeField(null=True)),
                ("dispatched_at", models.DateTimeField(null=True)),
                ("settled_at", models.DateTimeField(null=True)),
                ("unknown_since", models.DateTimeField(null=True)),
                ("attempt", models.PositiveIntegerField(default=0)),
                ("ground", models.CharField(blank=True, max_length=12)),
                ("result", models.JSONField(null=True)),
                ("provider_ref", models.CharField(blank=True, max_length=300)),
                ("items", models.JSONField(null=True)),
                ("why_unknown", models.CharField(blank=True, max_length=200)),
                ("late", models.BooleanField(default=False)),
                ("next_check_at", models.DateTimeField(null=True)),
                ("check_until", models.DateTimeField(null=True)),
                ("checks", models.PositiveIntegerField(default=0)),
                ("counted", models.PositiveIntegerField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="Inbound",
            fields=[
                (
                    "id",
                    models.CharField(
                        default=functools.partial(runs.store.new_id, *("inb",)),
                        max_length=40,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("message_id", models.CharField(max_length=200)),
                ("effect_key", models.CharField(blank=True, max_length=200)),
                ("body", models.TextField()),
                ("digest", models.CharField(max_length=64)),
                ("sent_at", models.DateTimeField()),
                ("received_at", models.DateTimeField(db_default=runs.store.Now())),
                ("became", models.CharField(default="waiting", max_length=10)),
                ("subject_id", models.CharField(blank=True, max_length=40)),
                ("applied_at", models.DateTimeField(null=True)),
                ("expires_at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="Resolution",
            fields=[
                (
                    "id",
                    models.CharField(
                        default=functools.partial(runs.store.new_id, *("res",)),
                        max_length=40,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "matter",
                    models.CharField(
                        choices=[
                            ("effect", "Effect"),
                            ("delivery", "Delivery"),
                            ("compensation", "Compensation"),
                        ],
                        max_length=12,
                    ),
                ),
                ("subject_id", models.CharField(max_length=40)),
                ("number", models.PositiveIntegerField(default=1)),
                (
                    "verdict",
                    models.CharField(
                        choices=[
                            ("happened", "Happened"),
                            ("did not happen", "Did Not"),
                            ("partly happened", "Partly"),
                            ("cannot be determined", "Cannot Tell"),
                        ],
                        max_length=20,
                    ),
                ),
                ("items", models.JSONField(null=True)),
                ("evidence", models.TextField()),
                ("attachments", models.JSONField(default=list)),
                ("lines", models.JSONField(default=list)),
                ("recorded_at", models.DateTimeField(db_default=runs.store.Now())),
                ("in_force_at", models.DateTimeField(null=True)),
                ("withdrawn_at", models.DateTimeField(null=True)),
                ("withdrawn_by", models.CharField(blank=True, max_length=60)),
                ("withdrawn_why", models.CharField(blank=True, max_length=200)),
                ("settled_as", models.CharField(blank=True, max_length=16)),
            ],
        ),
        migrations.RemoveConstraint(
            model_name="kind",
            name="kind_provider",
        ),
        migrations.RemoveConstraint(
            model_name="review",
            name="review_says_how_it_closed",
        ),
        migrations.AddField(
            model_name="effect",
            name="asks_about",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="asked",
                to="effects.effect",
            ),
        ),
        migrations.AddField(
            model_name="effect",
            name="counted",
            field=models.PositiveIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="effect",
            name="job_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="effect",
            name="on_stop",
            field=models.CharField(max_length=12, null=True),
        ),
        migrations.AddField(
            model_name="kind",
            name="account",
            field=models.CharField(blank=True, db_default="", default="", max_length=120),
        ),
        migrations.AddField(
            model_name="kind",
            name="compensate",
            field=models.JSONField(default=dict),
        ),
        migrations.AddField(
            model_name="kind",
            name="due_after",
            field=models.DurationField(
                db_default=datetime.timedelta(seconds=14400), default=datetime.timedelta(seconds=14400)
            ),
        ),
        migrations.AddField(
            model_name="kind",
            name="reversible",
            field=models.CharField(blank=True, db_default="", default="", max_length=40),
        ),
        migrations.AlterField(
            model_name="effect",
            name="ground",
            field=models.CharField(
                blank=True,
                choices=[
                    ("decided", "Decided"),
                    ("reported", "Reported"),
                    ("looked up", "Looked Up"),
                    ("webhook", "Webhook"),
                    ("inspected", "Inspected"),
                ],
                max_length=12,
            ),
        ),
        migrations.AlterField(
            model_name="kind",
            name="provider",
            field=models.CharField(
                choices=[
                    ("http", "Http"),
                    ("workspace", "Workspace"),
                    ("job", "Job"),
                    ("email", "Email"),
                    ("browser", "Browser"),
                    ("model", "Model"),
                    ("outside", "Outside"),
                ],
                default="outside",
                max_length=10,
            ),
        ),
        migrations.AlterField(
            model_name="review",
            name="closed_as",
            field=models.CharField(
                blank=True,
                choices=[
                    ("used", "Used"),
                    ("rejected", "Rejected"),
                    ("expired", "Expired"),
                    ("cancelled", "Cancelled"),
                    ("ended", "Ended"),
                    ("void", "Void"),
                    ("not_needed", "Not Needed"),
                ],
                max_length=10,
            ),
        ),
        migrations.AddConstraint(
            model_name="kind",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("provider__in", ["http", "workspace", "job", "email", "browser", "model", "outside"])
                ),
                name="kind_provider",
            ),
        ),
        migrations.AddConstraint(
            model_name="review",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("closed_as", ""), ("closed_at__isnull", True)),
                    models.Q(
                        (
                            "closed_as__in",
                            ["used", "rejected", "expired", "cancelled", "ended", "void", "not_needed"],
                        ),
                        ("closed_at__isnull", False),
                    ),
                    _connector="OR",
                ),
                name="review_says_how_it_closed",
            ),
        ),
        migrations.AddField(
            model_name="account",
            name="workspace",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="accounts", to="runs.workspace"
            ),
        ),
        migrations.AddField(
            model_name="attachment",
            name="person",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
            ),
        ),
        migrations.AddField(
            model_name="attachment",
            name="run",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="attachments", to="runs.run"
            ),
        ),
        migrations.AddField(
            model_name="attachment",
            name="workspace",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="+", to="runs.workspace"
            ),
        ),
        migrations.AddField(
            model_name="care",
            name="person",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            model_name="care",
            name="run",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="+", to="runs.run"
            ),
        ),
        migrations.AddField(
            model_name="care",
            name="workspace",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="+", to="runs.workspace"
            ),
        ),
        migrations.AddField(
            model_name="compensation",
            name="editor",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            model_name="compensation",
            name="effect",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="compensations", to="effects.effect"
            ),
        ),
        migrations.AddField(
            model_name="compensation",
            name="kind",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="effects.kind"
            ),
        ),
        migrations.AddField(
            model_name="compensation",
            name="permit",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="runs.permit"
            ),
        ),
        migrations.AddField(
            model_name="compensation",
            name="proposer",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            model_name="compensation",
            name="run",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="compensations", to="runs.run"
            ),
        ),
        migrations.AddField(
            model_name="inbound",
            name="account",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="inbound", to="effects.account"
            ),
        ),
        migrations.AddField(
            model_name="resolution",
            name="person",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
            ),
        ),
        migrations.AddField(
            model_name="resolution",
            name="run",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="resolutions", to="runs.run"
            ),
        ),
        migrations.AddField(
            model_name="resolution",
            name="second",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            model_name="resolution",
            name="supersedes",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="effects.resolution",
            ),
        ),
        migrations.AddField(
            model_name="resolution",
            name="workspace",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="+", to="runs.workspace"
            ),
        ),
        migrations.AddConstraint(
            model_name="account",
            constraint=models.UniqueConstraint(fields=("workspace", "name"), name="account_once"),
        ),
        migrations.AddIndex(
            model_name="attachment",
            index=models.Index(fields=["subject_id", "id"], name="attachment_of"),
        ),
        migrations.AddIndex(
            model_name="care",
            index=models.Index(fields=["workspace", "person"], name="care_of_person"),
        ),
        migrations.AddIndex(
            model_name="compensation",
            index=models.Index(fields=["run", "state"], name="compensation_by_state"),
        ),
        migrations.AddIndex(
            model_name="compensation",
            index=models.Index(
                condition=models.Q(("queued_at__isnull", False), ("state", "APPROVED")),
                fields=["queued_at"],
                name="compensation_queued",
            ),
        ),
        migrations.AddIndex(
            model_name="compensation",
            index=models.Index(
                condition=models.Q(
                    ("next_check_at__isnull", False), ("state__in", ("DISPATCHED", "UNKNOWN"))
                ),
                fields=["next_check_at"],
                name="compensation_to_check",
            ),
        ),
        migrations.AddIndex(
            model_name="compensation",
            index=models.Index(
                condition=models.Q(("state", "UNKNOWN")),
                fields=["unknown_since"],
                name="compensation_unknown",
            ),
        ),
        migrations.AddConstraint(
            model_name="compensation",
            constraint=models.UniqueConstraint(fields=("run", "key"), name="compensation_key_once"),
        ),
        migrations.AddConstraint(
            model_name="compensation",
            constraint=models.UniqueConstraint(fields=("effect", "number"), name="compensation_number_once"),
        ),
        migrations.AddConstraint(
            model_name="compensation",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state__in", ("PROPOSED", "APPROVED", "DISPATCHED", "UNKNOWN"))),
                fields=("effect",),
                name="compensation_open_once",
            ),
        ),
        migrations.AddConstraint(
            model_name="compensation",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "state__in",
                        [
                            "PROPOSED",
                            "APPROVED",
                            "REJECTED",
                            "EXPIRED",
                            "VOID",
                            "NOT_NEEDED",
                            "DISPATCHED",
                            "VERIFIED",
                            "FAILED",
                            "UNKNOWN",
                            "ACCEPTED_UNKNOWN",
                        ],
                    )
                ),
                name="compensation_state",
            ),
        ),
        migrations.AddIndex(
            model_name="inbound",
            index=models.Index(
                condition=models.Q(("became", "waiting")),
                fields=["account", "effect_key"],
                name="inbound_waiting",
            ),
        ),
        migrations.AddIndex(
            model_name="inbound",
            index=models.Index(
                condition=models.Q(("became", "waiting")), fields=["expires_at"], name="inbound_due"
            ),
        ),
        migrations.AddConstraint(
            model_name="inbound",
            constraint=models.UniqueConstraint(fields=("account", "message_id"), name="inbound_once"),
        ),
        migrations.AddConstraint(
            model_name="inbound",
            constraint=models.CheckConstraint(
                condition=models.Q(("became__in", ["settled", "recorded", "waiting", "unread", "expired"])),
                name="inbound_became",
            ),
        ),
        migrations.AddIndex(
            model_name="resolution",
            index=models.Index(fields=["run", "subject_id"], name="resolution_of_run"),
        ),
        migrations.AddIndex(
            model_name="resolution",
            index=models.Index(fields=["workspace", "-id"], name="resolution_newest"),
        ),
        migrations.AddConstraint(
            model_name="resolution",
            constraint=models.UniqueConstraint(
                fields=("subject_id", "number"), name="resolution_number_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="resolution",
            constraint=models.UniqueConstraint(
                condition=models.Q(("in_force_at__isnull", True), ("withdrawn_at__isnull", True)),
                fields=("subject_id",),
                name="resolution_waits_once",
            ),
        ),
        migrations.AddConstraint(
            model_name="resolution",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("second__isnull", True),
                    models.Q(("second", models.F("person")), _negated=True),
                    _connector="OR",
                ),
                name="resolution_by_two",
            ),
        ),
        migrations.AddConstraint(
            model_name="resolution",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("verdict", "cannot be determined"), _negated=True),
                    ("in_force_at__isnull", True),
                    ("second__isnull", False),
                    _connector="OR",
                ),
                name="resolution_accepts_by_two",
            ),
        ),
        in_force(RULES),
    ]
