"""Deliveries, which never vanish and whose message never changes; unknown effects by their age."""

import functools

import django.db.models.deletion
import django_fsm
from django.db import migrations, models

import runs.store
from runs.triggers import Rule, in_force

STATES = [
    "QUEUED",
    "DISPATCHED",
    "HELD",
    "WITHHELD",
    "HANDED_OVER",
    "NOT_HANDED_OVER",
    "UNKNOWN",
    "ACCEPTED_UNKNOWN",
]
CHANNELS = ["webhook", "email", "outside"]
RULES = [
    Rule("delivery_stays", "effects_delivery", "DELETE", "1=1", "a delivery is never deleted"),
    Rule(
        "delivery_message_stays",
        "effects_delivery",
        "UPDATE",
        "NEW.key <> OLD.key OR NEW.body_digest <> OLD.body_digest OR NEW.body <> OLD.body"
        " OR NEW.target <> OLD.target OR NEW.channel <> OLD.channel OR NEW.run_id <> OLD.run_id",
        "a message is never changed after it was queued",
    ),
]


class Migration(migrations.Migration):
    dependencies = [
        ("effects", "0002_keep_issued_reports"),
        ("runs", "0006_find_old_answers"),
    ]

    operations = [
        migrations.CreateModel(
            name="Delivery",
            fields=[
                (
                    "id",
                    models.CharField(
                        default=functools.partial(runs.store.new_id, "dlv"),
                        max_length=40,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("key", models.CharField(max_length=200)),
                ("channel", models.CharField(choices=[(c, c.capitalize()) for c in CHANNELS], max_length=8)),
                ("target", models.CharField(max_length=2000)),
                ("title", models.CharField(max_length=300)),
                ("content_type", models.CharField(max_length=100)),
                ("body", models.BinaryField(default=bytes)),
                ("body_digest", models.CharField(max_length=64)),
                ("parameters_digest", models.CharField(max_length=64)),
                (
                    "state",
                    django_fsm.FSMField(
                        choices=[(s, s.replace("_", " ").title()) for s in STATES],
                        default="QUEUED",
                        max_length=16,
                    ),
                ),
                ("queued_version", models.BigIntegerField()),
                ("attempt", models.PositiveIntegerField(default=0)),
                ("late", models.BooleanField(default=False)),
                ("detail", models.CharField(blank=True, max_length=300)),
                ("provider_ref", models.CharField(blank=True, max_length=300)),
                ("queued_at", models.DateTimeField(db_default=runs.store.Now())),
                ("turn_at", models.DateTimeField(null=True)),
                ("dispatched_at", models.DateTimeField(null=True)),
                ("settled_at", models.DateTimeField(null=True)),
                ("unknown_since", models.DateTimeField(null=True)),
                (
                    "permit",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="runs.permit",
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="deliveries", to="runs.run"
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["run", "state"], name="delivery_by_state"),
                    models.Index(
                        condition=models.Q(("state", "QUEUED"), ("turn_at__isnull", False)),
                        fields=["turn_at"],
                        name="delivery_to_send",
                    ),
                    models.Index(
                        condition=models.Q(("state", "UNKNOWN")),
                        fields=["unknown_since"],
                        name="delivery_unknown",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("run", "key"), name="delivery_key_once"),
                    models.CheckConstraint(condition=models.Q(("state__in", STATES)), name="delivery_state"),
                    models.CheckConstraint(
                        condition=models.Q(("channel__in", CHANNELS)), name="delivery_channel"
                    ),
                ],
            },
        ),
        migrations.AddIndex(
            model_name="effect",
            index=models.Index(
                condition=models.Q(("settlement", "UNKNOWN")), fields=["unknown_since"], name="effect_unknown"
            ),
        ),
        in_force(RULES),
    ]
