"""The heartbeat keeps claims alive, hears of a stop, and never outlives the run."""

# ruff: noqa: PT012 - what raises is the end of the run's own block

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from allstop import Client, GateUnavailable, LostClaim, StopRequested
from allstop.talk import Ask
from allstop.wire import Address, Wire

from tests.client.stub import Stub, StubServer
from tests.client.world import charging


@pytest.fixture
def client(server: StubServer) -> Iterator[Client]:
    with Client(server.url, "als_x", worker="w-1", timeout_s=1, give_up_s=0.3, heartbeat_s=0.05) as client:
        yield client


def until(true: Callable[[], object], within_s: float = 10) -> None:
    end = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.01)


def beating() -> bool:
    return any(t.name == "allstop-heartbeat" for t in threading.enumerate())


def test_a_stop_is_heard_while_the_agent_is_busy_and_confirmed_at_once(client: Client, stub: Stub) -> None:
    with pytest.raises(StopRequested, match="Stop 7 is in force"), client.run("r") as run:
        run.checkpoint()
        stub.stop()
        until(lambda: any(c.body["seen_version"] == 2 for c in stub.seen("/heartbeat$")))
        run.checkpoint()


def test_the_gate_calls_keep_the_version_they_began_with(client: Client, stub: Stub) -> None:
    """What the worker confirmed is not what it was admitted under."""
    with pytest.raises(StopRequested) as stopped, client.run("r") as run:
        stub.stop()
        until(lambda: any(c.body["seen_version"] == 2 for c in stub.seen("/heartbeat$")))
        charging(run).send(lambda: None)
    assert stopped.value.problem["carried_version"] == 1


def test_it_renews_the_claims_held_now_and_no_others(client: Client, stub: Stub) -> None:
    with client.run("r") as run:
        with run.step("s") as step:
            until(lambda: any(c.body["claim_tokens"] == [step.claim_token] for c in stub.seen("/heartbeat$")))
        begun = len(stub.calls)
        until(lambda: len(stub.calls) > begun + 2)
        assert stub.seen("/heartbeat$")[-1].body["claim_tokens"] == []


def test_a_slow_call_keeps_its_claim(client: Client, stub: Stub) -> None:
    with client.run("r") as run:
        charging(run).send(
            lambda: until(lambda: any(c.body["claim_tokens"] for c in stub.seen("/heartbeat$")))
        )


def test_it_survives_a_server_that_is_away_and_says_so_once(
    client: Client, stub: Stub, caplog: pytest.LogCaptureFixture
) -> None:
    with client.run("r") as run:
        stub.say("/heartbeat$", 503, "", times=8)
        until(lambda: len(stub.seen("/heartbeat$")) > 12)
        run.checkpoint()
    assert caplog.text.count("No heartbeat") <= 2
    assert "No heartbeat" in caplog.text


def test_it_is_a_daemon_and_ends_with_the_run(client: Client, stub: Stub) -> None:
    with client.run("r"):
        assert beating()
        assert all(t.daemon for t in threading.enumerate() if t.name == "allstop-heartbeat")
    assert not beating()
    stub.status = "ACTIVE"
    with pytest.raises(ValueError, match="x"), client.run("q"):
        raise ValueError("x")
    assert not beating()


def test_heartbeats_leave_no_keys_behind_for_the_server_to_keep(client: Client, stub: Stub) -> None:
    with client.run("r"):
        until(lambda: len(stub.seen("/heartbeat$")) >= 2)
    assert {c.key for c in stub.seen("/heartbeat$")} == {None}


def confirmed(stub: Stub) -> dict[str, int]:
    """What the newest heartbeat confirmed."""
    beats = stub.seen("/heartbeat$")
    return beats[-1].body.get("confirmed", {}) if beats else {}


# --- Receipts ---------------------------------------------------------------------------------------------


def test_it_brings_what_each_boundary_holds_and_the_checkpoint_that_saw_the_stop(
    client: Client, stub: Stub
) -> None:
    with pytest.raises(StopRequested), client.run("r") as run:
        run.model_turn(lambda: None)
        until(lambda: confirmed(stub) == {"model": 1})
        stub.stop()
        with pytest.raises(StopRequested):
            charging(run).send(lambda: None)
        until(lambda: confirmed(stub) == {"model": 1, "dispatch": 2})
        with pytest.raises(StopRequested):
            run.checkpoint()
        until(lambda: confirmed(stub).get("checkpoint") == 2)
        run.checkpoint()


def test_a_checkpoint_that_asks_hears_of_a_stop_at_once(server: StubServer, stub: Stub) -> None:
    slow = Client(server.url, "als_x", worker="w-1", heartbeat_s=60)
    with slow as client, pytest.raises(StopRequested, match="Stop 7"), client.run("r") as run:
        stub.stop()
        run.checkpoint()
        run.checkpoint(ask=True)


def test_a_step_that_was_lost_says_so_at_its_checkpoint(client: Client, stub: Stub) -> None:
    with pytest.raises(LostClaim), client.run("r") as run, run.step("s") as step:
        step.checkpoint()
        lost = f'{{"status": "ACTIVE", "cancel_version": 1, "lost": ["{step.claim_token}"]}}'
        stub.say("/heartbeat$", 200, lost, times=500)
        until(lambda: run.lost(step.claim_token))
        step.checkpoint()


def test_a_beat_of_a_client_that_was_closed_is_a_beat_without_an_answer(server: StubServer) -> None:
    """A thread that was slow to end must not throw its surprise at the agent's terminal."""
    wire = Wire(Address(server.url, "als_x", timeout_s=1, give_up_s=0.3))
    wire.close()
    with pytest.raises(GateUnavailable, match="was closed"):
        wire.send(Ask("POST", "runs/r/heartbeat", {}))
