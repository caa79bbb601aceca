"""When a press of Stop reached the server; and stops are found by their gate, as measures read them."""

from django.db import migrations, models

from runs.triggers import ARRIVAL_RULES, in_force


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0018_keep_notes_of_audit"),
    ]

    operations = [
        migrations.AddField("press", "arrived_at", models.DateTimeField(null=True)),
        migrations.AddField("stoprequest", "arrived_at", models.DateTimeField(null=True)),
        migrations.AddField("widestop", "arrived_at", models.DateTimeField(null=True)),
        migrations.AddIndex(
            model_name="stoprequest",
            index=models.Index(fields=["gate_at"], name="stop_by_gate"),
        ),
        in_force(ARRIVAL_RULES),
    ]
