"""SIGKILL of the server under agents and stops that go on asking: the next server converges with them.

Three servers die, each with many requests at points of their own. A fourth one ends what is left.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from tests.kills import rows
from tests.kills.checker import violations
from tests.kills.rows import Stands
from tests.kills.site import EVER, STILL, Armed, Said, Site, until
from tests.kills.table import SERVER, Case, differences

pytestmark = [pytest.mark.kill, pytest.mark.invariant("I3"), pytest.mark.invariant("I4")]

POINTS = {
    "admission-committed": "runs.admission._admit:answer=",
    "permit-in-transaction": "runs.gate.dispatch:commit=",
    "permit-committed": "runs.gate.dispatch:answer=",
    "permit-nobody-heard-of": "runs.gate.dispatch:answer=",
    "look": "runs.gate.look:before",  # the first one
    "report-in-transaction": "effects.settle.report:commit=",
    "report-committed": "effects.settle.report:answer=",
    "stop-in-transaction": "runs.stops._stop_run:commit=",
    "stop-committed": "runs.stops._stop_run:answer=",
}
# A transaction that stands before its COMMIT shuts out every other writer of SQLite: one a server, and last.
FIRST = ("look", "permit-committed", "permit-nobody-heard-of", "report-committed", "stop-committed",
         "admission-committed", "permit-in-transaction")  # fmt: skip
SECOND = ("report-in-transaction",)
THIRD = ("stop-in-transaction",)
EARLY, LATE = [f"early-{n}" for n in range(5)], [f"late-{n}" for n in range(5)]


@dataclass
class Story:
    """What was seen on the way. `again`: the answers to stops that were repeated under their key."""

    exit_codes: list[int] = field(default_factory=list)
    agents: dict[str, Armed] = field(default_factory=dict)
    after: dict[str, Stands] = field(default_factory=dict)
    stops_then: dict[str, int] = field(default_factory=dict)
    unanswered: list[Said] = field(default_factory=list)
    again: dict[str, Said] = field(default_factory=dict)


def cases(*points: str) -> list[Case]:
    return sorted((c for c in SERVER if c.point in points), key=lambda case: points.index(case.point))


def place_of(case: Case) -> str:
    point = POINTS[case.point]
    return f"{point}{case.order}" if point.endswith("=") else point


def start(site: Site, points: Sequence[str]) -> Armed:
    at = [word for case in cases(*points) for word in ("--at", place_of(case))]
    return site.web(*at, "--do", "sleep", *EVER, *STILL)


@contextmanager
def pressing(site: Site, orders: Sequence[str]) -> Iterator[list[Future[Said]]]:
    """Presses that get no answer while the block lasts; it ends the server, and with it their waiting."""
    with ThreadPoolExecutor(len(orders)) as threads:
        yield [threads.submit(site.press, order, timeout=40) for order in orders]


def pay_in_our_place(site: Site, case: Case) -> None:
    """An effect in flight whose agent is of no interest."""
    site.put_effect(case.order, "bank.plain")
    site.book(case.order)


def ask(site: Site, story: Story, case: Case) -> None:
    """An agent whose request stands; one that no one will hear of gives up before the server dies."""
    if case.point == "admission-committed":  # the stop is there before its run
        assert site.press(case.order).data["waiting"]
    gives_up = case.point == "permit-nobody-heard-of"
    patience, lease = (2, 2) if gives_up else (60, 120)
    story.agents[case.order] = site.agent(case.order, kind=case.kind, patience=patience, lease=lease)


def await_those_who_gave_up(story: Story) -> None:
    for case in cases("permit-nobody-heard-of"):
        if case.order in story.agents:
            agent = story.agents[case.order].process
            assert agent.popen.wait(20) == 0, agent.said()


def kill(site: Site, story: Story, server: Armed, *points: str) -> None:
    server.process.kill()
    story.exit_codes.append(server.process.popen.returncode)
    for case in cases(*points):
        story.after[case.order] = rows.stands(site.database, case.order)
        story.stops_then[case.order] = rows.stops_of(site.database, case.order)


def first_server(site: Site, story: Story) -> None:
    server = start(site, FIRST)
    site.put_kinds()
    (stop,) = cases("stop-committed")
    pay_in_our_place(site, stop)
    with pressing(site, [stop.order]) as presses:
        server.wait_for(place_of(stop))
        look, *middle, commit = (case for case in cases(*FIRST) if case is not stop)
        for group in ([look], middle, [commit]):
            for case in group:
                ask(site, story, case)
            server.wait_for(*(place_of(case) for case in group))
            await_those_who_gave_up(story)
        kill(site, story, server, *FIRST)
    story.unanswered += [press.result() for press in presses]


def second_server(site: Site, story: Story) -> None:
    """The agents come back with what they had asked, and end; then one more stands."""
    server = start(site, SECOND)
    for agent in story.agents.values():
        assert agent.process.popen.wait(40) == 0, agent.process.said()
    (case,) = cases(*SECOND)
    ask(site, story, case)
    server.wait_for(place_of(case))
    kill(site, story, server, *SECOND)


def third_server(site: Site, story: Story) -> None:
    """Stops that are answered, one that stands before its COMMIT, and those behind it."""
    server = start(site, THIRD)
    for agent in story.agents.values():
        assert agent.process.popen.wait(40) == 0, agent.process.said()
    (stop,) = cases(*THIRD)
    pay_in_our_place(site, stop)
    for order in EARLY + LATE:
        site.register(order)
    assert [site.press(order).status for order in EARLY] == [201] * len(EARLY)
    with pressing(site, [stop.order]) as first:
        server.wait_for(place_of(stop))
        with pressing(site, LATE) as behind:
            kill(site, story, server, *THIRD)
    story.unanswered += [press.result() for press in [*first, *behind]]
    story.stops_then |= {order: rows.stops_of(site.database, order) for order in LATE}


@pytest.fixture(scope="module")
def story(site: Site) -> Story:
    story = Story()
    first_server(site, story)
    second_server(site, story)
    third_server(site, story)
    site.web()
    to_stop = [case.order for case in cases(*THIRD, "stop-committed", "permit-nobody-heard-of")]
    story.again = {order: site.press(order) for order in [*to_stop, *EARLY, *LATE]}
    until(lambda: all(rows.is_at_rest(site.database, case.order) for case in SERVER))
    return story


@pytest.mark.parametrize("case", SERVER, ids=lambda case: case.order)
def test_what_a_killed_server_left_ends_as_the_table_says(case: Case, site: Site, story: Story) -> None:
    assert story.after[case.order].work == case.after
    sends = rows.requests(site.bank.ledger)[case.order]
    assert differences(case, sends, rows.stands(site.database, case.order)) == []


def test_three_servers_were_killed_while_requests_stood_in_them(story: Story) -> None:
    assert story.exit_codes == [-signal.SIGKILL] * 3


def test_an_agent_that_heard_of_no_permit_sends_nothing(story: Story) -> None:
    for case in cases("permit-nobody-heard-of"):
        assert "ended: GateUnavailable" in story.agents[case.order].process.said()


def test_a_run_whose_stop_came_first_is_born_stopping_whoever_dies(story: Story) -> None:
    (case,) = cases("admission-committed")
    after = story.after[case.order]
    assert (after.run, after.version, story.stops_then[case.order]) == ("CANCELLING", 1, 1)
    assert "ended: StopRequested" in story.agents[case.order].process.said()


def test_a_stop_that_was_not_committed_is_not_there_and_one_that_was_is(story: Story) -> None:
    (uncommitted,), (committed,) = cases("stop-in-transaction"), cases("stop-committed")
    before, after = story.after[uncommitted.order], story.after[committed.order]
    assert (before.run, before.version, story.stops_then[uncommitted.order]) == ("ACTIVE", 1, 0)
    assert (after.run, after.version, story.stops_then[committed.order]) == ("CANCELLING", 2, 1)


def test_each_press_without_an_answer_becomes_one_stop_under_the_same_key(site: Site, story: Story) -> None:
    assert [said.status for said in story.unanswered] == [0] * (2 + len(LATE))
    assert {story.stops_then[order] for order in LATE} == {0}
    assert {said.status for said in story.again.values()} == {201}
    for order, said in story.again.items():
        assert (said.data["version_after"], said.data["presses"]) == (2, 1)
        assert (rows.stops_of(site.database, order), rows.stands(site.database, order).version) == (1, 2)


def test_no_acknowledged_stop_is_lost(site: Site, story: Story) -> None:
    before = {told["run_key"]: told["id"] for told in site.acknowledged if told["run_key"] in EARLY}
    assert before == {order: story.again[order].data["id"] for order in EARLY}
    assert violations(site) == []
