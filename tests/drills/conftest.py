"""One instance for all drills: one process on SQLite; on PostgreSQL two servers, two workers, a Valkey."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dashboard.drills import engine
from dashboard.drills.engine import Bench, Drill, Result, carry_out
from dashboard.drills.instance import Instance
from tests import servers
from tests.databases import Database, PostgresqlTemplate, SqliteTemplate
from tests.processes import Processes
from tests.tools import Missing, absent

AT_ONCE = 3  # drills mostly wait
# Nobody waits longer for the end of a permit than a private instance does.
SHORT = {"ALLSTOP_PERMIT_S": "5"}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("drills")


@pytest.fixture(scope="session")
def database(template: SqliteTemplate | PostgresqlTemplate, folder: Path) -> Iterator[Database]:
    made = template.copy(folder)
    yield made
    template.drop(made)


@pytest.fixture(scope="session")
def processes(database: Database, folder: Path) -> Iterator[Processes]:
    """As in production where there is one: on PostgreSQL with a Valkey."""
    with ExitStack() as ends:
        url = ""
        if database.kind == "postgresql":
            try:
                valkey = servers.start_valkey()
            except Missing as missing:
                absent(str(missing))
            ends.callback(valkey.stop)
            url = valkey.url
        made = Processes(folder, database.url, url, SHORT)
        ends.callback(made.end)
        yield made


@pytest.fixture(scope="session")
def instance(processes: Processes) -> Instance:
    """An instance with a workspace for drills; where there are two servers, agents ask the other one."""
    webs = [processes.web()]
    if processes.redis_url:
        webs.append(processes.web())
        processes.worker()
        processes.worker()
        processes.beat()
    issuing = processes.start("token", [sys.executable, "-m", "dashboard.drilling.token", "issue"])
    assert issuing.popen.wait(60) == 0, issuing.said()
    return Instance(webs[0].url, issuing.said().split()[-1], agents_at=webs[-1].url)


@pytest.fixture(scope="session")
def place(instance: Instance) -> Iterator[Bench]:
    """Where drills are carried out; a private instance is started once, for those that need one."""
    with engine.bench(instance) as made:
        yield made


@dataclass
class AtWork:
    """A drill that is carried out beside others, and the steps that it told of."""

    result: Future[Result] = field(default_factory=Future)
    ticks: list[str] = field(default_factory=list)


def asked_for(item: pytest.Item) -> list[Drill]:
    """The drill that a test is about."""
    called = getattr(item, "callspec", None)
    return [value for value in called.params.values() if isinstance(value, Drill)] if called else []


@pytest.fixture(scope="session")
def at_work(place: Bench, request: pytest.FixtureRequest) -> Iterator[dict[str, AtWork]]:
    """The drills whose tests were asked for. Those on the private instance take turns: one takes its store
    away, one kills it.
    """
    drills = {drill.name: drill for item in request.session.items for drill in asked_for(item)}
    with pytest.MonkeyPatch.context() as patch:
        if any("browser" in drill.needs for drill in drills.values()):
            patch.setenv("ALLSTOP_CHROMIUM", str(request.getfixturevalue("chromium")))
        with ThreadPoolExecutor(AT_ONCE) as beside, ThreadPoolExecutor(1) as in_turn:
            made: dict[str, AtWork] = {}
            for name, drill in drills.items():
                made[name] = work = AtWork()
                threads = in_turn if drill.private else beside
                work.result = threads.submit(carry_out, drill, place, work.ticks.append)
            yield made
