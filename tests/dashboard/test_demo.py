"""The demo world: real processes, small ledgers, and an agent that is an ordinary user of the client."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dashboard.demo import start
from dashboard.demo.bank import Bank
from dashboard.demo.outside import Ledger, Outside
from dashboard.demo.start import ROOT, DemoBusy, NoDemo, World, start_run
from tests.client.stub import Stub, StubServer


@pytest.fixture
def allstop() -> Iterator[StubServer]:
    server = StubServer(Stub())
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def world(allstop: StubServer, tmp_path: Path) -> Iterator[World]:
    world = World(allstop.url, lambda: "als_x", tmp_path, pace=0.02)
    try:
        world.begin()
        yield world
    finally:
        world.stop()


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[str]:
    with serving(tmp_path / "bank.jsonl", pace=0.01) as server:
        yield server.url


class serving:  # noqa: N801 - reads as a sentence in a with statement
    """A bank in threads of this process."""

    def __init__(self, ledger: Path, pace: float) -> None:
        self.server = Outside(Bank, 0, Ledger(ledger), pace)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> Outside:
        self.thread.start()
        return self.server

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def charge(url: str, key: str = "k", merchant: str = "Nordhaven AG", **more: Any) -> httpx2.Response:
    body = {"merchant": merchant, "amount": "1.00", "currency": "EUR", "invoice": "INV-1"} | more
    return httpx2.post(f"{url}/charges", json=body, headers={"Idempotency-Key": key}, timeout=20)


def until(true: Callable[[], Any], within_s: float = 20) -> Any:
    end = time.monotonic() + within_s
    while not (found := true()):
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.01)
    return found


def test_a_key_is_booked_once_and_every_request_is_in_the_ledger(bank: str, tmp_path: Path) -> None:
    first, again = charge(bank), charge(bank)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    ledger = Ledger(tmp_path / "bank.jsonl")
    assert (len(ledger.lines("request")), len(ledger.lines("entered"))) == (2, 1)
    assert httpx2.get(f"{bank}/charges?key=k").json()["status"] == "succeeded"


def test_two_banks_over_one_ledger_book_a_key_once(tmp_path: Path) -> None:
    path = tmp_path / "bank.jsonl"
    with serving(path, 0.01) as old, serving(path, 0.01) as new:
        callers = [threading.Thread(target=charge, args=(url,)) for url in (old.url, new.url) * 3]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        assert httpx2.get(f"{new.url}/charges?key=k").status_code == 200
    assert len(Ledger(path).lines("entered")) == 1


def test_an_answer_gets_lost_and_the_look_up_is_broken_then_empty_then_true(tmp_path: Path) -> None:
    with serving(tmp_path / "bank.jsonl", pace=0.05) as bank:
        with pytest.raises(httpx2.RequestError):
            charge(bank.url, merchant="Ostwind GmbH")
        assert len(bank.ledger.lines("entered")) == 1
        seen: list[int] = []

        def found() -> bool:
            status = httpx2.get(f"{bank.url}/charges?key=k").status_code
            seen.extend([status] if status not in seen else [])
            return status == 200

        until(found)
    assert seen == [503, 404, 200]


def test_a_declined_card_moves_no_money(bank: str, tmp_path: Path) -> None:
    assert charge(bank, merchant="Waldsee KG").status_code == 402
    assert Ledger(tmp_path / "bank.jsonl").lines("entered") == []


def test_a_refund_is_a_booking_of_its_own_and_leaves_the_charge_where_it_was(
    bank: str, tmp_path: Path
) -> None:
    def refund(key: str = "r", **more: Any) -> httpx2.Response:
        body = {"charge_key": "k", "amount": "1.00", "currency": "EUR"} | more
        return httpx2.post(f"{bank}/refunds", json=body, headers={"Idempotency-Key": key})

    assert refund().status_code == 422, "nothing was charged yet"
    charge(bank)
    assert refund("other", amount="2.00").status_code == 422
    assert [refund().status_code for _ in range(2)] == [201, 200]
    assert refund("again", charge_key="r").status_code == 422, "a refund is no charge"
    told = {
        (path, key): httpx2.get(f"{bank}/{path}?key={key}").status_code
        for path in ("charges", "refunds")
        for key in "kr"
    }
    assert told == {
        ("charges", "k"): 200,
        ("charges", "r"): 404,
        ("refunds", "k"): 404,
        ("refunds", "r"): 200,
    }
    assert len(Ledger(tmp_path / "bank.jsonl").lines("entered")) == 2


def test_what_the_bank_cannot_read_it_does_not_book(bank: str, tmp_path: Path) -> None:
    assert httpx2.post(f"{bank}/charges", content=b"{").status_code == 422
    assert httpx2.post(f"{bank}/charges", json={"merchant": "x"}).status_code == 422
    assert Ledger(tmp_path / "bank.jsonl").lines("entered") == []


def test_a_line_cut_short_by_a_kill_is_left_out(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l")
    ledger.enter_once("a", {"id": "1"})
    with ledger.path.open("a") as file:
        file.write('{"event": "ent')
    assert len(ledger.lines()) == 1


@pytest.mark.kill
def test_the_agent_bills_every_order_and_leaves_the_doubtful_one_alone(
    world: World, allstop: StubServer
) -> None:
    world.run_agent()
    assert world.agents[0].wait(60) == 0
    effects = {key: effect["settlement"] for key, effect in allstop.stub.effects.items()}
    assert effects["charge:INV-0001-01"] == effects["mail:INV-0001-01"] == "CONFIRMED"
    assert effects["charge:INV-0001-02"] == "UNKNOWN"
    assert effects["charge:INV-0001-04"] == "NOT_APPLIED"
    assert not {"mail:INV-0001-02", "mail:INV-0001-04"} & set(effects)
    bank = Ledger(world.folder / "bank.jsonl")
    keys = [line["key"] for line in bank.lines("request")]
    assert len(keys) == len(set(keys)) == 10
    assert allstop.stub.status == "COMPLETED"


@pytest.mark.kill
def test_the_agent_ends_at_a_safe_point_when_a_stop_comes_during_a_charge(
    world: World, allstop: StubServer
) -> None:
    bank = Ledger(world.folder / "bank.jsonl")
    world.pace = 0.1
    world.run_agent()
    until(lambda: len(bank.lines("request")) == 3)
    allstop.stub.stop()
    assert world.agents[0].wait(60) == 0
    assert len(bank.lines("request")) == 3
    assert "Ended at a safe point" in (world.folder / "agent.log").read_text()
    assert allstop.stub.status == "CANCELLING"


@pytest.mark.kill
def test_the_agent_waits_while_its_run_is_paused_and_goes_on_where_it_was(
    world: World, allstop: StubServer
) -> None:
    bank, log = Ledger(world.folder / "bank.jsonl"), world.folder / "agent.log"
    world.run_agent()
    until(lambda: len(bank.lines("request")) == 3)
    allstop.stub.stop("PAUSED")
    until(lambda: len(allstop.stub.seen("^/runs$")) >= 3)
    assert len(bank.lines("request")) == 3
    assert world.agents[0].poll() is None
    allstop.stub.status = "ACTIVE"
    assert world.agents[0].wait(60) == 0
    keys = [line["key"] for line in bank.lines("request")]
    assert len(keys) == len(set(keys)) == 10
    assert log.read_text().count("Held at a safe point") == 1
    assert allstop.stub.status == "COMPLETED"


@pytest.mark.kill
def test_the_agent_ends_when_there_is_no_gate(world: World, allstop: StubServer) -> None:
    bank = Ledger(world.folder / "bank.jsonl")
    allstop.stub.say("/effects$", 503, "", times=10_000)
    world.run_agent()
    assert world.agents[0].wait(60) == 1
    assert bank.lines("request") == []
    assert "without a gate" in (world.folder / "agent.log").read_text()


def test_a_run_is_started_for_the_workspace_of_the_demo_only(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(start.WORLDS, "ws_demo", world)
    with pytest.raises(NoDemo):
        start_run("ws_other")
    world.pace = 1.0
    for _ in range(start.AGENTS_AT_ONCE):
        start_run("ws_demo")
    with pytest.raises(DemoBusy):
        start_run("ws_demo")
    assert world.next_batch == 1 + start.AGENTS_AT_ONCE


def test_a_bank_that_is_started_again_has_its_port_and_its_ledger(
    allstop: StubServer, tmp_path: Path
) -> None:
    addresses = []
    for _ in range(2):
        world = World(allstop.url, lambda: "als_x", tmp_path, pace=0.01)
        world.begin()
        addresses.append(world.bank)
        charge(world.bank)
        world.stop()
        assert all(process.returncode is not None for process in world.outside)
    assert addresses[0] == addresses[1]
    assert len(Ledger(tmp_path / "bank.jsonl").lines("entered")) == 1


@pytest.mark.parametrize("module", ["agent", "bank", "mailer", "start"])
def test_the_demo_imports_nothing_of_the_server(module: str) -> None:
    check = (
        f"import sys; sys.path[:0] = ['.', 'client']; import dashboard.demo.{module};"
        "assert not {'django', 'runs', 'effects'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", check], cwd=ROOT, check=True)
