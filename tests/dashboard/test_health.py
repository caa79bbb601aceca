"""Health addresses: alive asks nobody; ready writes as a stop would, and leaves nothing behind."""

from __future__ import annotations

import urllib.request

import pytest
from django.db import DatabaseError
from django.test import Client

from runs.models import IdempotencyRecord
from tests.processes import Processes


def test_alive_needs_no_database(client: Client) -> None:
    answer = client.get("/livez")
    assert (answer.status_code, answer.content) == (200, b"alive\n")


@pytest.mark.django_db(transaction=True)
def test_ready_writes_a_row_and_leaves_none(client: Client) -> None:
    answer = client.get("/readyz")
    assert (answer.status_code, answer.content) == (200, b"a stop can be recorded\n")
    assert not IdempotencyRecord.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_not_ready_when_the_row_can_not_be_written(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**row: object) -> None:
        raise DatabaseError("the disk is full")

    monkeypatch.setattr(IdempotencyRecord.objects, "create", broken)
    answer = client.get("/readyz")
    assert (answer.status_code, answer.content) == (503, b"a stop can NOT be recorded\n")


def test_a_real_server_says_both(processes: Processes) -> None:
    url = processes.web().url
    for path in ("livez", "readyz"):
        with urllib.request.urlopen(f"{url}/{path}", timeout=20) as answer:
            assert answer.status == 200
