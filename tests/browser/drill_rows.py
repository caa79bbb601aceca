"""What two runs of a drill left, and a schedule: for the pages that show them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from dashboard.drilling import room, schedule
from dashboard.models import DrillRun
from runs import access
from runs.models import User
from runs.store import database_time

DRILL = "stop-during-a-read"
LONG = "W" * 300


def check(what: str, observed: str, *, ok: bool) -> dict[str, Any]:
    return {"what": what, "expected": "1", "observed": observed, "ok": ok}


def drills_of(admin: User) -> dict[str, Any]:
    """A pass, then a failure whose words are as long as they may be."""
    room.workspace()
    room.let_in(admin)
    now = database_time()
    for number, result in enumerate(("passed", "failed")):
        failed = result == "failed"
        at = now - timedelta(hours=2 - number)
        wrong = check("Charges at the provider", LONG if failed else "1", ok=not failed)
        DrillRun.objects.create(
            name=DRILL,
            via="page",
            by=f"user:{admin.pk}",
            result=result,
            why=f"{LONG} was observed." if failed else "",
            started_at=at,
            finished_at=at + timedelta(seconds=2),
            steps=[{"at": at.isoformat(), "said": said} for said in ("A read is under way.", LONG)],
            checks={"situation": [check("A read is under way", "1", ok=True)], "safety": [wrong]},
            log=LONG,
            report="/runs/run_absent/report",
            release="1.0",
            runtime="SQLite, one process",
        )
    who, hour = access.person(admin), (now.hour + 12) % 24
    schedule.put(actor=who, which=schedule.ALL, every="weekly", hour=hour)
    return {"drill": DRILL}
