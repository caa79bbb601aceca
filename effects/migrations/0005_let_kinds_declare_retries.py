from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("effects", "0004_keep_reviews_and_approvals"),
    ]

    operations = [
        migrations.AddField(
            model_name="kind",
            name="retry_after_s",
            field=models.JSONField(default=list),
        ),
    ]
