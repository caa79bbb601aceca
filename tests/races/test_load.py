"""Thousands of dispatches against hundreds of stops, by processes of their own: nothing starts unlisted."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.processes import Processes

pytestmark = [pytest.mark.race]


def load(
    processes: Processes, capsys: pytest.CaptureFixture[str], seconds: float, **order: Any
) -> dict[str, Any]:
    """One load from start to end; its counts are printed, whatever the verdict."""
    process = processes.start("load", [sys.executable, "-m", "tests.races.load", json.dumps(order)])
    code = process.popen.wait(seconds)
    assert code == 0, process.said()
    counts: dict[str, Any] = json.loads(process.said().strip().splitlines()[-1])
    with capsys.disabled():
        kind = processes.database_url.partition(":")[0]
        print(f"\n{kind}: " + ", ".join(f"{name} {value}" for name, value in counts.items()))  # noqa: T201
    return counts


def is_busy(counts: dict[str, Any], dispatches: int, stops: int) -> None:
    """The situations that the verdict is about occurred, often: half the stops met something in flight."""
    assert counts["permits"] == counts["dispatched"] >= dispatches
    assert counts["stops"] == counts["recorded"] >= stops
    assert counts["refused"] >= stops / 4
    assert counts["stops with something in flight"] >= stops / 2
    assert counts["listed"] >= stops


@pytest.mark.invariant("I2")
@pytest.mark.invariant("I20")
@pytest.mark.parametrize(
    ("dispatches", "stops", "seconds"),
    [
        pytest.param(5_000, 200, 230, id="5000"),
        pytest.param(100_000, 5_000, 1_750, id="100000", marks=pytest.mark.long),
    ],
)
def test_of_thousands_of_dispatches_none_starts_that_the_stop_of_its_run_does_not_list(
    processes: Processes, capsys: pytest.CaptureFixture[str], dispatches: int, stops: int, seconds: float
) -> None:
    counts = load(processes, capsys, seconds, dispatches=dispatches, stops=stops)
    is_busy(counts, dispatches, stops)
    assert counts["looked: open"] >= dispatches / 20
    assert counts["looked: shut"] > 0
    assert counts["ended_before"] > 0
    assert counts["unlisted"] == 0
    assert counts["deadlocks"] == 0


@pytest.mark.only("postgresql")
@pytest.mark.invariant("I2")
def test_the_same_load_through_an_exists_without_a_lock_starts_what_no_stop_knows_of(
    processes: Processes, capsys: pytest.CaptureFixture[str]
) -> None:
    """The control: without it, the zero above would say nothing."""
    counts = load(processes, capsys, 230, shape="plain", dispatches=2_500, stops=60)
    assert counts["permits"] == counts["dispatched"] >= 2_500
    assert counts["stops"] == counts["recorded"] >= 60
    assert counts["unlisted"] > 0  # so few may be refused or listed that neither has a least number
