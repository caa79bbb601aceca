"""The provider that other tests trust: its ledger counts before it deduplicates, and it can misbehave."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.provider import Ledger, Provider, control


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[Provider]:
    with Provider(tmp_path / "ledger") as bank:
        yield bank


def charge(url: str, key: str | None = "k", body: Any = None) -> httpx2.Response:
    headers = {"Idempotency-Key": key} if key else {}
    return httpx2.post(f"{url}/charges", json=body or {"amount": 1}, headers=headers, timeout=10)


def test_a_repeated_key_is_counted_twice_and_applied_once(bank: Provider) -> None:
    first, second = charge(bank.url), charge(bank.url)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["id"] == second.json()["id"]
    assert (bank.ledger.sends("k"), bank.ledger.applied("k")) == (2, 1)


def test_without_a_key_each_request_is_applied(bank: Provider) -> None:
    charge(bank.url, None)
    charge(bank.url, None)
    assert bank.ledger.applied() == 2


def test_a_look_up_finds_what_was_applied(bank: Provider) -> None:
    assert httpx2.get(f"{bank.url}/charges?key=k").status_code == 404
    made = charge(bank.url).json()
    assert httpx2.get(f"{bank.url}/charges?key=k").json() == made


def test_a_dropped_answer_was_applied_and_a_dropped_request_was_not(bank: Provider) -> None:
    bank.fault("drop_after", key="a")
    bank.fault("drop_before", key="b")
    for key, applied in (("a", 1), ("b", 0)):
        with pytest.raises(httpx2.RequestError):
            charge(bank.url, key)
        assert (bank.ledger.sends(key), bank.ledger.applied(key)) == (1, applied)


@pytest.mark.parametrize(("where", "applied"), [("hold_before", 0), ("hold_after", 1)])
def test_a_held_request_is_on_the_ledger_and_goes_on_when_released(
    bank: Provider, where: str, applied: int
) -> None:
    bank.fault(where)
    answers: list[int] = []
    caller = threading.Thread(target=lambda: answers.append(charge(bank.url).status_code))
    caller.start()
    bank.ledger.wait_for("held", "k")
    assert bank.ledger.applied("k") == applied
    bank.release()
    caller.join(10)
    assert answers == [201]


def test_a_provider_without_idempotency_is_caught_by_its_ledger(bank: Provider) -> None:
    bank.fault("double", times=0)
    charge(bank.url)
    assert bank.ledger.applied("k") == 2


def test_it_answers_what_it_is_told(bank: Provider) -> None:
    bank.fault("answer", status=429)
    bank.fault("answer_after", status=200, text="<html>", content_type="text/html", key="b")
    assert charge(bank.url, "a").status_code == 429
    assert charge(bank.url, "b").text == "<html>"
    assert (bank.ledger.applied("a"), bank.ledger.applied("b")) == (0, 1)


def test_look_ups_can_be_late_wrong_or_broken(bank: Provider) -> None:
    charge(bank.url)
    bank.fault("absent", method="GET", times=2)
    statuses = [httpx2.get(f"{bank.url}/charges?key=k").status_code for _ in range(3)]
    assert statuses == [404, 404, 200]
    bank.fault("wrong", method="GET")
    assert httpx2.get(f"{bank.url}/charges?key=k").json()["key"] == "somebody-else"
    bank.fault("answer", method="GET", status=500)
    assert httpx2.get(f"{bank.url}/charges?key=k").status_code == 500


def test_a_batch_can_be_applied_in_part(bank: Provider) -> None:
    bank.fault("partial", count=2)
    made = charge(bank.url, body={"items": ["a", "b", "c"]}).json()
    assert (made["status"], made["applied"], made["failed"]) == ("partial", ["a", "b"], ["c"])


def test_a_fenced_key_is_never_applied(bank: Provider) -> None:
    assert httpx2.delete(f"{bank.url}/charges?key=k").json() == {"fenced": True}
    assert charge(bank.url).status_code == 409
    assert bank.ledger.applied("k") == 0
    charge(bank.url, "used")
    assert httpx2.delete(f"{bank.url}/charges?key=used").json() == {"fenced": False}


def test_a_look_up_can_fence_the_key_that_it_does_not_find(bank: Provider) -> None:
    assert httpx2.get(f"{bank.url}/charges?key=k&fence=1").status_code == 404
    assert charge(bank.url).status_code == 409
    charge(bank.url, "used")
    assert httpx2.get(f"{bank.url}/charges?key=used&fence=1").json()["key"] == "used"
    assert (bank.ledger.applied("k"), bank.ledger.applied("used")) == (0, 1)


@pytest.mark.kill
def test_as_a_process_it_obeys_and_its_ledger_survives_a_kill(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    for expected in (201, 200):
        command = [sys.executable, "-m", "tests.provider", "--ledger", str(ledger.path)]
        bank = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1])
        assert bank.stdout is not None
        url = bank.stdout.readline().split()[1]
        assert charge(url).status_code == expected
        control(url, fault={"do": "answer", "status": 418})
        assert charge(url, "other").status_code == 418
        assert httpx2.get(f"{url}/__ledger").json() == ledger.lines()
        bank.kill()
        assert bank.wait(10) == -9
        bank.stdout.close()
    assert (ledger.sends("k"), ledger.applied("k")) == (2, 1)
