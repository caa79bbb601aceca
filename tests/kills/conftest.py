"""A seeded database for each module, and the site on it: started once, killed at many points."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import servers
from tests.databases import Database, PostgresqlTemplate, SqliteTemplate
from tests.kills.site import Site
from tests.processes import Processes
from tests.provider import Provider
from tests.tools import Missing, absent

Template = SqliteTemplate | PostgresqlTemplate


@dataclass(frozen=True)
class Seeded:
    """A database with a workspace in it, to be copied, and the secrets of its agent and of Alice."""

    template: Template
    token: str
    session: str


@pytest.fixture(scope="session")
def seeded(template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seeded]:
    folder = tmp_path_factory.mktemp("seeded")
    database = template.copy(folder)
    processes = Processes(folder, database.url)
    try:
        seeding = processes.start("seed", [sys.executable, "-m", "tests.kills.seed"])
        assert seeding.popen.wait(60) == 0, seeding.said()
    finally:
        processes.end()
    token, session = seeding.said().split()[-2:]
    yield Seeded(_of(template, database), token, session)
    template.drop(database)


def _of(template: Template, database: Database) -> Template:
    """The seeded database as a template of its own."""
    if isinstance(template, PostgresqlTemplate):
        return PostgresqlTemplate(template.server_url, database.url.rpartition("/")[2])
    path = Path(database.url.removeprefix("sqlite:///"))
    path.rename(path.with_name("template.sqlite3"))
    return SqliteTemplate(path.parent)


@pytest.fixture(scope="module")
def database(seeded: Seeded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    made = seeded.template.copy(tmp_path_factory.mktemp("database"))
    yield made
    seeded.template.drop(made)


@pytest.fixture(scope="module")
def valkey() -> Iterator[servers.Server]:
    try:
        server = servers.start_valkey()
    except Missing as missing:
        absent(str(missing))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def mortal(request: pytest.FixtureRequest, database: Database) -> Iterator[servers.Server | None]:
    """A PostgreSQL of this module's own, a copy of the one that all others use; none on SQLite."""
    if database.kind == "sqlite":
        yield None
        return
    try:
        server = servers.copy_postgresql(request.getfixturevalue("postgresql_server"))
    except Missing as missing:
        absent(str(missing))
    yield server
    server.stop()


@contextmanager
def opened(folder: Path, database: Database, seeded: Seeded, redis_url: str) -> Iterator[Site]:
    with Provider(folder / "bank.jsonl") as bank:
        environ = {
            "ALLSTOP_OUTBOUND_ORIGINS": bank.url,
            "ALLSTOP_PERMIT_S": "60",
            "TESTS_MESSAGES": str(folder / "messages"),
        }
        processes = Processes(folder, database.url, redis_url, environ)
        try:
            yield Site(processes, database, bank, seeded.token, seeded.session)
        finally:
            for process in processes.started:
                process.kill()


@pytest.fixture(scope="module")
def site(database: Database, seeded: Seeded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """No process runs yet. A server has its worker inside, on both databases."""
    with opened(tmp_path_factory.mktemp("site"), database, seeded, "") as site:
        yield site


@pytest.fixture(scope="module")
def production(
    request: pytest.FixtureRequest,
    database: Database,
    seeded: Seeded,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:
    """No process runs yet. As in production where there is one: on PostgreSQL with a Valkey."""
    url = request.getfixturevalue("valkey").url if database.kind == "postgresql" else ""
    with opened(tmp_path_factory.mktemp("site"), database, seeded, url) as site:
        yield site
