"""SIGKILL of our executor after the bank has booked a refund, and before anybody here knows.

The refund was approved, and its approval is used up. Nobody sends it a second time; its own look-up finds it.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Any

import pytest

from tests.kills.site import Armed, Site

pytestmark = [
    pytest.mark.kill,
    pytest.mark.invariant("I9"),
    pytest.mark.invariant("I14"),
    pytest.mark.invariant("I18"),
]
SOON = ("--set", "effects.executor.LEASE_S=1.0", "--set", "effects.repair_moves.FIRST_CHECK_S=0.2")


@dataclass(frozen=True)
class Story:
    """What was seen on the way."""

    key: str
    exit_code: int
    after: tuple[Any, ...]
    mended: str
    end: tuple[Any, ...]
    sends: int
    applied: int


def do(site: Site, *words: str) -> Armed:
    return site.launch("mender", SOON, ["-m", "tests.kills.mender", *words])


def said(site: Site, *words: str) -> str:
    """What it printed, once it is over."""
    armed = do(site, *words)
    assert armed.process.popen.wait(40) == 0, armed.process.said()
    return armed.process.said().strip().splitlines()[-1]


def stands(site: Site, key: str) -> tuple[Any, ...]:
    (found,) = site.database.rows(f"""
        SELECT c.state, c.ground, p.state, s.status, r.status,
          (SELECT COUNT(*) FROM effects_approval a WHERE a.state = 'CONSUMED' AND a.permit_id = p.id)
        FROM effects_compensation c JOIN runs_permit p ON p.id = c.permit_id
          JOIN runs_step s ON s.id = p.step_id JOIN runs_run r ON r.id = c.run_id
        WHERE c.id = '{key}'
    """)
    return tuple(found)


@pytest.fixture(scope="module")
def story(site: Site) -> Story:
    key = said(site, "prepare", site.bank.url)
    site.bank.fault("hold_after", key=key)
    executor = do(site, "carry", key)
    site.bank.ledger.wait_for("held", key)
    executor.process.kill()
    after = stands(site, key)
    site.bank.release()
    mended = said(site, "mend", key)
    ledger = site.bank.ledger
    code = executor.process.popen.returncode
    return Story(key, code, after, mended, stands(site, key), ledger.sends(key), ledger.applied(key))


def test_an_executor_that_is_killed_after_the_booking_leaves_it_in_progress(story: Story) -> None:
    assert story.exit_code == -signal.SIGKILL
    assert story.after == ("DISPATCHED", "", "OPEN", "DISPATCHED", "COMPLETED", 1)


def test_there_is_one_request_under_its_key_and_its_look_up_finds_it(story: Story) -> None:
    assert story.mended == "nothing to do; VERIFIED"
    assert story.end == ("VERIFIED", "looked up", "LOST", "SUCCEEDED", "COMPLETED", 1)
    assert (story.sends, story.applied) == (1, 1)
