from django.db import migrations, models

import runs.store


class Migration(migrations.Migration):
    dependencies = [("runs", "0007_keep_a_row_of_rules")]

    operations = [
        migrations.CreateModel(
            name="Restore",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("taken_at", models.DateTimeField()),
                ("restored_at", models.DateTimeField(db_default=runs.store.Now())),
                ("digest", models.CharField(max_length=64)),
                ("release", models.CharField(blank=True, max_length=60)),
            ],
            options={"indexes": [models.Index(fields=["restored_at"], name="restore_by_time")]},
        ),
    ]
