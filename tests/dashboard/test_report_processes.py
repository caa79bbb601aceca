"""Reports in both layouts: one process that does all, and workers of their own. Messages may be lost."""

from __future__ import annotations

import time

import pytest

from tests.databases import Database
from tests.processes import Processes

SCENE = (
    "import time; from tests.worlds import World;"
    " from tests.dashboard.report_scenes import awaiting_verification as scene;"
    " scene(World()); time.sleep(0.5)"
)


def wait_for_report(database: Database, *, seconds: float = 25) -> None:
    until = time.monotonic() + seconds
    while not database.value("SELECT count(*) FROM effects_report") and time.monotonic() < until:
        time.sleep(0.1)
    assert database.rows("SELECT version, outcome FROM effects_report") == [(1, "awaiting verification")]


@pytest.mark.kill
def test_a_server_that_starts_after_the_run_came_to_rest_issues_its_report(
    processes: Processes, database: Database
) -> None:
    """The process that stopped the run is gone, and every message of it."""
    processes.manage("shell", "-c", SCENE)
    processes.web()
    wait_for_report(database)
    assert "intact" in processes.manage("verify")


@pytest.mark.kill
@pytest.mark.only("postgresql")
def test_two_workers_without_a_beat_issue_one_report_on_the_message_alone(
    cluster: Processes, database: Database
) -> None:
    cluster.worker()
    cluster.worker()
    cluster.manage("shell", "-c", SCENE)
    wait_for_report(database)
    assert database.value("SELECT count(*) FROM runs_evidence WHERE kind = 'report.issued'") == 1


@pytest.mark.kill
@pytest.mark.only("postgresql")
def test_a_beat_makes_good_a_message_that_was_lost(cluster: Processes, database: Database) -> None:
    cluster.environ = {"REDIS_URL": ""}
    cluster.manage("shell", "-c", SCENE)
    cluster.environ = {}
    cluster.worker()
    cluster.beat()
    wait_for_report(database)
