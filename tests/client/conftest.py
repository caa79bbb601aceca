"""A stub server and a client of it with short patience, for each test its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from allstop import Client

from tests.client.stub import Stub, StubServer


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
