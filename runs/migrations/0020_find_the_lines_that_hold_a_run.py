"""What was opened behind a stop is found by the line of the stop, not by all lines of a run."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0019_keep_when_a_press_arrived"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="evidence",
            index=models.Index(
                fields=["stream", "seq"],
                name="evidence_of_gate",
                condition=models.Q(("kind__in", ("stop.acknowledged", "stop.bound"))),
            ),
        ),
    ]
