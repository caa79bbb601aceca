"""SIGKILL of whoever drains, in the middle of it, again and again: the next one goes on from the rows.

On PostgreSQL that is a Celery worker of its own; on SQLite it is the server.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tests.kills import rows
from tests.kills.checker import violations
from tests.kills.rows import Stands
from tests.kills.site import STILL, Armed, Site, until
from tests.kills.table import DRAIN, Case, differences

pytestmark = [pytest.mark.kill, pytest.mark.invariant("I24"), pytest.mark.invariant("I30")]

# In the order in which the controllers die there.
POINTS = {
    "effects.drain.drain_run:commit": 3,
    "effects.reconcile.apply_answer:commit": 1,
    "dashboard.reports.versions._insert:commit": 1,
}
LATE = "deadline"


@dataclass
class Story:
    """What was seen on the way."""

    before: dict[str, Stands] = field(default_factory=dict)
    marks: list[str] = field(default_factory=list)
    drained_by_the_first: int = 0


def leave_in_flight(site: Site) -> None:
    """Effects whose agents are gone for good, each stopped; one with a deadline that passes unseen."""
    for case in DRAIN:
        site.put_effect(case.order, f"bank.{case.kind}")
        if case.sends:
            site.book(case.order)
        assert site.press(case.order).status == 201
    site.put_effect(LATE, "bank.plain", lease_s=600.0)
    assert site.press(LATE, deadline_s=1).status == 201


def all_leases_ran_out(site: Site) -> bool:
    left = "SELECT COUNT(*) FROM runs_permit WHERE lease_until > CURRENT_TIMESTAMP"
    return not site.database.value(f"{left} AND effect_key <> '{LATE}'")


def drained(site: Site) -> int:
    return sum(rows.stands(site.database, case.order).permit == "LOST" for case in DRAIN)


def die_at(site: Site, point: str, nth: int) -> Armed:
    controller = site.controller("--at", point, "--nth", str(nth), ready=False)
    controller.wait_for_kill()
    # Whoever takes its turn to ask and dies is waited for: let that time pass.
    site.database.rows(
        "UPDATE effects_effect SET next_check_at = declared_at WHERE next_check_at IS NOT NULL"
    )
    return controller


@pytest.fixture(scope="module")
def story(production: Site) -> Story:
    site, story = production, Story()
    server = site.web(*STILL)
    site.put_kinds()
    leave_in_flight(site)
    story.before = {case.order: rows.stands(site.database, case.order) for case in DRAIN}
    if site.cluster:
        site.beat()
    else:
        server.process.kill()
    until(lambda: all_leases_ran_out(site))
    for point, nth in POINTS.items():
        story.marks += die_at(site, point, nth).marks()
        story.drained_by_the_first = story.drained_by_the_first or drained(site)
    site.controller()
    until(lambda: all(rows.is_at_rest(site.database, case.order) for case in DRAIN))
    until(lambda: rows.stands(site.database, LATE).outcome)
    return story


def test_each_controller_was_killed_in_the_middle(story: Story) -> None:
    assert story.marks == list(POINTS)
    assert {stands.work for stands in story.before.values()} == {case.after for case in DRAIN}
    assert story.drained_by_the_first == POINTS["effects.drain.drain_run:commit"] - 1


@pytest.mark.parametrize("case", DRAIN, ids=lambda case: case.order)
def test_the_drain_ends_as_if_nobody_had_died(case: Case, production: Site, story: Story) -> None:
    sends = rows.requests(production.bank.ledger)[case.order]
    assert differences(case, sends, rows.stands(production.database, case.order)) == []


def test_each_move_of_the_drain_is_in_the_evidence_once(production: Site, story: Story) -> None:
    for case in DRAIN:
        lines = rows.lines_of(production.database, case.order)
        for kind in ("permit.lost", "effect.unknown", "stop.quiet", "run.unknown"):
            assert (case.order, kind, lines.count(kind)) == (case.order, kind, 1)


def test_a_deadline_that_passed_while_nobody_watched_is_noticed(production: Site, story: Story) -> None:
    stands = rows.stands(production.database, LATE)
    assert (stands.run, *stands.work) == ("CANCELLING_TIMEOUT", "DISPATCHED", "DISPATCHED", "OPEN")
    assert stands.outcome == "not ended"


def test_no_promise_is_broken(production: Site, story: Story) -> None:
    assert len(production.acknowledged) == len(DRAIN) + 1
    assert violations(production) == []
