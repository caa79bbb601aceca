"""Since when an account is at its place, with its credential: what is not found there speaks of nothing before."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("effects", "0011_keep_sign_offs")]

    operations = [
        migrations.AddField(
            model_name="account",
            name="moved_at",
            field=models.DateTimeField(null=True),
        ),
    ]
