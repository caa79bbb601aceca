"""A webhook names a key: effects are found by it, and what waits for them by what it met."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("effects", "0008_keep_who_asks_and_what_was_unknown"),
    ]

    operations = [
        migrations.AddField(
            model_name="inbound",
            name="verdict",
            field=models.CharField(blank=True, db_default="", default="", max_length=16),
        ),
        migrations.AddIndex(
            model_name="effect",
            index=models.Index(fields=["kind", "key"], name="effect_by_key"),
        ),
        migrations.AddIndex(
            model_name="inbound",
            index=models.Index(
                condition=models.Q(("subject_id", ""), _negated=True),
                fields=["subject_id"],
                name="inbound_of",
            ),
        ),
    ]
