"""A worker that is killed in the middle of a drill: the drill is interrupted, and the next in line runs."""

from __future__ import annotations

import sys
import time

import pytest

from tests.databases import Database
from tests.processes import Processes

HELD, NEXT = "worker-pauses-after-check", "stop-during-an-approval-wait"
ASK = f"""
import django
django.setup()
from dashboard.drilling import line
from runs.access import SET_UP
line.ask(actor=SET_UP, names=["{HELD}", "{NEXT}"], via="command")
"""


def until(database: Database, sql: str, value: object, within_s: float = 60) -> None:
    end = time.monotonic() + within_s
    while (found := database.rows(sql)) != [(value,)]:
        assert time.monotonic() < end, (sql, found)
        time.sleep(0.1)


@pytest.mark.long
def test_a_killed_worker_leaves_its_drill_interrupted_and_the_next_one_runs(
    database: Database, processes: Processes
) -> None:
    """On SQLite the worker is a part of the server; on PostgreSQL it is a process of its own."""
    web = processes.web()
    if processes.redis_url:
        processes.beat()
    worker = processes.worker() if processes.redis_url else web
    program = [sys.executable, "-c", ASK]
    asking = processes.start("ask", program, DJANGO_SETTINGS_MODULE="dashboard.settings")
    assert asking.popen.wait(60) == 0, asking.said()
    held = f"FROM dashboard_drillrun WHERE name = '{HELD}'"
    until(database, f"SELECT COUNT(*) {held} AND CAST(steps AS TEXT) LIKE '%frozen%'", 1)
    worker.kill()
    assert worker.popen.returncode == -9
    assert database.value(f"SELECT result {held}") == ""
    if processes.redis_url:
        processes.worker()
    else:
        processes.web()
    until(database, f"SELECT result {held}", "interrupted")
    until(database, f"SELECT result FROM dashboard_drillrun WHERE name = '{NEXT}'", "passed")
    live = "SELECT COUNT(*) FROM runs_token WHERE revoked_at IS NULL AND name LIKE 'drill %'"
    assert database.value(live) == 0
