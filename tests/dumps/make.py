"""Makes the dump of today's schema: .venv/bin/python -m tests.dumps.make

One small installation with an open stop, taken by `backup` at the schema of the checkout. The file is named
after its newest migrations; older files stay: a test restores the oldest and finishes its drain.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"ALLSTOP_DATA": folder, "SECRET_KEY": "of a dump", "DATABASE_URL": ""}
        os.environ["DJANGO_SETTINGS_MODULE"] = "dashboard.settings"
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        fill()
        sys.stdout.write(f"{take(Path(folder))}\n")


def fill() -> None:
    """Finance: a run that is stopping, one that works, one that is done. Elsewhere: nothing at all."""
    from effects import ends
    from tests.worlds import World

    world = World()
    stopping = world.run("stopping")
    world.report(world.opened(stopping, "charge:1"))
    world.opened(stopping, "charge:2")
    world.claimed(stopping, "next")
    world.stop(stopping, deadline_s=300, note="the prices are wrong")
    working = world.run("working")
    world.opened(working, "charge:3")
    world.claimed(working, "held")
    done = world.run("done")
    world.finish(world.report(world.opened(done, "charge:4")).permit.step)
    ends.complete(actor=world.agent, run_id=done.pk, seen=1)


def take(folder: Path) -> Path:
    """Where the dump is; named by the newest migration of the two rooms that have tables."""
    from dashboard import backup

    taken = backup.take(folder / "dump", "the release of the dump")
    newest = dict(taken.header.migrations)  # by app, the last one applied
    name = "-".join(f"{room}-{newest[room][:4]}" for room in ("runs", "effects"))
    target = HERE / f"{name}.jsonl.gz"
    target.write_bytes(taken.file.read_bytes())
    return target


if __name__ == "__main__":
    main()
