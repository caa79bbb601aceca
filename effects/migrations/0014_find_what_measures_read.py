"""Measures read the newest rows of a window: by when they were sent, settled or issued."""

from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [
        ("effects", "0013_let_attachments_be_emptied"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="effect",
            index=models.Index(
                fields=["dispatched_at"],
                name="effect_by_dispatch",
                condition=Q(dispatched_at__isnull=False),
            ),
        ),
        migrations.AddIndex(
            model_name="report",
            index=models.Index(fields=["issued_at"], name="report_by_time"),
        ),
        migrations.AddIndex(
            model_name="compensation",
            index=models.Index(
                fields=["settled_at"],
                name="compensation_was_unknown",
                condition=Q(unknown_since__isnull=False, settled_at__isnull=False),
            ),
        ),
        migrations.AddIndex(
            model_name="compensation",
            index=models.Index(
                fields=["dispatched_at"],
                name="compensation_by_dispatch",
                condition=Q(dispatched_at__isnull=False),
            ),
        ),
    ]
