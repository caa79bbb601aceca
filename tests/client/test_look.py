"""The second look: only "open", read now, means send."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from allstop import Client, GateUnavailable, LostClaim, PermitExpired, StaleVersion, StopRequested

from tests.client.stub import Stub, StubServer
from tests.client.world import Charge, charging
from tests.provider import Provider

CLIENT = Path(__file__).parents[2] / "client"


def between_dispatch_and_look(stub: Stub, act: Callable[[], None]) -> None:
    """Have `act` happen after the permit was given and before the look is read."""
    read = stub._get

    def acting(path: str, query: dict[str, Any]) -> Any:
        act()
        return read(path, query)

    stub._get = acting  # type: ignore[method-assign]


def outcomes(stub: Stub) -> list[str]:
    return [c.body["outcome"] for c in stub.seen("/report$")]


@pytest.mark.invariant("I7")
def test_a_stop_between_dispatch_and_send_is_seen_and_nothing_is_sent(client: Client, stub: Stub) -> None:
    between_dispatch_and_look(stub, stub.stop)
    charge = Charge()
    with pytest.raises(StopRequested), client.run("r") as run:
        charging(run).send(charge, "charge:7")
    assert len(stub.permits) == 1
    assert charge.calls == []
    assert outcomes(stub) == ["not_sent"]


def test_the_same_race_without_the_look_does_send(client: Client, stub: Stub) -> None:
    """The control: an agent that takes the permit for a yes."""
    charge = Charge()
    with client.run("r") as run:
        run.ask_gate(f"runs/{run.id}/effects", {"key": "k", "plan": {}, "step": {"key": "k"}})
        stub.stop()
        charge("k")
        stub.status, stub.version = "ACTIVE", 1
    assert charge.calls == ["k"]


def test_another_version_of_a_running_run_is_a_stale_version(client: Client, stub: Stub) -> None:
    between_dispatch_and_look(stub, lambda: stub.stop("ACTIVE"))
    charge = Charge()
    with pytest.raises(StaleVersion), client.run("r") as run:
        charging(run).send(charge, "charge:7")
    assert (charge.calls, outcomes(stub)) == ([], ["not_sent"])


def test_a_permit_that_was_lost_is_a_lost_claim(client: Client, stub: Stub) -> None:
    between_dispatch_and_look(stub, lambda: [p.update(state="LOST") for p in stub.permits.values()].clear())
    charge = Charge()
    with pytest.raises(LostClaim), client.run("r") as run:
        charging(run).send(charge, "charge:7")
    assert (charge.calls, outcomes(stub)) == ([], ["not_sent"])


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (200, '{"look": "OPEN"}'),
        (200, '{"look": true}'),
        (200, '{"look": "maybe"}'),
        (200, "{}"),
        (200, "<html>open</html>"),
        (302, ""),
        (404, "{}"),
        (500, "open"),
    ],
)
def test_anything_but_open_is_not_open(client: Client, stub: Stub, status: int, text: str) -> None:
    stub.say("/permits/", status, text, method="GET", times=500)
    charge = Charge()
    with client.run("r") as run, pytest.raises(GateUnavailable):
        charging(run).send(charge, "charge:7")
    assert (charge.calls, outcomes(stub)) == ([], ["not_sent"])


def test_a_gate_that_goes_down_before_the_look_is_no_permit(
    server: StubServer, client: Client, stub: Stub
) -> None:
    stub.lose("/permits/", method="GET", times=500)
    stub.say("/report$", 503, "", times=500)
    charge = Charge()
    with pytest.raises(GateUnavailable), client.run("r") as run:
        charging(run).send(charge, "charge:7")
    assert charge.calls == []
    assert stub.status == "ACTIVE"


def test_a_lost_answer_to_the_look_is_looked_up_again(client: Client, stub: Stub) -> None:
    stub.lose("/permits/", method="GET")
    charge = Charge()
    with client.run("r") as run:
        charging(run).send(charge, "charge:7")
    assert charge.calls == ["charge:7"]
    assert len(stub.seen("/permits/", "GET")) == 2


@pytest.mark.invariant("I7")
def test_the_permit_is_counted_from_before_it_was_asked_for(client: Client, stub: Stub) -> None:
    stub.ttl_s = 0.3
    stub.slow("/effects$", 0.35)
    charge = Charge()
    with client.run("r") as run, pytest.raises(PermitExpired):
        charging(run).send(charge, "charge:7")
    assert (charge.calls, outcomes(stub)) == ([], ["not_sent"])
    assert not stub.seen("/permits/", "GET")


@pytest.mark.invariant("I7")
def test_a_look_that_is_not_answered_within_the_permit_is_no_permit(client: Client, stub: Stub) -> None:
    stub.ttl_s = 0.3
    stub.slow("/permits/", 0.4, method="GET")
    charge = Charge()
    with client.run("r") as run, pytest.raises(GateUnavailable):
        charging(run).send(charge, "charge:7")
    assert (charge.calls, outcomes(stub)) == ([], ["not_sent"])


def test_an_expired_permit_may_be_followed_by_a_new_one(server: StubServer, stub: Stub, buffer: Path) -> None:
    stub.ttl_s = 0.3
    stub.slow("/effects$", 0.35)
    charge = Charge()
    with (
        Client(server.url, "als_x", worker="w-1", buffer=buffer, give_up_s=5) as client,
        client.run("r") as run,
    ):
        with pytest.raises(PermitExpired):
            charging(run).send(charge, "charge:7")
        charging(run).send(charge, "charge:7")
    assert charge.calls == ["charge:7"]


AGENT = """
import sys, urllib.request
from allstop import Client, PermitExpired
url, bank = sys.argv[1:]
def charge():
    urllib.request.urlopen(urllib.request.Request(bank + "/charges", b"{}", {"Idempotency-Key": "k"},
    method="POST"))
with Client(url, "als_x", timeout_s=30, give_up_s=30) as client, client.run("r") as run:
    try:
        run.effect(key="k", kind="bank.charge", none_because="a test").send(charge)
    except PermitExpired:
        print("expired")
"""


@pytest.mark.kill
@pytest.mark.invariant("I7")
def test_a_worker_frozen_for_twice_its_permit_sends_nothing(
    server: StubServer, stub: Stub, tmp_path: Path
) -> None:
    """Frozen while "open" is on its way: the answer was true when it was given. Since the agent did receive
    it, "not sent" is no longer its to say: it reports that nothing was applied.
    """
    stub.ttl_s = 1.0
    stub.slow("/permits/", 0.5, method="GET")
    with Provider(tmp_path / "ledger") as bank:
        agent = subprocess.Popen(
            [sys.executable, "-c", AGENT, server.url, bank.url],
            env={**os.environ, "PYTHONPATH": str(CLIENT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        end = time.monotonic() + 20
        while not stub.seen("/permits/", "GET"):
            assert time.monotonic() < end, "the agent did not look"
            time.sleep(0.01)
        agent.send_signal(signal.SIGSTOP)
        threading.Event().wait(2 * stub.ttl_s)
        agent.send_signal(signal.SIGCONT)
        assert agent.communicate(timeout=20)[0] == "expired\n"
        assert bank.ledger.sends("k") == 0
    assert outcomes(stub) == ["not_applied"]
    assert stub.effects["k"]["settlement"] == "NOT_APPLIED"
