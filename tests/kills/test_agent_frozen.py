"""SIGSTOP of an agent at the worst moments, a stop and the drain meanwhile, then SIGCONT."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.kills import rows
from tests.kills.checker import violations
from tests.kills.rows import Stands
from tests.kills.site import Armed, Said, Site, until
from tests.kills.table import FROZEN, Case, differences

pytestmark = [pytest.mark.kill, pytest.mark.invariant("I7"), pytest.mark.invariant("I10")]

POINTS = {
    "before-look": "allstop.run.Run.ask_gate:after",
    "before-look-for-long": "allstop.run.Run.ask_gate:after",
    "after-look": "allstop.permit.Permit._look:after",
}
SAID = {
    "before-look-plain": "ended: StopRequested",
    "before-look-for-long-plain": "ended: LostClaim",
    "after-look-plain": "ended: StopRequested",
    "after-look-fencing": "ended: StopRequested",
}
LATE = {
    "before-look-plain": "permit.not_sent",
    "before-look-for-long-plain": "permit.not_sent_late",
    "after-look-plain": "permit.reported_late",
    "after-look-fencing": "permit.reported_late",
}


@dataclass(frozen=True)
class Frozen:
    """One order: how its rows stood when its agent was thawed, and how it ended."""

    before_thaw: Stands
    stop: Said
    said: str
    sends: int
    booked: int
    end: Stands
    lines: list[str]


def freeze(site: Site, case: Case) -> Armed:
    """An agent that has stopped itself at its point; "for long" is past its lease."""
    lease = 60 if case.point == "before-look" else 3
    return site.agent(case.order, "--at", POINTS[case.point], "--do", "freeze", kind=case.kind, lease=lease)


@pytest.fixture(scope="module")
def frozen(site: Site) -> dict[str, Frozen]:
    site.web()
    site.put_kinds()
    agents = {case.order: freeze(site, case) for case in FROZEN}
    for agent in agents.values():
        until(agent.is_frozen)
    stops = {order: site.press(order) for order in agents}
    until(lambda: all(rows.is_at_rest(site.database, c.order) for c in FROZEN if c.point != "before-look"))
    before = {order: rows.stands(site.database, order) for order in agents}
    assert all(agent.is_frozen() and len(agent.marks()) == 1 for agent in agents.values())
    for agent in agents.values():
        agent.process.thaw()
    assert [agent.process.popen.wait(30) for agent in agents.values()] == [0] * len(agents)
    until(lambda: all(rows.is_at_rest(site.database, order) for order in agents))
    sends, booked = rows.requests(site.bank.ledger), rows.applied(site.bank.ledger)
    return {
        order: Frozen(
            before[order],
            stops[order],
            agent.process.said(),
            sends[order],
            booked[order],
            rows.stands(site.database, order),
            rows.lines_of(site.database, order),
        )
        for order, agent in agents.items()
    }


@pytest.mark.parametrize("case", FROZEN, ids=lambda case: case.order)
def test_an_agent_that_was_frozen_ends_as_the_table_says(case: Case, frozen: dict[str, Frozen]) -> None:
    seen = frozen[case.order]
    assert (seen.stop.status, len(seen.stop.data["in_flight"])) == (201, 1)
    assert seen.before_thaw.work == case.after
    assert differences(case, seen.sends, seen.end) == []
    assert LATE[case.order] in seen.lines
    assert SAID[case.order] in seen.said


def test_one_that_was_frozen_before_its_look_sends_nothing(frozen: dict[str, Frozen]) -> None:
    for order in ("before-look-plain", "before-look-for-long-plain"):
        assert (frozen[order].sends, frozen[order].end.permit) == (0, "NOT_SENT")


def test_one_that_was_frozen_after_its_look_is_never_called_not_started(frozen: dict[str, Frozen]) -> None:
    for order in ("after-look-plain", "after-look-fencing"):
        assert "effect.unknown" in frozen[order].lines
        assert not {"effect.not_started", "step.withheld"} & set(frozen[order].lines)


def test_what_was_called_not_applied_is_not_applied_even_by_a_request_that_comes_later(
    frozen: dict[str, Frozen],
) -> None:
    seen = frozen["after-look-fencing"]
    assert (seen.before_thaw.effect, seen.sends, seen.booked) == ("NOT_APPLIED", 1, 0)


def test_after_the_thaw_no_promise_is_broken(site: Site, frozen: dict[str, Frozen]) -> None:
    assert len(site.acknowledged) == len(FROZEN)
    assert violations(site) == []
