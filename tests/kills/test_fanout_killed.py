"""Whoever carries a scope stop out is killed at each chunk, and inside of one: the next goes on from rows."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.databases import Database
from tests.kills.conftest import Seeded
from tests.kills.fanning import POINTS
from tests.processes import Processes

pytestmark = [pytest.mark.kill, pytest.mark.invariant("I24")]
RUNS = 10
# Of each run: its own stops, presses, parts, and lines of its evidence that a stop leaves once.
COUNTS = """
SELECT r.key, r.status, r.cancel_version,
  (SELECT COUNT(*) FROM runs_stoprequest s WHERE s.run_id = r.id),
  (SELECT COUNT(*) FROM runs_press p JOIN runs_stoprequest s ON s.id = p.stop_id WHERE s.run_id = r.id),
  (SELECT COUNT(*) FROM runs_stoppart t WHERE t.run_id = r.id AND t.result = 'recorded'),
  (SELECT COUNT(*) FROM runs_evidence e WHERE e.stream = r.id AND e.kind = 'stop.acknowledged'),
  (SELECT COUNT(*) FROM runs_evidence e WHERE e.stream = r.id)
FROM runs_run r"""
ONCE = ("PAUSING", 2, 1, 1, 1, 1, 2)


@pytest.fixture
def database(seeded: Seeded, tmp_path: Path) -> Iterator[Database]:
    made = seeded.template.copy(tmp_path)
    yield made
    seeded.template.drop(made)


def fan_out(database: Database, folder: Path, *words: str) -> list[tuple[int, dict[str, object]]]:
    """How many runs were stopped after each process, and how it ended."""
    processes = Processes(folder, database.url)
    try:
        started = processes.start("fan", [sys.executable, "-m", "tests.kills.fanning", str(RUNS), *words])
        assert started.popen.wait(60) == 0, started.said()
    finally:
        processes.end()
    lines = [line.partition("{") for line in started.said().splitlines() if "{" in line]
    return [(int(n.strip() or 0), json.loads("{" + told)) for n, _, told in lines]


def amiss(database: Database) -> list[tuple[object, ...]]:
    """Runs that were not stopped exactly once."""
    return [row for row in database.rows(COUNTS) if tuple(row[1:]) != ONCE]


def test_a_fan_out_that_is_killed_at_every_point_reaches_each_run_once(
    database: Database, tmp_path: Path
) -> None:
    told = fan_out(database, tmp_path)
    assert [line["ended"] for _, line in told] == [-signal.SIGKILL] * len(POINTS) + [0]
    grown = [n for n, line in told if str(line["at"]).startswith("runs.fanout._stop_chunk:answer")]
    assert grown == [2, 4, 6, 8, 10], "each of them died directly behind a chunk"
    assert amiss(database) == []
    stop = "FROM runs_stoprequest WHERE scope = 'workspace'"
    assert database.value(f"SELECT COUNT(*) {stop} AND fenced_at IS NOT NULL AND runs_n = {RUNS}") == 1
    assert database.value("SELECT COUNT(*) FROM runs_press WHERE key = 'one press'") == 1
    fenced = "SELECT COUNT(*) FROM runs_evidence WHERE kind = 'stop.fenced' AND stream LIKE 'ws_%'"
    assert database.value(fenced) == 1


def test_the_count_finds_runs_that_were_reached_twice(database: Database, tmp_path: Path) -> None:
    """The control: a fan-out that forgets whom it has reached."""
    fan_out(database, tmp_path, "unsafe")
    assert amiss(database)
