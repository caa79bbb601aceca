"""Triggers: an issued report version never changes; an effect is never deleted."""

from django.db import migrations

from runs.triggers import Rule, append_only, in_force

RULES = [
    *append_only("effects_report"),
    Rule("effect_stays", "effects_effect", "DELETE", "1=1", "an effect is never deleted"),
    Rule(
        "effect_intent_stays",
        "effects_effect",
        "UPDATE",
        "NEW.key <> OLD.key OR NEW.body_digest <> OLD.body_digest OR NEW.body <> OLD.body"
        " OR NEW.plan <> OLD.plan OR NEW.plan_digest <> OLD.plan_digest"
        " OR NEW.run_id <> OLD.run_id",
        "an intent is never changed after it was declared",
    ),
]


class Migration(migrations.Migration):
    dependencies = [
        ("effects", "0001_tables_of_kinds_effects_and_reports"),
        ("runs", "0002_refuse_what_the_rules_forbid"),
    ]
    operations = [in_force(RULES)]
