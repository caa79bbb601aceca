"""`manage.py drill`, as a program: against an address, of a data folder, and what it prints."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from dashboard.drills.instance import Instance
from tests.databases import Database
from tests.processes import ROOT, Processes

ONE = "cancel-between-claim-and-dispatch"


def drill(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The command to its end."""
    kept = {"PATH": "/usr/bin:/bin", "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "manage.py", "drill", *words]
    return subprocess.run(
        command, cwd=ROOT, env=kept | environ, capture_output=True, text=True, timeout=90, check=False
    )


def test_it_prints_one_object_a_drill_and_its_steps_if_asked_for(instance: Instance) -> None:
    done = drill(ONE, "--url", instance.url, "--json", "--ticks", ALLSTOP_TOKEN=instance.token)
    assert done.returncode == 0, done.stderr
    *ticks, result = [json.loads(line) for line in done.stdout.splitlines()]
    assert {tick["name"] for tick in ticks} == {ONE}
    assert all(tick["tick"] for tick in ticks)
    assert (result["name"], result["result"], result["passed"]) == (ONE, "passed", True)
    assert all(check["ok"] for kind in ("situation", "safety", "evidence") for check in result[kind])
    assert result["report"].startswith(f"{instance.url}/runs/")


@pytest.mark.only("sqlite")
def test_the_instance_of_a_data_folder_is_found_and_its_token_is_taken_back(
    instance: Instance, processes: Processes, database: Database
) -> None:
    ours = processes.environment()
    given = {name: ours[name] for name in ("DATABASE_URL", "SECRET_KEY")}
    done = drill(ONE, "--data", ours["ALLSTOP_DATA"], **given)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Report: {instance.url}/runs/" in done.stdout
    assert "1 passed, 0 failed, 0 inconclusive." in done.stdout
    assert "no promise about the next stop" in done.stdout
    kept = database.rows("SELECT name, via, result, runtime FROM dashboard_drillrun")
    assert kept == [(ONE, "command", "passed", "SQLite, one process")], "the page of drills shows it"
    live = "SELECT COUNT(*) FROM runs_token WHERE revoked_at IS NULL"
    assert database.value(live) == 1, "only that of these tests"
