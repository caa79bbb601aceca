import django.db.models.deletion
from django.db import migrations, models

import runs.store


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0006_find_old_answers"),
    ]

    operations = [
        migrations.CreateModel(
            name="RulesRow",
            fields=[
                (
                    "workspace",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="runs.workspace",
                    ),
                ),
                ("version", models.PositiveIntegerField(default=1)),
                ("body", models.JSONField(default=dict)),
                ("changed_by", models.CharField(max_length=60)),
                ("changed_at", models.DateTimeField(db_default=runs.store.Now())),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("version__gte", 1)), name="rules_version"),
                ],
            },
        ),
    ]
