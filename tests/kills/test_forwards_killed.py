"""SIGKILL of our executor between the permit of a forwarded stop and its settlement.

One dies before it asked the provider, one after the provider took the request. Whichever it was, nobody asks
a second time: what it came to is unknown.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Any

import pytest

from tests.kills.site import Armed, Site

pytestmark = [pytest.mark.kill, pytest.mark.invariant("I9")]
SOON = ("--set", "effects.executor.LEASE_S=1.0")
BEFORE = "effects.providers.ask_to_cancel:before"


@dataclass(frozen=True)
class Story:
    """What was seen on the way, of the one that had not asked and of the one that had."""

    exit_codes: list[int]
    marks: list[str]
    after: list[tuple[Any, ...]]
    rested: str
    end: list[tuple[Any, ...]]
    sends: list[int]


def do(site: Site, word: str, given: str, *options: str) -> Armed:
    return site.launch("mender", (*SOON, *options), ["-m", "tests.kills.mender", word, given])


def said(site: Site, word: str, given: str) -> str:
    """What it printed, once it is over."""
    armed = do(site, word, given)
    assert armed.process.popen.wait(40) == 0, armed.process.said()
    return armed.process.said().strip().splitlines()[-1]


def stands(site: Site, effect_id: str) -> tuple[Any, ...]:
    (found,) = site.database.rows(f"""
        SELECT e.settlement, p.state, p.guard, s.status, r.status,
          (SELECT COUNT(*) FROM runs_permit q WHERE q.effect_key = e.key AND q.run_id = e.run_id)
        FROM effects_effect e JOIN runs_permit p ON p.id = e.permit_id
          JOIN runs_step s ON s.id = p.step_id JOIN runs_run r ON r.id = e.run_id
        WHERE e.id = '{effect_id}'
    """)
    return tuple(found)


@pytest.fixture(scope="module")
def story(site: Site) -> Story:
    ids = said(site, "stop", site.bank.url).split(",")
    keys = [site.database.rows(f"SELECT key FROM effects_effect WHERE id = '{one}'")[0][0] for one in ids]
    site.bank.fault("hold_after", key=keys[1])
    unasked, asked = do(site, "ask", ids[0], "--at", BEFORE, "--do", "kill"), do(site, "ask", ids[1])
    unasked.wait_for_kill()
    site.bank.ledger.wait_for("held", keys[1])
    asked.process.kill()
    after = [stands(site, one) for one in ids]
    site.bank.release()
    codes = [unasked.process.popen.returncode, asked.process.popen.returncode]
    rested = said(site, "rest", ",".join(ids))
    end = [stands(site, one) for one in ids]
    return Story(codes, unasked.marks(), after, rested, end, [site.bank.ledger.sends(key) for key in keys])


def test_both_are_killed_with_their_permit_and_before_anybody_here_knows(story: Story) -> None:
    assert story.exit_codes == [-signal.SIGKILL] * 2
    assert story.marks == [BEFORE]
    assert story.after == [("DISPATCHED", "OPEN", "forward", "DISPATCHED", "CANCELLING", 1)] * 2


def test_each_is_asked_once_at_most_and_is_unknown(story: Story) -> None:
    assert story.rested == "nothing to do, nothing to do, UNKNOWN, UNKNOWN"
    assert story.end == [("UNKNOWN", "LOST", "forward", "UNKNOWN", "UNKNOWN", 1)] * 2
    assert story.sends == [0, 1]
