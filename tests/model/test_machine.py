"""Whatever is called, in whatever order, on the real verbs: no promise breaks; without a guard, some does.

In CI a sample from a fixed seed, with one mutant as its control. `-m long` searches on, from many seeds, and
tries every mutant: each is killed, or the pair or the test that kills it is named.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .base import Protocol, Team
from .directed import BY_HAND
from .mutants import ALL, NEAR, Mutant, gone
from .search import Found, search
from .spin import say
from .told import PAGE, note, page, write

pytestmark = [pytest.mark.django_db]
SEEDS = Path(__file__).parents[1] / "seeds" / "machine.txt"
SAMPLE = (7, 14)  # examples, steps
SEARCHED = (60, 30)
A_MUTANT, A_MASKED = (200, 25), (40, 25)
SHORT = (40, 20)  # where ALLSTOP_SHORT_SEARCH is set: a first look at all of them
FIRST_SEED, HOW_MANY = 1, 12
# What a long search has to come to, or its silence says nothing.
SITUATIONS = (
    *("dispatch Opened", "dispatch Known", "dispatch stopped", "dispatch Waiting", "late send"),
    *("look open", "look shut", "look expired", "report unknown", "report not_sent", "report applied"),
    *("look-up present → CONFIRMED", "look-up absent → UNKNOWN", "look-up absent → NOT_APPLIED"),
    *("webhook settled", "pressed again after a resume", "restored", "halt lifted", "release Released"),
    *("resume Resumed ", "resume NotResumed must wait", "release NotFenced", "admission refused"),
    *("compensate Opened", "compensate halted", "approve granted", "approve stopper", "approve changed"),
    *("edit edited", "agree agreed", "agree same_person", "verdict evidence", "verdict own_run"),
)


def kept_seeds() -> list[int]:
    """Seeds that found something once, each with a line of what."""
    lines = SEEDS.read_text().splitlines() if SEEDS.exists() else []
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


def keep_seed(at: int, found: Found) -> None:
    SEEDS.parent.mkdir(exist_ok=True)
    with SEEDS.open("a") as file:
        file.write(f"{at} {found.broken}\n")


def killed(mutant: Mutant, found: Found) -> bool:
    return found.broken.split(":")[0] in mutant.killed_by


@pytest.fixture
def team() -> Team:
    Protocol.seen.clear()
    return Team.make()


@pytest.mark.invariant("I1")
@pytest.mark.invariant("I5")
@pytest.mark.invariant("I9")
@pytest.mark.invariant("I12")
@pytest.mark.invariant("I13")
@pytest.mark.invariant("I17")
def test_no_sequence_of_a_sample_breaks_a_promise_and_without_a_gate_one_does(team: Team) -> None:
    found = search(team, *SAMPLE)
    assert found.broken == "", found.how
    assert Protocol.seen["dispatch Opened"] > 0
    assert sum(number for what, number in Protocol.seen.items() if what.startswith("stop ")) > 0
    with gone(ALL["no gate"]):
        control = search(team, 12, 12, scenes=NEAR["no gate"])
    assert killed(ALL["no gate"], control), control


@pytest.mark.long
@pytest.mark.parametrize("at", [*kept_seeds(), *range(FIRST_SEED, FIRST_SEED + HOW_MANY)])
def test_no_sequence_from_this_seed_breaks_a_promise(team: Team, at: int) -> None:
    found = search(team, *SEARCHED, at=at)
    say(f"seed {at}: {found.broken or 'no promise broken'}, {found.seconds:.0f} s")
    if found.broken and at not in kept_seeds():
        keep_seed(at, found)
    assert found.broken == "", f"seed {at}: {found.broken}\n{found.how}"


@pytest.mark.long
def test_a_search_comes_to_every_situation(team: Team) -> None:
    seen = Protocol.seen
    for at in range(100, 130):
        assert search(team, 40, 30, at=at).broken == ""
        if all(seen[what] for what in SITUATIONS):
            break
    say(dict(sorted(seen.items())))
    assert [what for what in SITUATIONS if not seen[what]] == []


@pytest.mark.long
@pytest.mark.parametrize("name", ALL)
def test_a_guard_that_is_gone_is_missed(team: Team, name: str) -> None:
    mutant = ALL[name]
    size = A_MUTANT if mutant.killed_by else A_MASKED
    size = SHORT if os.environ.get("ALLSTOP_SHORT_SEARCH") else size
    with gone(mutant):
        found = search(team, *size, scenes=NEAR.get(name, ()))
    note(name, found, size)
    became = "killed" if found.broken else "survived"
    also = f"alone; see {mutant.directed}" if mutant.directed else ""
    say(f"{name:26} {became:8} {found.seconds:4.0f} s  {found.broken} {also}")
    if mutant.killed_by:
        assert killed(mutant, found), found
    else:
        assert found.broken == "", "it does not survive any more: say by which promise"


def test_a_mutant_that_survives_alone_is_killed_with_another_or_by_a_test() -> None:
    alone = {name: mutant.directed for name, mutant in ALL.items() if not mutant.killed_by}
    assert alone
    for directed in alone.values():
        assert directed
        assert ALL[directed].killed_by if directed in ALL else _is_a_test(directed)


def _is_a_test(directed: str) -> bool:
    file, _, name = directed.partition("::")
    path = Path(__file__).parents[2] / file
    return bool(name) and path.exists() and f"def {name}(" in path.read_text()


def test_the_page_of_mutants_is_what_the_searches_told() -> None:
    assert [name for name in ALL if not _is_a_test(BY_HAND[name])] == []
    if os.environ.get("ALLSTOP_WRITE"):
        write()
    assert PAGE.read_text() == page(), "write it: ALLSTOP_WRITE=1 python -m pytest … -k page"
