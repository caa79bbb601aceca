"""Reviews and approvals; a column for how many approvals an agent asked for.

That column may be empty: SQLite makes a table anew for one that may not, and would lose its triggers.
"""

from functools import partial
from typing import Any

import django.db.models.deletion
import django_fsm
from django.conf import settings
from django.db import migrations, models
from django.db.models import F, Q

from runs.store import Now, new_id
from runs.triggers import Rule, in_force, set_once

RULES = [
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
    Rule(
        "approval_ends_once",
        "effects_approval",
        "UPDATE",
        "OLD.state <> 'GIVEN' OR NEW.person_id <> OLD.person_id OR NEW.review_id <> OLD.review_id"
        " OR NEW.digest <> OLD.digest OR NEW.expires_at <> OLD.expires_at",
        "an approval ends once, and is never changed",
    ),
    Rule("approval_stays", "effects_approval", "DELETE", "1=1", "an approval is never deleted"),
]
STATES = ["GIVEN", "CONSUMED", "REVOKED", "VOID", "EXPIRED"]
CLOSED = ["used", "rejected", "expired", "cancelled", "ended"]
OPEN = Q(closed_at__isnull=True)


def to(model: str, **more: Any) -> Any:
    return models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to=model, **more)


def made_id(prefix: str) -> Any:
    return models.CharField(default=partial(new_id, prefix), max_length=40, primary_key=True, serialize=False)


PERSON = {"null": True, "related_name": "+"}
REVIEW = [
    ("id", made_id("rev")),
    ("effect_key", models.CharField(max_length=200)),
    (
        "subject",
        models.CharField(
            choices=[("effect", "Effect"), ("compensation", "Compensation")], default="effect", max_length=12
        ),
    ),
    ("subject_id", models.CharField(max_length=40)),
    ("digest", models.CharField(max_length=64)),
    ("evidence_seq", models.BigIntegerField(default=0)),
    ("needed", models.PositiveSmallIntegerField(default=1)),
    ("asked_because", models.CharField(default="agent", max_length=8)),
    ("asked_by", models.CharField(max_length=60)),
    ("asked_at", models.DateTimeField(db_default=Now())),
    ("expires_at", models.DateTimeField()),
    ("granted_at", models.DateTimeField(null=True)),
    ("closed_at", models.DateTimeField(null=True)),
    (
        "closed_as",
        models.CharField(blank=True, choices=[(one, one.title()) for one in CLOSED], max_length=10),
    ),
    ("closed_by", models.CharField(blank=True, max_length=60)),
    ("reason", models.TextField(blank=True)),
    ("stop_id", models.CharField(blank=True, max_length=40)),
    ("editor", to(settings.AUTH_USER_MODEL, **PERSON)),
    ("effect", to("effects.effect", related_name="reviews")),
    ("proposer", to(settings.AUTH_USER_MODEL, **PERSON)),
    ("run", to("runs.run", related_name="reviews")),
    ("step", to("runs.step", null=True, related_name="+")),
    ("workspace", to("runs.workspace", related_name="+")),
]
APPROVAL = [
    ("id", made_id("apv")),
    ("digest", models.CharField(max_length=64)),
    ("comment", models.TextField(blank=True)),
    (
        "state",
        django_fsm.FSMField(choices=[(one, one.title()) for one in STATES], default="GIVEN", max_length=8),
    ),
    ("given_at", models.DateTimeField(db_default=Now())),
    ("expires_at", models.DateTimeField()),
    ("ended_at", models.DateTimeField(null=True)),
    ("why", models.CharField(blank=True, max_length=200)),
    ("editor", to(settings.AUTH_USER_MODEL, **PERSON)),
    ("permit", to("runs.permit", null=True, related_name="+")),
    ("person", to(settings.AUTH_USER_MODEL, related_name="+")),
    ("proposer", to(settings.AUTH_USER_MODEL, **PERSON)),
    ("review", to("effects.review", related_name="approvals")),
]


class Migration(migrations.Migration):
    dependencies = [
        ("effects", "0003_give_deliveries_a_record"),
        ("runs", "0006_find_old_answers"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField("effect", "approvals", models.PositiveSmallIntegerField(null=True)),
        migrations.CreateModel(
            "Review",
            REVIEW,
            options={
                "indexes": [
                    models.Index(fields=["run", "effect_key"], name="review_of_effect"),
                    models.Index(fields=["workspace", "-id"], name="review_open", condition=OPEN),
                    models.Index(fields=["workspace", "-id"], name="review_newest"),
                    models.Index(fields=["expires_at"], name="review_due", condition=OPEN),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=["subject", "subject_id"], name="review_open_once", condition=OPEN
                    ),
                    models.CheckConstraint(condition=Q(needed__gte=1), name="review_needs_somebody"),
                    models.CheckConstraint(
                        condition=Q(subject__in=["effect", "compensation"]), name="review_subject"
                    ),
                    models.CheckConstraint(
                        condition=Q(closed_at__isnull=True, closed_as="")
                        | Q(closed_at__isnull=False, closed_as__in=CLOSED),
                        name="review_says_how_it_closed",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            "Approval",
            APPROVAL,
            options={
                "indexes": [models.Index(fields=["review", "state"], name="approval_of_review")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=["review", "person"], name="approval_once", condition=Q(state="GIVEN")
                    ),
                    models.CheckConstraint(condition=Q(state__in=STATES), name="approval_state"),
                    models.CheckConstraint(
                        condition=Q(proposer__isnull=True) | ~Q(person=F("proposer")),
                        name="approval_not_by_proposer",
                    ),
                    models.CheckConstraint(
                        condition=Q(editor__isnull=True) | ~Q(person=F("editor")),
                        name="approval_not_by_editor",
                    ),
                ],
            },
        ),
        in_force(RULES),
    ]
