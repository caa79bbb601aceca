"""The checker of these tests, fed the shapes that it is there for. Each breaks one promise, and is caught."""

from __future__ import annotations

import re

import pytest

from tests.kills import rows, table, unsafe
from tests.kills.checker import violations
from tests.kills.site import Site, until

pytestmark = pytest.mark.kill

SHAPES = {
    "effects.settle.lose": "guess",
    "runs.stops._stop_run": "forget",
    "runs.guard.why_not": "let_pass",
    "django.db.models.query.QuerySet.bulk_create": "list_nothing",
}
BLIND_EYE = ("--instead", "allstop.permit.Permit._look=tests.kills.unsafe.no_look")
PERMITTED = "allstop.run.Run.ask_gate:after"


@pytest.fixture(scope="module")
def broken(site: Site) -> Site:
    """A server with all these shapes in it, before anything was done with it."""
    words = [f"{place}=tests.kills.unsafe.{name}" for place, name in SHAPES.items()]
    site.web(*(word for shape in words for word in ("--instead", shape)))
    site.put_kinds()
    return site


def named(site: Site, order: str) -> list[str]:
    """What the checker says of an order, or of its permit."""
    permit = site.database.rows(f"SELECT id FROM runs_permit WHERE effect_key = '{order}'")
    names = [order, *(name for (name,) in permit)]
    return [said for said in violations(site) if any(re.search(rf"\b{name}\b", said) for name in names)]


def test_an_agent_that_does_not_look_again_sends_after_the_stop(broken: Site) -> None:
    case = next(case for case in table.FROZEN if case.point == "before-look")
    agent = broken.agent(case.order, *BLIND_EYE, "--at", PERMITTED, "--do", "freeze", lease=60)
    until(agent.is_frozen)
    assert broken.press(case.order).status == 201
    agent.process.thaw()
    assert agent.process.popen.wait(30) == 0
    until(lambda: rows.is_at_rest(broken.database, case.order))
    sends, end = rows.requests(broken.bank.ledger)[case.order], rows.stands(broken.database, case.order)
    assert f"{case.order}: sends is 1, not 0" in table.differences(case, sends, end)


def test_a_retry_under_a_new_key_is_a_second_request(broken: Site) -> None:
    broken.bank.fault("drop_after", key="twice-plain")
    assert broken.agent("twice-plain", way="new-key").process.popen.wait(30) == 0
    assert broken.bank.ledger.sends("twice-plain") == 1
    assert named(broken, "twice-plain") == ["twice-plain was sent 2 times"]


def test_a_lost_lease_taken_for_not_applied_is_a_wrong_name(broken: Site) -> None:
    agent = broken.agent(unsafe.GUESSED, "--at", "http.client.HTTPConnection.getresponse:before")
    agent.wait_for_kill()
    broken.bank.ledger.wait_for("applied", unsafe.GUESSED)
    broken.press(unsafe.GUESSED)
    until(lambda: rows.is_at_rest(broken.database, unsafe.GUESSED))
    assert named(broken, unsafe.GUESSED) == [
        f"{unsafe.GUESSED} is called NOT_APPLIED; the bank booked it 1 times"
    ]


def test_a_stop_that_was_acknowledged_too_early_is_missed(broken: Site) -> None:
    broken.register(unsafe.FORGOTTEN)
    assert broken.press(unsafe.FORGOTTEN).status == 201
    assert named(broken, unsafe.FORGOTTEN) == [
        f"the stop of {unsafe.FORGOTTEN} was acknowledged and is not there: no row"
    ]


def test_a_permit_that_was_opened_after_the_fence_is_found(broken: Site) -> None:
    broken.register(unsafe.GATELESS)
    broken.press(unsafe.GATELESS)
    permit = broken.put_effect(unsafe.GATELESS, "bank.plain", lease_s=60.0)["permit"]
    assert named(broken, unsafe.GATELESS) == [f"{permit['id']} was opened after the fence"]


def test_a_permit_that_no_stop_lists_is_found(broken: Site) -> None:
    permit = broken.put_effect(unsafe.UNLISTED, "bank.plain", lease_s=60.0)["permit"]
    assert broken.press(unsafe.UNLISTED).data["in_flight"] == []
    assert named(broken, unsafe.UNLISTED) == [f"{permit['id']} is in no stop's list"]
