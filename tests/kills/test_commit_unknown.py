"""The COMMIT came through, and its answer is lost on the wire to the database: nobody assumes either way."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.kills import rows, table
from tests.kills.checker import violations
from tests.kills.site import Armed, Site, until

pytestmark = [pytest.mark.kill, pytest.mark.invariant("I8")]

PLACES = (
    "runs.gate.dispatch:answer=agent-permit",
    "effects.settle.report:answer=agent-report",
    "runs.gate.dispatch:answer=executor-permit",
    "effects.settle.report:answer=executor-report",
    "runs.stops._stop_run:answer=stop-unheard",
)
AGENTS, EXECUTOR = ("agent-permit", "agent-report"), ("executor-permit", "executor-report")


@pytest.fixture(scope="module")
def server(site: Site) -> Armed:
    """A server that loses the answer to a COMMIT once at each of these places, and lives."""
    server = site.web(*(word for place in PLACES for word in ("--at", place)), "--do", "raise")
    site.put_kinds()
    return server


def test_an_agent_asks_again_under_its_key_and_sends_once(site: Site, server: Armed) -> None:
    agents = [site.agent(order, patience=30, lease=60) for order in AGENTS]
    assert [agent.process.popen.wait(60) for agent in agents] == [0, 0]
    until(lambda: all(rows.is_at_rest(site.database, order) for order in AGENTS))
    assert {rows.stands(site.database, order).end for order in AGENTS} == {table.PAID}


def test_our_executor_reads_its_permit_again_by_its_token_and_sends_once(site: Site, server: Armed) -> None:
    for order in EXECUTOR:
        site.declare(order, "plain")
    until(lambda: all(rows.stands(site.database, order).effect == "CONFIRMED" for order in EXECUTOR))
    assert {rows.stands(site.database, order).permit for order in EXECUTOR} == {"REPORTED"}


def test_a_stop_is_repeated_under_its_key_and_is_one_stop(site: Site, server: Armed) -> None:
    site.register("unheard")
    said = site.press("unheard")
    assert said.status == 201 or said.data["recorded"] is None
    again = site.press("unheard")
    assert (again.status, again.data["presses"]) == (201, 1)
    assert (rows.stops_of(site.database, "unheard"), rows.stands(site.database, "unheard").version) == (1, 2)


def test_each_answer_was_lost_once_and_no_promise_is_broken(site: Site, server: Armed) -> None:
    assert sorted(server.marks()) == sorted(PLACES)
    assert server.process.alive
    assert rows.requests(site.bank.ledger) == Counter(dict.fromkeys((*AGENTS, *EXECUTOR), 1))
    assert violations(site) == []
