"""SIGKILL of the database itself, again and again, under presses that go on: no acknowledged stop is lost.

On PostgreSQL the server with all its processes dies, and the web server lives on; on SQLite the database is
part of the web server, which dies with it.
"""

from __future__ import annotations

import itertools
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from tests import servers
from tests.databases import Database
from tests.kills import rows
from tests.kills.checker import violations
from tests.kills.conftest import Seeded, opened
from tests.kills.site import STILL, Armed, Site, until

pytestmark = [pytest.mark.kill, pytest.mark.invariant("I3"), pytest.mark.invariant("I4")]

SOON = {"ALLSTOP_POOL_WAIT_S": "0.3"}
PRESSING = 3


@dataclass
class Presses:
    """Threads that press Stop on one run after the other, each under its own key, whatever comes back."""

    site: Site
    over: threading.Event = field(default_factory=threading.Event)
    unanswered: int = 0
    orders: list[str] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def go_on(self) -> None:
        while not self.over.is_set():
            order = f"order-{next(self.numbers)}"
            self.orders.append(order)
            said = self.site.press(order, timeout=8)  # its run may come later: the stop waits for it
            if said.status not in (200, 201):
                self.unanswered += 1
                time.sleep(0.02)


@contextmanager
def pressing(site: Site) -> Iterator[Presses]:
    presses = Presses(site)
    threads = [threading.Thread(target=presses.go_on) for _ in range(PRESSING)]
    for thread in threads:
        thread.start()
    try:
        yield presses
    finally:
        presses.over.set()
        for thread in threads:
            thread.join(30)


class Store:
    """Whatever has to die so that the database dies, and to come back."""

    def __init__(self, site: Site, server: servers.Server | None) -> None:
        self.site, self.server = site, server
        self.web: Armed = site.web(*STILL)
        self.crashes = 0

    def crash(self) -> None:
        if self.server is not None:
            servers.crash_postgresql(self.server)
        else:
            self.web.process.kill()
            assert self.web.process.popen.returncode == -signal.SIGKILL
        self.crashes += 1

    def come_back(self) -> None:
        if self.server is not None:
            servers.start_again(self.server)
        else:
            self.web = self.site.web(*STILL)


@pytest.fixture
def store(
    database: Database,
    seeded: Seeded,
    mortal: servers.Server | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Store]:
    if mortal is not None:
        database = Database(
            "postgresql", f"{mortal.url.rpartition('/')[0]}/{database.url.rpartition('/')[2]}"
        )
    with opened(tmp_path_factory.mktemp("site"), database, seeded, "") as site:
        site.processes.environ = {**site.processes.environ, **SOON}
        yield Store(site, mortal)


def crash_under_presses(store: Store, cycles: int) -> Presses:
    """Each time some presses are answered, then the database dies in the middle of others."""
    luck, told = random.Random(7), store.site.acknowledged
    with pressing(store.site) as presses:
        for _ in range(cycles):
            before = len(told)
            until(lambda before=before: len(told) >= before + 5, 30)  # type: ignore[misc]
            time.sleep(luck.uniform(0, 0.1))
            store.crash()
            store.come_back()
        before = len(told)
        until(lambda: len(told) >= before + 5, 30)
    return presses


@pytest.mark.parametrize(
    "cycles",
    [pytest.param(3, marks=pytest.mark.only("postgresql")), pytest.param(30, marks=pytest.mark.long)],
)
def test_no_acknowledged_stop_is_lost_however_often_the_database_dies(store: Store, cycles: int) -> None:
    presses = crash_under_presses(store, cycles)
    site = store.site
    assert store.crashes == cycles
    assert len(site.acknowledged) >= 5 * cycles
    assert presses.unanswered >= cycles, "some were pressed while it was dead"
    assert violations(site) == []
    for order in presses.orders[-20:]:  # whoever got no answer asks again, and there is one stop
        assert site.press(order).status in (200, 201)
        assert rows.stops_of(site.database, order) == 1
    # The control: the same checker, fed an acknowledgement that the database does not hold.
    site.acknowledged.append({**site.acknowledged[0], "id": "stp_none", "run_key": "never-there"})
    assert violations(site) == ["the stop of never-there was acknowledged and is not there: no row"]
    print(f"{cycles} crashes, {len(site.acknowledged)} acknowledged, {presses.unanswered} not")  # noqa: T201
