"""Health addresses: alive asks nobody; ready commits as a stop would."""

from __future__ import annotations

import sqlite3
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import DatabaseError, InterfaceError, InternalError, OperationalError, connection
from django.test import Client

from dashboard import health
from runs.models import IdempotencyRecord
from tests.processes import Processes


def test_alive_needs_no_database(client: Client) -> None:
    answer = client.get("/livez")
    assert (answer.status_code, answer.content) == (200, b"alive\n")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    health.ready.forget()
    yield
    health.ready.forget()


@pytest.mark.django_db(transaction=True)
def test_ready_commits_a_row_and_it_is_always_the_same(client: Client) -> None:
    for _ in range(3):
        answer = client.get("/readyz")
        assert (answer.status_code, answer.content) == (200, b"a stop can be recorded\n")
        health.ready.forget()
    assert IdempotencyRecord.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_many_who_ask_at_once_are_one_commit(client: Client, django_assert_max_num_queries: Any) -> None:
    assert client.get("/readyz").status_code == 200
    with django_assert_max_num_queries(0):
        assert {client.get("/readyz").status_code for _ in range(20)} == {200}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("error", [DatabaseError, OperationalError, InternalError, InterfaceError])
def test_not_ready_when_the_commit_fails(
    client: Client, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def full(self: object) -> None:
        raise error("the disk is full")

    monkeypatch.setattr("django.db.backends.base.base.BaseDatabaseWrapper._commit", full)
    answer = client.get("/readyz")
    assert (answer.status_code, answer.content) == (503, b"a stop can NOT be recorded\n")
    monkeypatch.undo()
    health.ready.forget()
    assert client.get("/readyz").status_code == 200


@pytest.mark.only("sqlite")
@pytest.mark.django_db(transaction=True)
def test_not_ready_while_somebody_else_holds_the_file(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "PATIENCE_S", 0.1)
    with sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert client.get("/readyz").status_code == 503
        other.execute("ROLLBACK")
    other.close()
    health.ready.forget()
    assert client.get("/readyz").status_code == 200
    with connection.cursor() as cursor:
        assert cursor.execute("PRAGMA busy_timeout").fetchone() == (20_000,)


def test_a_real_server_says_both(processes: Processes) -> None:
    url = processes.web().url
    for path in ("livez", "readyz"):
        with urllib.request.urlopen(f"{url}/{path}", timeout=20) as answer:
            assert answer.status == 200
