"""Find what compensations have in flight, and halt them where a stop of a scope stands already."""

from typing import Any

from django.db import migrations, models


def halt_what_stands(apps: Any, schema_editor: Any) -> None:
    """A stop that shut its gate before there were halts means the same as one that comes later."""
    stops = apps.get_model("runs", "StopRequest").objects
    halts = apps.get_model("runs", "Halt").objects
    standing = stops.filter(
        run__isnull=True,
        scope__in=("session", "workspace", "policy"),
        released_at__isnull=True,
        superseded_by__isnull=True,
    ).exclude(observes=True)
    for stop in standing.order_by("pk"):
        mine = {"session_id": stop.session_id, "policy_id": stop.policy_id}
        halts.create(workspace_id=stop.workspace_id, stop_id=stop.pk, **mine)


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0016_keep_halts_of_compensations"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="permit",
            index=models.Index(
                condition=models.Q(("guard", "compensate")), fields=["run"], name="permit_compensating"
            ),
        ),
        migrations.RunPython(halt_what_stands, migrations.RunPython.noop),
    ]
