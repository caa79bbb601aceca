"""Two overlapping stops at once, round after round, under workers, admissions and reapers of their own."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.processes import Processes

pytestmark = [pytest.mark.race, pytest.mark.invariant("I19"), pytest.mark.invariant("I20")]


def storm(processes: Processes, capsys: pytest.CaptureFixture[str], **order: Any) -> dict[str, Any]:
    """One storm from start to end; its counts are printed, whatever the verdict."""
    process = processes.start("storm", [sys.executable, "-m", "tests.races.storm", json.dumps(order)])
    code = process.popen.wait(order["seconds"] + 220)
    assert code == 0, process.said()
    counts: dict[str, Any] = json.loads(process.said().strip().splitlines()[-1])
    with capsys.disabled():
        kind = processes.database_url.partition(":")[0]
        print(f"\n{kind}: " + ", ".join(f"{name} {value}" for name, value in counts.items()))  # noqa: T201
    return counts


@pytest.mark.parametrize("seconds", [3, pytest.param(60, marks=pytest.mark.long)])
def test_once_both_are_fenced_no_run_is_active_under_a_shut_gate_and_nobody_saw_a_deadlock(
    processes: Processes, capsys: pytest.CaptureFixture[str], seconds: int
) -> None:
    counts = storm(processes, capsys, seconds=seconds)
    # In each round something was in flight, admissions were refused, another workspace went on.
    assert counts["rounds"] >= 3
    assert counts["admitted"] >= counts["rounds"]
    assert min(counts[name] for name in ("not admitted", "dispatched", "drained", "runs stopped")) > 0
    assert counts["listed"] > 0
    assert counts["elsewhere dispatched"] >= 2 * counts["rounds"]
    assert counts["active under a shut gate"] == 0
    assert counts["unlisted"] == 0
    assert counts["deadlocks"] == 0
    assert (counts.get("elsewhere refused", 0), counts["runs elsewhere that moved"]) == (0, 0)


@pytest.mark.only("postgresql")
def test_admissions_that_take_no_lock_are_active_under_a_shut_gate(
    processes: Processes, capsys: pytest.CaptureFixture[str]
) -> None:
    """The control: the same count, of admissions that only look at the gate."""
    counts = storm(processes, capsys, shape="unlocked", seconds=1)
    assert counts["unlocked"] > 0
    assert counts["active under a shut gate"] > 0
