"""Triggers: versions never fall, final is final, evidence is append-only, no shut gate passed."""

from django.db import migrations

from runs.triggers import RULES, in_force


class Migration(migrations.Migration):
    dependencies = [("runs", "0001_tables_of_runs_stops_and_evidence")]
    operations = [in_force(RULES)]
