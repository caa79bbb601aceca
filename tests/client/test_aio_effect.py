"""declare + dispatch → look → the caller's function → report, in asyncio; and cancelled at each of these."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from allstop import (
    GateUnavailable,
    LostClaim,
    MustWait,
    NeverSent,
    NotApplied,
    Outcome,
    PermitExpired,
    ReportNotDelivered,
    StepEnded,
    StopRequested,
)
from allstop.aio import AsyncClient, AsyncRun
from allstop.talk import Ask

from tests.client.aworld import Call, charging, connected, outcomes, until
from tests.client.stub import Stub, StubServer
from tests.client.test_buffer import left
from tests.client.test_look import between_dispatch_and_look
from tests.provider import Provider

CLIENT = Path(__file__).parents[2] / "client"


@pytest.fixture
async def client(server: StubServer, buffer: Path) -> AsyncIterator[AsyncClient]:
    async with connected(server, buffer, heartbeat_s=60) as client:
        yield client


@pytest.fixture
async def hasty(server: StubServer, buffer: Path) -> AsyncIterator[AsyncClient]:
    """For the tests in which it has to give up."""
    async with connected(server, buffer, heartbeat_s=60, give_up_s=0.3, report_for_s=0.3) as client:
        yield client


async def test_two_round_trips_before_the_send_and_one_after(client: AsyncClient, stub: Stub) -> None:
    before: list[str] = []

    async def charge() -> dict[str, str]:
        before.extend(f"{c.method} {c.path.split('/')[1]}" for c in stub.calls)
        return {"id": "ch_1"}

    async with client.run("r") as run:
        stub.calls.clear()
        assert await charging(run).send(charge) == {"id": "ch_1"}
        assert before == ["POST runs", "GET permits"]
        assert [c.path.rpartition("/")[2] for c in stub.calls[2:]] == ["report"]
    assert stub.status == "COMPLETED"


@pytest.mark.invariant("I7")
async def test_nothing_is_awaited_between_the_answer_of_the_look_and_the_call(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the loop could do next is put in line directly before the look returns; the call is first."""
    order: list[str] = []
    wire = client._async_wire
    send = wire.send

    async def sending(ask: Ask) -> Any:
        answer = await send(ask)
        if ask.path.startswith("permits/") and ask.method == "GET":
            asyncio.get_running_loop().call_soon(order.append, "something else")
        return answer

    async def charge() -> None:
        order.append("the call")
        await asyncio.sleep(0)

    monkeypatch.setattr(wire, "send", sending)
    async with client.run("r") as run:
        await charging(run).send(charge)
    assert order == ["the call", "something else"]


@pytest.mark.invariant("I7")
async def test_a_stop_between_dispatch_and_send_is_seen_and_nothing_is_sent(
    client: AsyncClient, stub: Stub
) -> None:
    between_dispatch_and_look(stub, stub.stop)
    call = Call()
    with pytest.raises(StopRequested):
        async with client.run("r") as run:
            await charging(run).send(call)
    assert len(stub.permits) == 1
    assert (call.ended, outcomes(stub)) == ([], ["not_sent"])


async def test_a_permit_that_was_lost_is_a_lost_claim(client: AsyncClient, stub: Stub) -> None:
    between_dispatch_and_look(stub, lambda: [p.update(state="LOST") for p in stub.permits.values()].clear())
    call = Call()
    with pytest.raises(LostClaim):
        async with client.run("r") as run:
            await charging(run).send(call)
    assert (call.ended, outcomes(stub)) == ([], ["not_sent"])


@pytest.mark.parametrize(
    ("status", "text"), [(200, '{"look": "OPEN"}'), (200, "<html>"), (302, ""), (404, "{}"), (500, "open")]
)
async def test_anything_but_open_is_not_open(hasty: AsyncClient, stub: Stub, status: int, text: str) -> None:
    stub.say("/permits/", status, text, method="GET", times=500)
    call = Call()
    async with hasty.run("r") as run:
        with pytest.raises(GateUnavailable):
            await charging(run).send(call)
    assert (call.ended, outcomes(stub)) == ([], ["not_sent"])


@pytest.mark.invariant("I7")
async def test_the_permit_is_counted_from_before_it_was_asked_for(client: AsyncClient, stub: Stub) -> None:
    stub.ttl_s = 0.2
    stub.slow("/effects$", 0.25)
    call = Call()
    async with client.run("r") as run:
        with pytest.raises(PermitExpired):
            await charging(run).send(call)
        stub.ttl_s = 10
        await charging(run).send(call)
    assert (call.ended, outcomes(stub)) == (["charge:7"], ["not_sent", "applied"])


@pytest.mark.invariant("I8")
async def test_when_every_answer_of_the_gate_is_lost_nothing_is_sent_and_the_next_try_finds_the_permit(
    hasty: AsyncClient, stub: Stub
) -> None:
    stub.lose("/effects$", times=50)
    call = Call()
    async with hasty.run("r") as run:
        with pytest.raises(GateUnavailable):
            await charging(run).send(call)
        assert call.ended == []
        stub.orders.clear()
        await charging(run).send(call)
    assert call.ended == ["charge:7"]
    assert len(stub.permits) == 1
    assert len({c.key for c in stub.seen("/effects$")}) == 1


async def test_a_settled_key_is_skipped_and_one_in_doubt_must_wait(client: AsyncClient, stub: Stub) -> None:
    async with client.run("r") as run:
        await charging(run).send(Call())
        again = charging(run)
        assert await again.send(Call(raises=AssertionError("sent twice"))) == {"id": "ch_1"}
        assert again.skipped
        with pytest.raises(OSError, match="gone"):
            await charging(run, "k").send(Call(raises=OSError("gone")), "k")
        with pytest.raises(MustWait):
            await charging(run, "k").send(Call(), "k")
        with pytest.raises(NotApplied):
            await charging(run, "n").send(Call(raises=NotApplied("declined")), "n")
    assert outcomes(stub) == ["applied", "unknown", "not_applied"]


async def test_a_report_that_never_gets_through_is_kept_and_told_by_the_next_client(
    hasty: AsyncClient, server: StubServer, stub: Stub, buffer: Path
) -> None:
    stub.say("/report$", 503, "", times=500)
    with pytest.raises(ReportNotDelivered) as lost:
        async with hasty.run("r") as run:
            await charging(run).send(Call())
    assert lost.value.kept
    await hasty.close()
    stub.orders.clear()
    async with connected(server, buffer) as later, later.run("r"):
        assert stub.effects["charge:7"]["settlement"] == "CONFIRMED"
    assert left(buffer) == []


async def test_steps_model_turns_reads_and_the_decorator(client: AsyncClient, stub: Stub) -> None:
    async def turn(words: str) -> Outcome:
        return Outcome("applied", usage={"input_tokens": len(words)})

    async with client.run("r") as run:
        assert (await run.model_turn(turn, "abc")).name == "applied"
        assert await run.read(asyncio.sleep, 0, "text") == "text"

        @run.gated(key=lambda n: f"charge:{n}", kind="bank.charge", none_because="a test")
        async def pay(number: str) -> str:
            return f"paid {number}"

        assert [await pay("7"), await pay("7")] == ["paid 7", "paid 7"]
        async with run.step("s", "A step") as step:
            await step.effect(key="k", kind="x", none_because="t").send(Call(), "k")
        with pytest.raises(StepEnded):
            async with run.step("s"):
                pass
        with pytest.raises(NeverSent):
            async with charging(run, "never"):
                pass
    assert [s["status"] for s in stub.steps.values()] == ["SUCCEEDED"] * 3
    assert stub.seen("/report$")[0].body["usage"] == {"input_tokens": 3}


class TestCancelledByItsCaller:
    """At each point of a send. The report is told whoever was cancelled."""

    @pytest.fixture
    def stub(self, stub: Stub) -> Iterator[Stub]:
        yield stub
        assert len(stub.permits) == 1

    async def cancelled(self, client: AsyncClient, stub: Stub, call: Call, when: str, method: str) -> None:
        async with client.run("r") as run:
            task = asyncio.create_task(charging(run).send(call))
            await until(lambda: call.begun.is_set() if when == "call" else stub.seen(when, method))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert task.cancelled()
        assert stub.status == "COMPLETED"

    async def test_while_it_asks_its_permit_is_given_back(self, client: AsyncClient, stub: Stub) -> None:
        call = Call()
        stub.slow("/effects$", 0.1)
        await self.cancelled(client, stub, call, "/effects$", "POST")
        assert (call.begun.is_set(), outcomes(stub)) == (False, ["not_sent"])

    async def test_while_it_looks_nothing_is_sent(self, client: AsyncClient, stub: Stub) -> None:
        call = Call()
        stub.slow("/permits/", 0.1, method="GET")
        await self.cancelled(client, stub, call, "/permits/", "GET")
        assert (call.begun.is_set(), outcomes(stub)) == (False, ["not_sent"])

    async def test_while_it_calls_the_call_is_cancelled_and_unknown(
        self, client: AsyncClient, stub: Stub
    ) -> None:
        call = Call(held=True)
        await self.cancelled(client, stub, call, "call", "")
        assert (call.ended, outcomes(stub)) == (["cancelled"], ["unknown"])

    async def test_while_it_reports_the_report_is_made(self, client: AsyncClient, stub: Stub) -> None:
        call = Call()
        stub.slow("/report$", 0.1)
        await self.cancelled(client, stub, call, "/report$", "POST")
        assert (call.ended, outcomes(stub)) == (["charge:7"], ["applied"])

    async def test_with_the_server_away_it_does_not_wait_long(self, client: AsyncClient, stub: Stub) -> None:
        call = Call(held=True)
        client._link.pace.__dict__["report_for_s"] = 20.0
        stub.say("/report$", 503, "", times=5000)
        async with client.run("r") as run:
            task = asyncio.create_task(charging(run).send(call))
            await call.begun.wait()
            cancelled_at = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert time.monotonic() - cancelled_at < 5
            stub.orders.clear()
            await until(lambda: outcomes(stub) and stub.effects["charge:7"]["settlement"] == "UNKNOWN")


AGENT = """
import asyncio, sys, urllib.request
from allstop import GateUnavailable, PermitExpired
from allstop.aio import AsyncClient, AsyncRun
url, bank = sys.argv[1:]
async def charge():
    urllib.request.urlopen(urllib.request.Request(bank + "/charges", b"{}", {"Idempotency-Key": "k"},
    method="POST"))
async def main():
    async with AsyncClient(url, "als_x", timeout_s=30, give_up_s=30) as client, client.run("r") as run:
        try:
            await run.effect(key="k", kind="bank.charge", none_because="a test").send(charge)
        except (PermitExpired, GateUnavailable) as late:
            print(type(late).__name__)
asyncio.run(main())
"""


@pytest.mark.kill
@pytest.mark.invariant("I7")
def test_a_worker_frozen_for_twice_its_permit_sends_nothing(
    server: StubServer, stub: Stub, tmp_path: Path
) -> None:
    """Frozen while "open" is on its way, as the sync one in test_look. Thawed, the loop may find first that
    it has waited too long: then it never received "open", and says so.
    """
    stub.ttl_s = 1.0
    stub.slow("/permits/", 0.5, method="GET")
    with Provider(tmp_path / "ledger") as bank:
        command = [sys.executable, "-c", AGENT, server.url, bank.url]
        environ = {**os.environ, "PYTHONPATH": str(CLIENT)}
        agent = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)
        end = time.monotonic() + 20
        while not stub.seen("/permits/", "GET"):
            assert time.monotonic() < end, "the agent did not look"
            time.sleep(0.01)
        agent.send_signal(signal.SIGSTOP)
        time.sleep(2 * stub.ttl_s)
        agent.send_signal(signal.SIGCONT)
        said = agent.communicate(timeout=20)[0].strip()
        assert bank.ledger.sends("k") == 0
    told = {"PermitExpired": ["not_applied"], "GateUnavailable": ["not_sent"]}
    assert outcomes(stub) == told[said]


async def test_a_clock_that_is_set_changes_nothing(
    client: AsyncClient, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten minutes back or forth between the permit and the call: its end is counted on another clock."""
    for n, jump_s in enumerate((600, -600)):
        monkeypatch.setattr(time, "time", functools.partial(lambda real, by: real() + by, time.time, jump_s))
        async with client.run("r") as run:
            await charging(run, f"k{n}").send(Call(), f"k{n}")
        stub.status = "ACTIVE"
    stub.ttl_s = 0.0
    async with client.run("r") as run:
        with pytest.raises(PermitExpired):
            await charging(run, "k2").send(Call(), "k2")
    assert outcomes(stub) == ["applied", "applied", "not_sent"]


async def test_a_step_that_is_left_by_a_cancellation_is_finished_after_its_report(
    client: AsyncClient, stub: Stub
) -> None:
    stub.slow("/report$", 0.1)

    async def agent(run: AsyncRun) -> None:
        async with run.step("s") as step:
            await step.effect(key="k", kind="x", none_because="t").send(Call(), "k")

    async with client.run("r") as run:
        task = asyncio.create_task(agent(run))
        await until(lambda: stub.seen("/report$"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert stub.steps["s"]["status"] == "PARTIAL"
