"""Wall clocks that are ten minutes off, each process its own way: what becomes of an order does not change.

The lines of the table are those of the kills, written for clocks that are right.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import pytest

from tests.kills import rows
from tests.kills.checker import violations
from tests.kills.rows import Stands
from tests.kills.site import CELERY, Armed, Site, until
from tests.kills.table import AGENT, PAID, Case, differences
from tests.kills.test_agent_killed import POINTS

pytestmark = [pytest.mark.kill, pytest.mark.long, pytest.mark.invariant("I10"), pytest.mark.invariant("I23")]

TEN_MINUTES = 600
DIED = [case for case in AGENT if case.order in ("sent-plain", "looked-fencing")]
LIVES = Case("lives", "plain", ("", "", ""), 1, 0, PAID)
OURS = Case("ours", "plain", ("", "", ""), 1, 0, ("CONFIRMED", "SUCCEEDED", "ACTIVE", ""))
SIDES = {1: "ahead", -1: "behind"}


@dataclass(frozen=True)
class Off:
    """How all processes were off by their own word, and how each order ended."""

    clocks: list[str]
    ends: dict[str, tuple[Case, int, Stands]]
    told: list[float]


def named(case: Case, side: int) -> str:
    return f"{case.order}-{SIDES[side]}"


def start_all(site: Site, side: int) -> list[Armed]:
    """The server on one side, worker and beat on the other: twenty minutes between those who meet at rows."""
    here, there = (("--clock", str(by)) for by in (side * TEN_MINUTES, -side * TEN_MINUTES))
    others = [site.launch("beat", there, [*CELERY, "beat", "--loglevel", "INFO"])] if site.cluster else []
    others += [site.worker(*there)] if site.cluster else []
    return [site.web(*here), *others]


def agent(site: Site, case: Case, side: int) -> Armed:
    at = ("--at", POINTS[case.point]) if case in DIED else ()
    clock = ("--clock", str(side * TEN_MINUTES))
    return site.agent(named(case, side), *at, *clock, kind=case.kind)


def marked(process: Armed) -> list[str]:
    return [mark for mark in process.marks() if mark.startswith("clock")]


def run(site: Site, side: int) -> Off:
    """Every agent once ahead and once behind; those of DIED are killed, and their runs stopped."""
    servers = start_all(site, side)
    site.put_kinds()
    wanted = {named(case, by): case for case in (*DIED, LIVES) for by in SIDES}
    agents = {named(case, by): agent(site, case, by) for case in (*DIED, LIVES) for by in SIDES}
    site.declare(OURS.order, "plain")
    died = [order for order, case in wanted.items() if case in DIED]
    for order in died:
        agents[order].wait_for_kill()
        assert site.press(order).status == 201
    assert [agents[named(LIVES, by)].process.popen.wait(30) for by in SIDES] == [0, 0]
    until(lambda: all(rows.is_at_rest(site.database, order) for order in died))
    until(lambda: rows.stands(site.database, OURS.order).effect == "CONFIRMED")
    until(lambda: all(rows.stands(site.database, named(LIVES, by)).outcome for by in SIDES))
    sends = rows.requests(site.bank.ledger)
    found = {**wanted, OURS.order: OURS}
    return Off(
        [mark for process in (*servers, *agents.values()) for mark in marked(process)],
        {order: (case, sends[order], rows.stands(site.database, order)) for order, case in found.items()},
        [own_clock(site, named(LIVES, by)) for by in SIDES],
    )


def own_clock(site: Site, order: str) -> float:
    """Seconds by which the agent's clock was ahead of the database's when it reported, by the evidence."""
    ((at, reported_at),) = site.database.rows(
        "SELECT v.at, v.reported_at FROM runs_evidence v JOIN runs_run r ON r.id = v.stream "
        f"WHERE r.key = '{order}' AND v.kind = 'permit.reported'"
    )
    return (datetime.fromisoformat(str(reported_at)) - datetime.fromisoformat(str(at))).total_seconds()


def check(site: Site, off: Off, processes: int) -> None:
    assert [
        found for order, (case, sends, end) in off.ends.items() for found in differences(case, sends, end)
    ] == []
    assert violations(site) == []
    counted = {by: sum(mark == f"clock:before={by:+}" for mark in off.clocks) for by in (600, -600)}
    assert sum(counted.values()) == processes
    assert min(counted.values()) >= len(DIED) + 1
    # The control: the agents' own clocks are in the evidence beside the database's, and are ten minutes off.
    assert [round(seconds / 60) for seconds in off.told] == [10, -10]


def processes(site: Site) -> int:
    return 2 * (len(DIED) + 1) + (3 if site.cluster else 1)


def test_a_server_ahead_of_its_worker_and_agents_on_both_sides_change_no_outcome(production: Site) -> None:
    check(production, run(production, 1), processes(production))


def test_a_server_behind_its_worker_changes_none_either(production: Site) -> None:
    check(production, run(production, -1), processes(production))
