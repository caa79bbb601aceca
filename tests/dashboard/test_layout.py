"""The layout of docker-compose.yml as plain processes: web x2, worker x2, beat, PostgreSQL, Valkey."""

import re
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.processes import Process, Processes

ROOT = Path(__file__).resolve().parents[2]
DONE = r"Task (\S+)\[.*succeeded"


def tasks_done(worker: Process) -> set[str]:
    return set(re.findall(DONE, worker.said()))


@pytest.mark.kill
@pytest.mark.only("postgresql")
def test_two_web_servers_two_workers_and_a_beat_work_together_and_only_workers_take_tasks(
    cluster: Processes,
) -> None:
    webs = [cluster.web(), cluster.web()]
    workers = [cluster.worker(), cluster.worker()]
    beat = cluster.beat()
    for web in webs:
        with urllib.request.urlopen(web.url, timeout=20) as answer:
            assert answer.status == 200
    until, periodic = time.monotonic() + 30, {"effects.tasks.sweep", "runs.tasks.seal"}
    while not periodic <= tasks_done(workers[0]) | tasks_done(workers[1]) and time.monotonic() < until:
        time.sleep(0.1)
    assert periodic <= tasks_done(workers[0]) | tasks_done(workers[1])
    assert all(process.alive for process in [*webs, *workers, beat])
    assert [tasks_done(web) for web in webs] == [set(), set()]


@pytest.mark.kill
def test_without_redis_the_web_server_works_off_the_periodic_tasks(processes: Processes) -> None:
    web = processes.web()
    web.wait_for(r"Task effects\.tasks\.sweep\[.*succeeded", seconds=20)
    web.wait_for(r"Task runs\.tasks\.seal\[.*succeeded", seconds=20)
    assert {"effects.tasks.sweep", "runs.tasks.seal"} <= tasks_done(web)  # as asked of the others above


# --- The compose file ---------------------------------------------------------------------------------------


def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"])


def test_the_compose_file_has_the_five_services() -> None:
    assert set(compose()) == {"web", "worker", "beat", "postgres", "valkey"}


def test_every_service_of_the_compose_file_says_whether_it_is_well() -> None:
    assert [name for name, service in compose().items() if "healthcheck" not in service] == []


def test_the_image_does_not_run_as_root() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert "USER allstop" in lines
    assert lines.index("USER allstop") < next(at for at, line in enumerate(lines) if line.startswith("CMD"))
