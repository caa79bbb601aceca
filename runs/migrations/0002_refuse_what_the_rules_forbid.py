"""Triggers: versions never fall, final is final, evidence is append-only, no shut gate passed."""

from typing import Any

from django.db import migrations

from runs.triggers import RULES, create, drop


def forwards(apps: Any, schema_editor: Any) -> None:
    for rule in RULES:
        for statement in create(rule, schema_editor.connection.vendor):
            schema_editor.execute(statement, params=None)


def backwards(apps: Any, schema_editor: Any) -> None:
    for rule in RULES:
        for statement in drop(rule, schema_editor.connection.vendor):
            schema_editor.execute(statement, params=None)


class Migration(migrations.Migration):
    dependencies = [("runs", "0001_tables_of_runs_stops_and_evidence")]
    operations = [migrations.RunPython(forwards, backwards)]
