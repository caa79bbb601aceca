from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("effects", "0009_find_effects_by_key")]

    operations = [
        migrations.AddIndex(
            model_name="effect",
            index=models.Index(
                condition=models.Q(
                    ("next_check_at__isnull", False), ("settlement__in", ["CONFIRMED", "PARTIAL"])
                ),
                fields=["next_check_at"],
                name="effect_job_to_ask",
            ),
        ),
    ]
