"""A trigger: no run is inserted under a policy whose gate is shut."""

from django.db import migrations

from runs.triggers import POLICY_RULES, in_force


class Migration(migrations.Migration):
    dependencies = [("runs", "0012_keep_what_a_permit_is_for")]
    operations = [in_force(POLICY_RULES)]
