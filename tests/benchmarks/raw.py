"""The raw baseline: one committed UPDATE on the same database, without Django."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import psycopg
from django.db import connection

TABLE = "bench_raw"


def prepare() -> None:
    """A table of one row, made anew."""
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {TABLE}")
        cursor.execute(f"CREATE TABLE {TABLE} (id integer PRIMARY KEY, n integer NOT NULL)")
        cursor.execute(f"INSERT INTO {TABLE} VALUES (1, 0)")


def committer() -> tuple[Callable[[], None], Callable[[], None]]:
    """(one committed UPDATE, close): psycopg in autocommit, or sqlite3 with synchronous=FULL."""
    if connection.vendor == "sqlite":
        return _sqlite()
    settings: dict[str, Any] = connection.get_connection_params()
    wire = psycopg.connect(
        host=settings["host"], port=settings["port"], user=settings["user"], dbname=settings["dbname"]
    )
    wire.autocommit = True

    def commit() -> None:
        wire.execute(f"UPDATE {TABLE} SET n = n + 1 WHERE id = 1")

    return commit, wire.close


def _sqlite() -> tuple[Callable[[], None], Callable[[], None]]:
    file = sqlite3.connect(connection.settings_dict["NAME"], timeout=20, isolation_level=None)
    file.execute("PRAGMA synchronous=FULL")

    def commit() -> None:
        file.execute(f"UPDATE {TABLE} SET n = n + 1 WHERE id = 1")

    return commit, file.close


def many(commit: Callable[[], None]) -> Callable[[int], None]:
    """`size` commits in a row."""

    def run(size: int) -> None:
        for _ in range(size):
            commit()

    return run
