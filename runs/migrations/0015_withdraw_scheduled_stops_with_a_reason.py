"""Why a scheduled stop was withdrawn, and the key of the form that it came by."""

from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0014_keep_scheduled_stops"),
    ]

    operations = [
        migrations.AddField("scheduledstop", "key", models.CharField(blank=True, default="", max_length=200)),
        migrations.AddField("scheduledstop", "withdrawn_why", models.TextField(blank=True, default="")),
        migrations.AddConstraint(
            "scheduledstop",
            models.UniqueConstraint(
                condition=~Q(key=""), fields=["workspace", "actor", "key"], name="scheduled_stop_once"
            ),
        ),
    ]
