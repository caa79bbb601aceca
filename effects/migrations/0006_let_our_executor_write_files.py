from django.db import migrations, models

PROVIDERS = [("http", "Http"), ("workspace", "Workspace"), ("outside", "Outside")]


class Migration(migrations.Migration):
    dependencies = [("effects", "0005_let_kinds_declare_retries")]

    operations = [
        migrations.RemoveConstraint(model_name="kind", name="kind_provider"),
        migrations.AlterField(
            model_name="kind",
            name="provider",
            field=models.CharField(choices=PROVIDERS, default="outside", max_length=10),
        ),
        migrations.AddConstraint(
            model_name="kind",
            constraint=models.CheckConstraint(
                condition=models.Q(("provider__in", ["http", "workspace", "outside"])), name="kind_provider"
            ),
        ),
    ]
