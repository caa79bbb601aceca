"""SIGKILL of our executor after the bank has booked, again and again: no key is sent a second time.

At a bank that knows keys and at one that does not. There the risk is shown, too: what a queue makes of it
that gives the unfinished task to the next worker.
"""

from __future__ import annotations

import json
import math
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.databases import Database
from tests.kills.conftest import Seeded
from tests.kills.payers import POINTS, order, point
from tests.lossy import LossyProvider
from tests.processes import Processes

pytestmark = [pytest.mark.kill, pytest.mark.invariant("I6"), pytest.mark.invariant("I9")]

RECORDED = POINTS[-1]
LONG = [pytest.param(200, marks=pytest.mark.long), pytest.param(1000, marks=pytest.mark.long)]


@dataclass(frozen=True)
class Story:
    """Of each key: settlement, ground and permit after its kill and at the end; requests and bookings."""

    ended: list[int]
    after: dict[str, list[str]]
    end: dict[str, list[str]]
    sends: dict[str, int]
    booked: dict[str, int]

    @property
    def sent_twice(self) -> int:
        return sum(n > 1 for n in self.sends.values())

    @property
    def booked_twice(self) -> int:
        return sum(n > 1 for n in self.booked.values())


@pytest.fixture
def database(seeded: Seeded, tmp_path: Path) -> Iterator[Database]:
    made = seeded.template.copy(tmp_path)
    yield made
    seeded.template.drop(made)


def story(database: Database, folder: Path, kills: int, *words: str, keyless: bool) -> Story:
    with LossyProvider(folder / "bank.jsonl", 0.0, 0, keyless=keyless, kept_s=math.inf) as bank:
        processes = Processes(folder, database.url, "", {"ALLSTOP_OUTBOUND_ORIGINS": bank.url})
        try:
            path = str(bank.ledger.path)
            command = [sys.executable, "-m", "tests.kills.payers", bank.url, path, str(kills), *words]
            crew = processes.start("payers", command, ALLSTOP_LOG_LEVEL="WARNING")
            assert crew.popen.wait(1500) == 0, crew.said()[-3000:]
        finally:
            processes.end()
        told = [json.loads(line) for line in crew.said().splitlines() if line.startswith(("[", "{"))]
        keys = [order(n) for n in range(kills)]
        sends, booked = {key: bank.sends(key) for key in keys}, {key: bank.changed(key) for key in keys}
    ended, after, end = told
    return Story(ended, after, end, sends, booked)


def say(database: Database, who: str, seen: Story, keyless: bool) -> None:
    print(  # noqa: T201
        f"\n{database.kind}, {'no keys' if keyless else 'keys'}, {who}: {len(seen.ended)} killed, "
        f"{seen.sent_twice} sent twice, {seen.booked_twice} booked twice"
    )


def was_killed_behind_the_booking(seen: Story, kills: int) -> None:
    """All of them, by the word of the kernel, of the ledger and of the rows."""
    assert seen.ended == [-signal.SIGKILL] * kills
    assert min(seen.booked.values()) >= 1
    for n in range(kills):
        done = ["CONFIRMED", "reported", "REPORTED"]
        assert seen.after[order(n)] == (done if point(n) == RECORDED else ["DISPATCHED", "", "OPEN"])


@pytest.mark.parametrize("keyless", [False, True], ids=["with keys", "without keys"])
@pytest.mark.parametrize("kills", [20, *LONG])
def test_no_key_is_sent_twice_whatever_dies_behind_the_booking(
    database: Database, tmp_path: Path, kills: int, keyless: bool
) -> None:
    seen = story(database, tmp_path, kills, keyless=keyless)
    was_killed_behind_the_booking(seen, kills)
    say(database, "Allstop", seen, keyless)
    assert (seen.sent_twice, seen.booked_twice) == (0, 0)
    recorded = sum(point(n) == RECORDED for n in range(kills))
    assert Counter(tuple(end) for end in seen.end.values()) == {
        ("CONFIRMED", "reported", "REPORTED"): recorded,
        ("CONFIRMED", "looked up", "LOST"): kills - recorded,
    }


@pytest.mark.parametrize("keyless", [False, True], ids=["with keys", "without keys"])
@pytest.mark.parametrize("kills", [8, LONG[0]])
def test_a_queue_that_gives_it_to_the_next_worker_sends_it_twice(
    database: Database, tmp_path: Path, kills: int, keyless: bool
) -> None:
    """The control: with keys the bank hides it, without them each of these is booked twice."""
    seen = story(database, tmp_path, kills, "again", keyless=keyless)
    was_killed_behind_the_booking(seen, kills)
    say(database, "the next worker sends again", seen, keyless)
    open_ones = sum(point(n) != RECORDED for n in range(kills))
    assert (seen.sent_twice, seen.booked_twice) == (open_ones, open_ones if keyless else 0)
