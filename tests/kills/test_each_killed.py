"""Worker, beat, Valkey, PostgreSQL and web are killed one by one during one drain: it goes on from rows.

Each is replaced at once, and nobody waits until it works again before the next one dies.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest

from tests import servers
from tests.databases import Database
from tests.kills import rows
from tests.kills.checker import violations
from tests.kills.conftest import Seeded, opened
from tests.kills.site import Armed, Site, until
from tests.kills.table import DRAIN, Case, differences

pytestmark = [
    pytest.mark.kill,
    pytest.mark.long,
    pytest.mark.only("postgresql"),
    pytest.mark.invariant("I24"),
    pytest.mark.invariant("I30"),
]

Killed = dict[str, int]


@pytest.fixture(scope="module")
def site(
    database: Database,
    seeded: Seeded,
    mortal: servers.Server,
    valkey: servers.Server,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:
    url = f"{mortal.url.rpartition('/')[0]}/{database.url.rpartition('/')[2]}"
    with opened(tmp_path_factory.mktemp("site"), Database("postgresql", url), seeded, valkey.url) as site:
        site.processes.environ = {**site.processes.environ, "ALLSTOP_POOL_WAIT_S": "0.5"}
        yield site


def in_flight(site: Site) -> None:
    """Effects whose agents are gone for good, each stopped."""
    for case in DRAIN:
        site.put_effect(case.order, f"bank.{case.kind}")
        if case.sends:
            site.book(case.order)
        assert site.press(case.order).status == 201


def rested(site: Site) -> int:
    return sum(rows.is_at_rest(site.database, case.order) for case in DRAIN)


@pytest.fixture(scope="module")
def killed(site: Site, mortal: servers.Server, valkey: servers.Server) -> Killed:
    """Who was killed, and how many of the runs had come to rest by then."""
    web, worker, beat = site.web(), site.worker(), site.beat()
    beat.wait_until_ready()
    site.put_kinds()
    in_flight(site)
    found: Killed = {}

    def kill(name: str, armed: Armed, again: Callable[[], object]) -> None:
        found[name] = rested(site)
        armed.process.kill()
        assert armed.process.popen.returncode == -signal.SIGKILL
        again()

    lost = "SELECT COUNT(*) FROM runs_permit WHERE state = 'LOST'"
    until(lambda: site.database.value(lost))  # the drain has begun
    kill("worker", worker, lambda: site.worker(ready=False))
    kill("beat", beat, site.beat)
    found["valkey"] = rested(site)
    assert valkey.process is not None
    valkey.process.kill()
    assert valkey.process.wait(10) == -signal.SIGKILL
    servers.start_again(valkey)
    found["postgresql"] = rested(site)
    servers.crash_postgresql(mortal)
    servers.start_again(mortal)
    kill("web", web, lambda: site.web(ready=False))
    until(lambda: rested(site) == len(DRAIN), 90)
    return found


def test_all_five_were_killed_before_the_drain_was_over(killed: Killed) -> None:
    assert list(killed) == ["worker", "beat", "valkey", "postgresql", "web"]
    assert all(at_rest < len(DRAIN) for at_rest in killed.values()), killed


@pytest.mark.parametrize("case", DRAIN, ids=lambda case: case.order)
def test_the_drain_ends_as_if_nobody_had_been_killed(case: Case, site: Site, killed: Killed) -> None:
    sends = rows.requests(site.bank.ledger)[case.order]
    assert differences(case, sends, rows.stands(site.database, case.order)) == []


def test_each_move_is_in_the_evidence_once_and_no_promise_is_broken(site: Site, killed: Killed) -> None:
    for case in DRAIN:
        lines = rows.lines_of(site.database, case.order)
        for kind in ("permit.lost", "effect.unknown", "stop.quiet"):
            assert (case.order, kind, lines.count(kind)) == (case.order, kind, 1)
    assert len(site.acknowledged) == len(DRAIN)
    assert violations(site) == []
