"""A server that says when to come back: reports wait for it, and a gate that says so has given no permit."""

from __future__ import annotations

import itertools
import time

import pytest
from allstop import Client, GateUnavailable, NotQuiet

from tests.client.stub import Stub, StubServer
from tests.client.world import Charge, charging


def apart(stub: Stub, path: str) -> list[float]:
    """The seconds between one request and the next."""
    at = [call.at for call in stub.seen(path)]
    return [later - sooner for sooner, later in itertools.pairwise(at)]


def test_a_report_is_repeated_when_the_server_said(server: StubServer, stub: Stub) -> None:
    stub.say("/report$", 429, "{}", retry_after="1")
    charge = Charge()
    with Client(server.url, "als_x", report_for_s=10) as client, client.run("r") as run:
        charging(run).send(charge, "charge:7")
    assert charge.calls == ["charge:7"]
    assert [call.body["outcome"] for call in stub.seen("/report$")] == ["applied", "applied"]
    assert apart(stub, "/report$")[0] >= 1


@pytest.mark.parametrize("said", ["", "soon", "Wed, 21 Oct 2015 07:28:00 GMT", "-5", "1.5"])
def test_what_can_not_be_read_as_seconds_changes_nothing(client: Client, stub: Stub, said: str) -> None:
    stub.say("/report$", 429, "{}", retry_after=said)
    with client.run("r") as run:
        charging(run).send(Charge(), "charge:7")
    assert apart(stub, "/report$")[0] < 0.5


@pytest.mark.parametrize("path", ["/effects$", "/permits/"])
def test_a_gate_that_says_later_has_given_no_permit(client: Client, stub: Stub, path: str) -> None:
    method = "GET" if path == "/permits/" else "POST"
    stub.say(path, 429, "{}", method=method, times=500, retry_after="60")
    charge, began = Charge(), time.monotonic()
    with client.run("r") as run, pytest.raises(GateUnavailable, match="429"):
        charging(run).send(charge, "charge:7")
    assert charge.calls == []
    assert len(stub.seen(path, method)) == 1, "it was not asked again before its time"
    assert time.monotonic() - began < 5


def test_a_gate_that_is_free_again_within_the_patience_permits_once(client: Client, stub: Stub) -> None:
    stub.say("/effects$", 429, "{}")
    charge = Charge()
    with client.run("r") as run:
        charging(run).send(charge, "charge:7")
    first, second = stub.seen("/effects$")
    assert first.key == second.key
    assert (charge.calls, len(stub.permits)) == (["charge:7"], 1)


def test_completing_waits_while_allstop_itself_sends_and_not_for_what_is_the_callers(
    server: StubServer, stub: Stub
) -> None:
    busy = '{"type": "/problems/not-quiet"}'
    stub.say("/complete$", 409, busy, retry_after="1")
    with Client(server.url, "als_x", give_up_s=10) as client, client.run("r"):
        pass
    first, second = stub.seen("/complete$")
    assert (first.key, stub.status) == (second.key, "COMPLETED")
    assert apart(stub, "/complete$")[0] >= 1
    stub.status = "ACTIVE"
    stub.say("/complete$", 409, busy)
    with pytest.raises(NotQuiet), Client(server.url, "als_x") as client, client.run("r2"):
        pass
    assert len(stub.seen("/complete$")) == 3, "asked once: nothing but the caller would change the answer"


def test_completing_gives_up_as_not_quiet_when_allstop_takes_too_long(client: Client, stub: Stub) -> None:
    stub.say("/complete$", 409, '{"type": "/problems/not-quiet"}', times=500, retry_after="60")
    with pytest.raises(NotQuiet), client.run("r"):
        pass
