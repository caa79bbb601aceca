"""Forty gate calls hang on one run: a stop of another run is recorded all the while, and pages load."""

from __future__ import annotations

import http.client
import itertools
import json
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx2
import psycopg
import pytest

from tests.kills import rows
from tests.kills.site import STILL, Said, Site, until

pytestmark = [pytest.mark.kill, pytest.mark.invariant("I21")]

CALLS, POOL, KEPT_FREE = 40, 8, 4
SOON_S = 8.0  # a stop that had to wait for the hanging calls would take longer
IMPATIENT = ("--set", "dashboard.crowd.PATIENCE_S=2.0")
EVERYBODY = ("--instead", "dashboard.crowd.Crowd.place=tests.kills.unsafe.everybody")


def ask_all(threads: ThreadPoolExecutor, site: Site, run: str) -> list[Future[Said]]:
    """Gate calls under way, each with an effect key of its own."""
    return [threads.submit(gate, site, run, n) for n in range(CALLS)]


def answered(calls: list[Future[Said]]) -> int:
    return sum(call.done() for call in calls)


def gate(site: Site, run: str, n: int) -> Said:
    body = {
        "key": f"charge-{n}",
        "kind": "opaque",
        "step": {"key": f"step-{n}"},
        "worker": "w-1",
        "seen_version": 1,
        "plan": {"none_because": "a test"},
    }
    headers = {"Authorization": f"Bearer {site.token}", "Idempotency-Key": f"hang-{run}-{n}"}
    asked = http.client.HTTPConnection("127.0.0.1", site.port, timeout=60)  # forty of httpx2's take seconds
    asked.request("POST", f"/api/v1/runs/{run}/effects", json.dumps(body), headers)
    answer = asked.getresponse()
    said = Said(answer.status, json.loads(answer.read()))
    asked.close()
    return said


@contextmanager
def locked_run(site: Site, run: str) -> Iterator[None]:
    """Somebody holds the row that each gate call has to lock."""
    with psycopg.connect(site.database.url) as other:
        other.execute("SELECT 1 FROM runs_run WHERE id = %s FOR UPDATE", [run])
        yield
        other.rollback()


def hanging(site: Site) -> int:
    """Connections that wait for a lock, by the word of the database."""
    name = site.database.url.rpartition("/")[2]
    waiting = "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    return int(site.database.value(f"{waiting} AND datname = '{name}'"))


def is_shut_out(said: Said) -> bool:
    return said.status == 503 and said.data["recorded"] is False


@pytest.mark.only("postgresql")
def test_calls_that_hang_on_a_locked_run_leave_connections_for_stops_and_pages(site: Site) -> None:
    web = site.web(*STILL, *IMPATIENT, ALLSTOP_POOL=str(POOL))
    run, other = site.register("hangs")["id"], site.register("other")["id"]
    with ThreadPoolExecutor(CALLS) as threads, locked_run(site, run):
        calls = ask_all(threads, site, run)
        until(lambda: hanging(site) == POOL - KEPT_FREE)
        began = time.monotonic()
        assert site.press("other").status == 201
        assert site.page(f"/runs/{other}/", SOON_S) == 200
        assert httpx2.get(f"{site.url}/readyz", timeout=SOON_S).status_code == 200
        assert time.monotonic() - began < SOON_S
        assert answered(calls) < CALLS
        assert hanging(site) == POOL - KEPT_FREE
    assert rows.stands(site.database, "other").run in ("CANCELLING", "CANCELLED")
    assert {call.result().status for call in calls} <= {201, 503}
    web.process.kill()


@pytest.mark.only("postgresql")
def test_without_kept_connections_the_same_crowd_shuts_a_stop_out(site: Site) -> None:
    web = site.web(*STILL, *EVERYBODY, ALLSTOP_POOL=str(POOL), ALLSTOP_POOL_WAIT_S="0.5")
    run, orders = site.register("hangs-too")["id"], (f"shut-out-{n}" for n in itertools.count())
    with ThreadPoolExecutor(CALLS) as threads, locked_run(site, run):
        ask_all(threads, site, run)
        until(lambda: hanging(site) > POOL - KEPT_FREE)
        assert until(lambda: is_shut_out(site.press(next(orders))))
        until(lambda: httpx2.get(f"{site.url}/readyz", timeout=SOON_S).status_code == 503)
    web.process.kill()


@pytest.mark.only("sqlite")
def test_a_stop_goes_before_the_calls_that_wait_for_the_file_and_pages_wait_for_nobody(site: Site) -> None:
    web = site.web(*STILL)
    run, other = site.register("hangs")["id"], site.register("other")["id"]
    file = sqlite3.connect(Path(site.database.url.removeprefix("sqlite:///")), isolation_level=None)
    file.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(CALLS + 1) as threads:
        calls = ask_all(threads, site, run)
        time.sleep(1)  # long enough for all of them to have asked
        pressing = threads.submit(site.press, "other")
        assert site.page(f"/runs/{other}/", SOON_S) == 200
        assert (answered(calls), pressing.done()) == (0, False)
        file.execute("ROLLBACK")
        assert pressing.result(SOON_S).status == 201
        assert answered(calls) < CALLS / 2
    file.close()
    assert {call.result().status for call in calls} <= {201, 503}
    web.process.kill()
