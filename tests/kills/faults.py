"""Ways in which a store fails under a living server, each until the block ends."""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psycopg

from tests.kills.site import Armed, Site
from tests.kills.wire import Wire

Fault = Callable[["Store"], AbstractContextManager[None]]


class Store:
    """The database of a site, and the wire to it (PostgreSQL alone has one)."""

    def __init__(self, site: Site, wire: Wire | None) -> None:
        self.site, self.wire = site, wire
        self.server: Armed | None = None

    @property
    def url(self) -> str:
        return self.site.database.url

    @property
    def file(self) -> Path:
        return Path(self.url.removeprefix("sqlite:///"))


@contextmanager
def none(store: Store) -> Iterator[None]:
    """The control: nothing fails."""
    yield


def _wired(how: str) -> Fault:
    @contextmanager
    def fault(store: Store) -> Iterator[None]:
        assert store.wire is not None
        store.wire.set(how)
        try:
            yield
        finally:
            store.wire.set("open")

    return fault


@contextmanager
def slow(store: Store) -> Iterator[None]:
    """Somebody holds the tables: statements wait until they may wait no longer."""
    with psycopg.connect(store.url) as other:
        other.execute("LOCK TABLE runs_run, runs_idempotencyrecord IN ACCESS EXCLUSIVE MODE")
        yield
        other.rollback()


@contextmanager
def standby(store: Store) -> Iterator[None]:
    """The server is led to a standby: it reads, and can't write."""
    name = store.url.rpartition("/")[2]
    with psycopg.connect(store.url, autocommit=True) as other:
        other.execute("SET default_transaction_read_only = off")
        other.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on".encode())
        try:
            _end_sessions(other, name)
            yield
        finally:
            other.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only".encode())
            _end_sessions(other, name)


def _end_sessions(other: psycopg.Connection, name: str) -> None:
    mine = "datname = %s AND pid <> pg_backend_pid()"
    other.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {mine}".encode(), [name])


@contextmanager
def locked(store: Store) -> Iterator[None]:
    """Another program writes, and does not end."""
    other = sqlite3.connect(store.file, isolation_level=None, timeout=20)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.rollback()
        other.close()


@contextmanager
def full(store: Store) -> Iterator[None]:
    """No file of the server may grow any more: its disk is full."""
    assert store.server is not None
    pid, ever = store.server.process.pid, resource.RLIM_INFINITY
    with a_reader(store):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, ever))
        try:
            yield
        finally:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (ever, ever))


@contextmanager
def a_reader(store: Store) -> Iterator[None]:
    """Somebody has the file open, so that SQLite's own files beside it stay."""
    reader = sqlite3.connect(store.file)
    reader.execute("SELECT COUNT(*) FROM runs_run").fetchone()
    try:
        yield
    finally:
        reader.close()


@contextmanager
def read_only(store: Store) -> Iterator[None]:
    """The file may not be written any more; connections that are opened now only read."""
    with a_reader(store):
        parts = [store.file, *store.file.parent.glob(f"{store.file.name}-*")]
        for part in parts:
            part.chmod(0o444)
        try:
            yield
        finally:
            for part in parts:
                part.chmod(0o644)


FAULTS: dict[str, dict[str, Fault]] = {
    "postgresql": {
        "none": none,
        "unreachable": _wired("refuse"),
        "reset": _wired("reset"),
        "slow": slow,
        "standby": standby,
        "commit lost": _wired("lose"),
    },
    "sqlite": {"none": none, "locked": locked, "full": full, "read-only": read_only},
}
