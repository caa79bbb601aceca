"""What people attached may be emptied by a rule or an erasure, saying so; nothing else of it ever changes."""

from django.db import migrations, models

from runs.triggers import Rule, in_force

EMPTIED = [
    Rule(
        "effects_attachment_kept",
        "effects_attachment",
        "UPDATE",
        "NEW.text <> '' OR length(NEW.content) > 0 OR NEW.removed_at IS NULL OR NEW.removed_under IS NULL"
        " OR NEW.id <> OLD.id OR NEW.run_id <> OLD.run_id OR NEW.subject_id <> OLD.subject_id"
        " OR NEW.form <> OLD.form OR NEW.digest <> OLD.digest OR NEW.person_id <> OLD.person_id"
        " OR NEW.at <> OLD.at",
        "an attachment is only emptied, with the rule under which",
    ),
    Rule(
        "resolution_verdict_stays",
        "effects_resolution",
        "UPDATE",
        "OLD.verdict <> NEW.verdict OR OLD.person_id <> NEW.person_id OR OLD.subject_id <> NEW.subject_id"
        " OR (OLD.evidence <> NEW.evidence AND NEW.evidence <> '[removed with a person who was erased]')"
        " OR (OLD.in_force_at IS NOT NULL AND"
        " (NEW.in_force_at IS NULL OR NEW.in_force_at <> OLD.in_force_at))",
        "a verdict is corrected by another, never changed",
    ),
]


class Migration(migrations.Migration):
    dependencies = [("effects", "0012_keep_since_when_an_account_is_what_it_is")]

    operations = [
        migrations.AddField("attachment", "removed_at", models.DateTimeField(null=True)),
        migrations.AddField("attachment", "removed_under", models.CharField(max_length=120, null=True)),
        in_force(EMPTIED),
    ]
