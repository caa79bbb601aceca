"""SIGKILL of our executor at each boundary of an effect, then a stop, then the drain to its end.

On PostgreSQL the executor is a Celery worker of its own; on SQLite it is a thread of the server, which dies
with it. One process stands at many points at once, each effect at its own, when the kill comes.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from tests.kills import rows
from tests.kills.checker import violations
from tests.kills.rows import Stands
from tests.kills.site import EVER, STILL, Armed, Said, Site, until
from tests.kills.table import EXECUTOR, GOES_ON, Case, differences

pytestmark = [pytest.mark.kill, pytest.mark.invariant("I3"), pytest.mark.invariant("I9")]

POINTS = {
    "claimed": "runs.gate.claim:after",
    "in-transaction": "runs.gate.dispatch:commit",
    "committed": "runs.gate.dispatch:after",
    "looked": "effects.executor.look_again:after",
    "answered": "effects.providers.send:after",
    "recording": "effects.settle.report:commit",
    "recorded": "effects.settle.report:after",
}
# A transaction that stands before its COMMIT shuts out every other writer of SQLite: one a process, and last.
SECOND = [case for case in EXECUTOR if case.point == "recording"]
FIRST = sorted(
    (case for case in (*EXECUTOR, *GOES_ON) if case not in SECOND),
    key=lambda case: case.point == "in-transaction",
)


@dataclass(frozen=True)
class Gone:
    """How the executor ended while this order stood at its point, and the order's rows then."""

    exit_code: int
    after: Stands


@dataclass(frozen=True)
class Killed:
    """One order from the kill to its end."""

    gone: Gone
    stop: Said | None
    sends: int
    end: Stands


def place_of(case: Case) -> str:
    """For --at. The point "sent" needs none: the bank holds its answer back, and its ledger proves it."""
    point = POINTS.get(case.point.removesuffix("-goes-on"))
    return f"{point}={case.order}" if point else ""


def start(site: Site, cases: Sequence[Case]) -> Armed:
    """An executor that will stand at each of these points, with a clock that stands too."""
    at = [word for case in cases if place_of(case) for word in ("--at", place_of(case))]
    patient = ("--set", "effects.outbound.LIMIT_S=60.0")
    return site.controller(*at, "--do", "sleep", *EVER, *patient, *STILL, ready=False)


def stand(site: Site, executor: Armed, case: Case) -> None:
    """One effect, at its point by the word of the executor, or of the bank."""
    place = place_of(case)
    if not place:
        site.bank.fault("hold_after", key=case.order)
    site.declare(case.order, case.kind)
    if place:
        executor.wait_for(place)
    else:
        site.bank.ledger.wait_for("held", case.order)


def kill(site: Site, executor: Armed, cases: Sequence[Case]) -> dict[str, Gone]:
    for case in cases:
        stand(site, executor, case)
    executor.process.kill()
    code = executor.process.popen.returncode
    return {case.order: Gone(code, rows.stands(site.database, case.order)) for case in cases}


def is_settled(site: Site, case: Case) -> bool:
    """An active run does not rest; its effect has come to where it stays."""
    return rows.stands(site.database, case.order).effect == case.end[0] and rows.asks_no_more(
        site.database, case.order
    )


@pytest.fixture(scope="module")
def killed(production: Site) -> dict[str, Killed]:
    site = production
    first = start(site, FIRST)
    if site.cluster:
        site.web()
    first.wait_until_ready()
    site.put_kinds()
    gone = kill(site, first, FIRST)
    second = start(site, SECOND)
    second.wait_until_ready()
    stops = {case.order: site.press(case.order) for case in FIRST if case in EXECUTOR}
    gone |= kill(site, second, SECOND)
    site.start_all()
    stops |= {case.order: site.press(case.order) for case in SECOND}
    until(lambda: all(rows.is_at_rest(site.database, case.order) for case in EXECUTOR))
    until(lambda: all(is_settled(site, case) for case in GOES_ON))
    sends = rows.requests(site.bank.ledger)
    return {
        order: Killed(one, stops.get(order), sends[order], rows.stands(site.database, order))
        for order, one in gone.items()
    }


@pytest.mark.parametrize("case", EXECUTOR, ids=lambda case: case.order)
def test_an_executor_that_is_killed_leaves_what_the_table_says(case: Case, killed: dict[str, Killed]) -> None:
    seen = killed[case.order]
    after = seen.gone.after
    assert seen.gone.exit_code == -signal.SIGKILL
    assert (after.run, after.version, after.work) == ("ACTIVE", 1, case.after)
    assert seen.stop is not None
    assert (seen.stop.status, seen.stop.data["version_after"]) == (201, 2)
    assert differences(case, seen.sends, seen.end) == []


@pytest.mark.parametrize("case", GOES_ON, ids=lambda case: case.order)
def test_without_a_stop_the_next_executor_sends_what_was_not_dispatched_and_nothing_else(
    case: Case, killed: dict[str, Killed]
) -> None:
    seen = killed[case.order]
    assert (seen.gone.exit_code, seen.gone.after.work) == (-signal.SIGKILL, case.after)
    assert differences(case, seen.sends, seen.end) == []


def test_after_all_these_kills_no_promise_is_broken(production: Site, killed: dict[str, Killed]) -> None:
    assert sum(seen.end.listed for seen in killed.values()) >= 5
    assert len(production.acknowledged) == len(EXECUTOR)
    assert violations(production) == []
