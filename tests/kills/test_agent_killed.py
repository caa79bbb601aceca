"""SIGKILL of an agent at each boundary of its effect, then a stop, then the drain to its end."""

from __future__ import annotations

import signal
from dataclasses import dataclass

import pytest

from tests.kills import rows
from tests.kills.checker import violations
from tests.kills.rows import Stands
from tests.kills.site import STILL, Armed, Said, Site, until
from tests.kills.table import AGENT, Case, differences

pytestmark = [pytest.mark.kill, pytest.mark.invariant("I3"), pytest.mark.invariant("I9")]

POINTS = {
    "claimed": "allstop.step.Step.__enter__:after",
    "not-asked": "allstop.run.Run.ask_gate:before",
    "permitted": "allstop.run.Run.ask_gate:after",
    "looked": "allstop.permit.Permit._look:after",
    "sent": "http.client.HTTPConnection.getresponse:before",
    "answered": "allstop.permit.Permit._report:before",
    "recorded": "allstop.permit.Permit._report:after",
    "recorded-in-step": "allstop.permit.Permit._report:after",
    "thinking": "allstop.permit.Permit._report:before",
}
WAYS = {"claimed": "step", "not-asked": "step", "recorded-in-step": "step", "thinking": "think"}


@dataclass(frozen=True)
class Killed:
    """One order from the kill to its end."""

    exit_code: int
    marks: list[str]
    after: Stands
    stop: Said
    sends: int
    end: Stands


def kill(site: Site, case: Case) -> Armed:
    way = WAYS.get(case.point, "plain")
    return site.agent(case.order, "--at", POINTS[case.point], kind=case.kind, way=way)


@pytest.fixture(scope="module")
def killed(site: Site) -> dict[str, Killed]:
    """All agents of the table. While they die the server's clock stands; then it is started afresh."""
    server = site.web(*STILL)
    site.put_kinds()
    agents = {case.order: kill(site, case) for case in AGENT}
    for agent in agents.values():
        agent.wait_for_kill()
    site.bank.ledger.wait_for("applied", count=sum(case.sends for case in AGENT))
    after = {order: rows.stands(site.database, order) for order in agents}
    stops = {order: site.press(order) for order in agents}
    server.process.kill()
    site.web()
    until(lambda: all(rows.is_at_rest(site.database, order) for order in agents))
    sends = rows.requests(site.bank.ledger)
    return {
        order: Killed(
            agent.process.popen.returncode,
            agent.marks(),
            after[order],
            stops[order],
            sends[order],
            rows.stands(site.database, order),
        )
        for order, agent in agents.items()
    }


@pytest.mark.parametrize("case", AGENT, ids=lambda case: case.order)
def test_an_agent_that_is_killed_leaves_what_the_table_says(case: Case, killed: dict[str, Killed]) -> None:
    seen = killed[case.order]
    assert (seen.exit_code, seen.marks) == (-signal.SIGKILL, [POINTS[case.point]])
    assert (seen.after.run, seen.after.version, seen.after.work) == ("ACTIVE", 1, case.after)
    assert (seen.stop.status, seen.stop.data["version_after"]) == (201, 2)
    assert differences(case, seen.sends, seen.end) == []


def test_after_all_these_kills_no_promise_is_broken(site: Site, killed: dict[str, Killed]) -> None:
    assert sum(seen.exit_code == -signal.SIGKILL for seen in killed.values()) == len(AGENT)
    assert sum(seen.end.listed for seen in killed.values()) >= 5
    assert len(site.acknowledged) == len(AGENT)
    assert violations(site) == []


def test_a_stop_that_is_pressed_again_under_its_key_is_the_same_stop(
    site: Site, killed: dict[str, Killed]
) -> None:
    again = site.press("looked-plain")
    assert again.data["id"] == killed["looked-plain"].stop.data["id"]
    assert (
        rows.stops_of(site.database, "looked-plain"),
        rows.stands(site.database, "looked-plain").version,
    ) == (1, 2)
