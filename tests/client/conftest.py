"""A stub server and a client of it with short patience for each test; and one real server for all."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from allstop import Client

from tests.client.site import KIND, Site
from tests.client.stub import Stub, StubServer
from tests.databases import Database, PostgresqlTemplate, SqliteTemplate
from tests.processes import Processes
from tests.provider import Provider


@pytest.fixture
def server() -> Iterator[StubServer]:
    server = StubServer(Stub())
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def stub(server: StubServer) -> Stub:
    return server.stub


@pytest.fixture
def buffer(tmp_path: Path) -> Path:
    """Where reports are kept until they are heard."""
    return tmp_path / "buffer"


@pytest.fixture
def client(server: StubServer, buffer: Path) -> Iterator[Client]:
    quick = {"timeout_s": 1.0, "give_up_s": 0.4, "report_for_s": 0.6, "heartbeat_s": 60.0}
    with Client(server.url, "als_x", worker="w-1", buffer=buffer, **quick) as client:
        yield client


@pytest.fixture(scope="package")
def database(
    template: SqliteTemplate | PostgresqlTemplate, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Database]:
    made = template.copy(tmp_path_factory.mktemp("database"))
    yield made
    template.drop(made)


@pytest.fixture(scope="package")
def site(database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    with Provider(folder / "bank.jsonl") as bank:
        processes = Processes(folder, database.url, environ={"ALLSTOP_OUTBOUND_ORIGINS": bank.url})
        try:
            seeding = processes.start("seed", [sys.executable, "-m", "tests.client.seed"])
            assert seeding.popen.wait(60) == 0, seeding.said()
            site = Site(processes, database, processes.web(), bank, seeding.said().split()[-1])
            with site.client() as client:
                look_up = {"url": f"{bank.url}/charges?key={{key}}", "key_path": "key"}
                client.put_kind("bank.charge", {**KIND, "lookup": look_up})
            yield site
        finally:
            processes.end()
