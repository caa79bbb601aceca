"""A permit keeps the kind of its effect, and refusals are counted for each stop that they are due to."""

from django.db import migrations, models

SAME = ["run", "boundary", "reason", "step_key", "effect_key", "carried_version", "current_version"]


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0011_reach_every_scope"),
    ]

    operations = [
        migrations.AddField(
            model_name="permit",
            name="kind",
            field=models.CharField(blank=True, db_default="", default="", max_length=120),
        ),
        migrations.RemoveConstraint(model_name="refusal", name="refusal_once"),
        migrations.AddConstraint(
            model_name="refusal",
            constraint=models.UniqueConstraint(
                condition=models.Q(("run__isnull", False)), fields=(*SAME, "stop"), name="refusal_once"
            ),
        ),
    ]
