"""Keep what is on its way to the workspaces' streams, and the row of the installation's own stream."""

from django.db import migrations, models

import runs.store


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0017_find_permits_of_compensations"),
    ]

    operations = [
        migrations.CreateModel(
            name="Installation",
            fields=[
                ("id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("pressed_upto", models.CharField(blank=True, default="", max_length=40)),
            ],
        ),
        migrations.CreateModel(
            name="AuditNote",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("same", models.CharField(max_length=64, unique=True)),
                ("stream", models.CharField(blank=True, max_length=40)),
                ("person", models.BigIntegerField(null=True)),
                ("kind", models.CharField(max_length=60)),
                ("actor", models.CharField(max_length=60)),
                ("stop_id", models.CharField(blank=True, max_length=40)),
                ("told", models.TextField(blank=True)),
                ("first_at", models.DateTimeField(db_default=runs.store.Now())),
                ("last_at", models.DateTimeField(db_default=runs.store.Now())),
                ("count", models.PositiveBigIntegerField(default=1)),
                ("written", models.PositiveBigIntegerField(default=0)),
                ("written_at", models.DateTimeField(null=True)),
            ],
            options={
                "indexes": [models.Index(fields=["stream", "id"], name="audit_note_of_stream")],
            },
        ),
    ]
