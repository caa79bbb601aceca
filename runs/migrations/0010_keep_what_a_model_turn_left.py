import django.db.models.deletion
from django.db import migrations, models

import runs.store


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0009_keep_receipts_and_children"),
    ]

    operations = [
        migrations.CreateModel(
            name="Turn",
            fields=[
                (
                    "permit",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="turn",
                        serialize=False,
                        to="runs.permit",
                    ),
                ),
                ("model", models.CharField(blank=True, max_length=120)),
                ("tokens_in", models.BigIntegerField(null=True)),
                ("tokens_out", models.BigIntegerField(null=True)),
                ("cost", models.CharField(blank=True, max_length=60)),
                ("output", models.TextField(blank=True)),
                ("output_size", models.PositiveIntegerField(null=True)),
                ("output_digest", models.CharField(blank=True, max_length=64)),
                ("output_kept", models.BooleanField(default=False)),
                ("told_at", models.DateTimeField(db_default=runs.store.Now())),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("output", ""), ("output_kept", True), _connector="OR"),
                        name="turn_output_kept",
                    )
                ],
            },
        ),
    ]
