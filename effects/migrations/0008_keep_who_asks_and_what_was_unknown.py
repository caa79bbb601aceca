"""Somebody asks about an unknown until a moment; on what a delivery stands; what was unknown is found again."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("effects", "0007_keep_what_really_happened"),
    ]

    operations = [
        migrations.AddField(
            model_name="effect",
            name="turn_until",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="compensation",
            name="turn_until",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="delivery",
            name="ground",
            field=models.CharField(max_length=12, null=True),
        ),
        migrations.AddIndex(
            model_name="effect",
            index=models.Index(
                condition=models.Q(("settled_at__isnull", False), ("unknown_since__isnull", False)),
                fields=["settled_at"],
                name="effect_was_unknown",
            ),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(
                condition=models.Q(("settled_at__isnull", False), ("unknown_since__isnull", False)),
                fields=["settled_at"],
                name="delivery_was_unknown",
            ),
        ),
    ]
