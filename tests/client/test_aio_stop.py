"""Where a stop cancels the task of a run, where it does not, and what it leaves of other cancellations."""

# ruff: noqa: PT012 - what raises is the end of the run's own block

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from allstop import GateUnavailable, StaleVersion, StopRequested
from allstop.aio import AsyncClient, AsyncRun

from tests.client.aworld import Call, charging, connected, outcomes, until
from tests.client.stub import Stub, StubServer

CLIENT = Path(__file__).parents[2] / "client"


@pytest.fixture
async def client(server: StubServer, buffer: Path) -> AsyncIterator[AsyncClient]:
    async with connected(server, buffer) as client:
        yield client


async def test_a_stop_cancels_the_run_where_it_waits_and_its_cleanup_runs(
    client: AsyncClient, stub: Stub
) -> None:
    cleaned: list[str] = []
    with pytest.raises(StopRequested, match="Stop 7 is in force") as stopped:
        async with client.run("r"):
            stub.stop()
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.15)  # three heartbeats long: nobody interrupts it
                cleaned.append("done")
    assert cleaned == ["done"]
    assert stopped.value.stop_id == "stp_1"
    assert isinstance(stopped.value.__cause__, asyncio.CancelledError)
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
    assert not stub.seen("/fail$") + stub.seen("/complete$")
    assert stub.seen("/heartbeat$")[-1].body["seen_version"] == 2


async def test_the_same_wait_without_a_stop_goes_on(client: AsyncClient, stub: Stub) -> None:
    """The control."""
    async with client.run("r"):
        await until(lambda: len(stub.seen("/heartbeat$")) > 2)
    assert stub.status == "COMPLETED"


@pytest.mark.invariant("I7")
async def test_a_stop_does_not_interrupt_a_send_and_cancels_after_its_report(
    client: AsyncClient, stub: Stub
) -> None:
    call, got, later = Call(held=True), [], Call()
    with pytest.raises(StopRequested):
        async with client.run("r") as run:
            sending = charging(run).send(call)
            letting_go = asyncio.create_task(_let_go_after_the_stop(stub, call))
            got.append(await sending)
            await letting_go
            await asyncio.sleep(60)
    assert (call.ended, got) == (["charge:7"], [{"id": "ch_1"}])
    assert outcomes(stub) == ["applied"]
    assert later.ended == []


async def _let_go_after_the_stop(stub: Stub, call: Call) -> None:
    await call.begun.wait()
    stub.stop()
    await until(lambda: any(c.body["seen_version"] == 2 for c in stub.seen("/heartbeat$")))
    await asyncio.sleep(0.05)
    assert call.ended == []
    call.go.set()


async def test_siblings_in_a_group_end_their_sends_before_the_run_is_cancelled(
    client: AsyncClient, stub: Stub
) -> None:
    calls = [Call(held=True) for _ in range(3)]
    with pytest.raises(StopRequested):
        async with client.run("r") as run, asyncio.TaskGroup() as group:
            for n, call in enumerate(calls):
                group.create_task(charging(run, f"k{n}").send(call, f"k{n}"))
            idle = group.create_task(asyncio.sleep(60))
            for call in calls:
                await call.begun.wait()
            stub.stop()
            await until(lambda: any(c.body["seen_version"] == 2 for c in stub.seen("/heartbeat$")))
            for call in calls:
                await asyncio.sleep(0.02)
                assert not idle.cancelled()
                call.go.set()
    assert [call.ended for call in calls] == [["k0"], ["k1"], ["k2"]]
    assert outcomes(stub) == ["applied"] * 3
    assert idle.cancelled()


async def test_a_refusal_in_a_task_of_a_group_ends_the_run_as_that_stop(
    client: AsyncClient, stub: Stub
) -> None:
    call, cleaned = Call(), []
    with pytest.raises(StopRequested, match="End at a safe point"):
        async with client.run("r") as run:
            stub.stop()
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(charging(run).send(call))
                    group.create_task(asyncio.sleep(60))
            finally:
                await asyncio.sleep(0.15)
                cleaned.append("done")
    assert (call.ended, cleaned) == ([], ["done"])


async def test_a_refusal_that_the_run_itself_got_is_followed_by_no_cancellation(
    client: AsyncClient, stub: Stub
) -> None:
    cleaned: list[str] = []
    with pytest.raises(StopRequested):
        async with client.run("r") as run:
            stub.stop()
            try:
                await charging(run).send(Call())
            finally:
                await asyncio.sleep(0.15)
                cleaned.append("done")
    assert cleaned == ["done"]


async def test_a_cancellation_by_somebody_else_is_neither_swallowed_nor_renamed(
    client: AsyncClient, stub: Stub
) -> None:
    async def agent() -> None:
        async with client.run("r"):
            await asyncio.sleep(60)

    task = asyncio.create_task(agent())
    await until(lambda: stub.seen("/heartbeat$"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()
    assert stub.seen("/fail$")[0].body["summary"] == "The agent ended with CancelledError."


async def test_both_at_once_stay_a_cancellation(client: AsyncClient, stub: Stub) -> None:
    """A stop that takes back more than its own would leave a cancelled task running."""

    async def agent() -> None:
        async with client.run("r"):
            stub.stop()
            try:
                await asyncio.sleep(60)
            finally:
                stopped.set()
                await asyncio.sleep(0.2)

    stopped = asyncio.Event()
    task = asyncio.create_task(agent())
    await stopped.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


@pytest.mark.parametrize("inside", [True, False])
async def test_a_timeout_around_or_inside_stays_a_timeout(
    client: AsyncClient, stub: Stub, inside: bool
) -> None:
    with pytest.raises(TimeoutError):
        if inside:
            async with client.run("r"), asyncio.timeout(0.1):
                await asyncio.sleep(60)
        else:
            async with asyncio.timeout(None) as limit, client.run("r"):
                limit.reschedule(asyncio.get_running_loop().time() + 0.1)
                await asyncio.sleep(60)
    assert stub.status == "FAILED"


async def test_a_stop_under_a_timeout_is_a_stop(client: AsyncClient, stub: Stub) -> None:
    with pytest.raises(StopRequested):
        async with asyncio.timeout(30), client.run("r"), asyncio.timeout(30):
            stub.stop()
            await asyncio.sleep(60)


async def test_an_agent_that_absorbs_the_cancellation_is_refused_and_completes_nothing(
    client: AsyncClient, stub: Stub
) -> None:
    call = Call()
    with pytest.raises(StopRequested):
        async with client.run("r") as run:
            stub.stop()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            with pytest.raises(StopRequested):
                await charging(run).send(call)
    assert (call.ended, stub.status) == ([], "CANCELLING")


async def test_of_two_runs_in_one_task_the_one_that_was_stopped_says_so(
    client: AsyncClient, server: StubServer, stub: Stub, buffer: Path
) -> None:
    """The inner run hears of no stop: its heart beats once a minute."""
    async with connected(server, buffer, heartbeat_s=60) as quiet:
        with pytest.raises(StopRequested) as stopped:
            async with client.run("outer"), quiet.run("inner"):
                stub.stop()
                await asyncio.sleep(60)
        assert stopped.value.__cause__ is not None
        assert stub.seen("/fail$")[0].path == "/runs/run_inner/fail"


async def test_when_both_are_stopped_no_cancellation_is_left_over(client: AsyncClient, stub: Stub) -> None:
    with pytest.raises(StopRequested):
        async with client.run("outer"), client.run("inner"):
            stub.stop()
            await asyncio.sleep(60)
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
    await asyncio.sleep(0)


async def test_a_later_version_of_a_running_run_cancels_as_that(client: AsyncClient, stub: Stub) -> None:
    with pytest.raises(StaleVersion):
        async with client.run("r"):
            stub.version = 2
            await asyncio.sleep(60)


async def test_a_step_is_finished_although_a_stop_cancelled_inside_of_it(
    client: AsyncClient, stub: Stub
) -> None:
    with pytest.raises(StopRequested):
        async with client.run("r") as run, run.step("s") as step:
            await step.effect(key="k", kind="x", none_because="t").send(Call(), "k")
            stub.stop()
            await asyncio.sleep(60)
    assert stub.steps["s"]["status"] == "PARTIAL"


async def test_checkpoint_raises_once_a_stop_is_known_also_in_a_thread(
    client: AsyncClient, stub: Stub
) -> None:
    raised: list[str] = []

    def loop(run: AsyncRun) -> None:
        with contextlib.suppress(StopRequested):
            while True:
                run.checkpoint()
        raised.append("in a thread")

    with pytest.raises(StopRequested):
        async with client.run("r") as run:
            run.checkpoint()
            stub.stop()
            looping = asyncio.create_task(asyncio.to_thread(loop, run))
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            await looping
            run.checkpoint()
            pytest.fail("it went on")
    assert raised == ["in a thread"]


async def test_heartbeats_end_with_the_run(client: AsyncClient, stub: Stub) -> None:
    async with client.run("r"):
        await until(lambda: stub.seen("/heartbeat$"))
    assert not [t for t in asyncio.all_tasks() if t.get_name() == "allstop-heartbeat"]


async def test_a_server_that_is_away_silences_the_heart_and_ends_nothing(
    server: StubServer, stub: Stub, buffer: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(server, buffer, give_up_s=1.0) as client, client.run("r"):
        client._address.__dict__["give_up_s"] = 0.03  # one try a beat
        stub.say("/heartbeat$", 503, "", times=5)
        await until(lambda: len(stub.seen("/heartbeat$")) > 8)
        client._address.__dict__["give_up_s"] = 1.0
    assert caplog.text.count("No heartbeat") == 1


async def test_no_server_no_run(buffer: Path) -> None:
    async with AsyncClient("http://127.0.0.1:9", "als_x", give_up_s=0.2, buffer=buffer) as client:
        with pytest.raises(GateUnavailable):
            async with client.run("r"):
                pytest.fail("the run began")


INTERRUPTED = """
import asyncio, sys
from allstop.aio import AsyncClient, AsyncRun
async def main():
    async with AsyncClient(sys.argv[1], "als_x", buffer=False) as client, client.run("r") as run:
        print("begun", flush=True)
        try:
            await asyncio.sleep(60)
        finally:
            print("cleaned", flush=True)
try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.kill
def test_ctrl_c_is_a_keyboard_interrupt_and_fails_the_run(server: StubServer, stub: Stub) -> None:
    environ = {**os.environ, "PYTHONPATH": str(CLIENT)}
    command = [sys.executable, "-c", INTERRUPTED, server.url]
    agent = subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert agent.stdout is not None
    assert agent.stdout.readline() == "begun\n"
    agent.send_signal(signal.SIGINT)
    assert agent.communicate(timeout=20)[0] == "cleaned\ninterrupted\n"
    assert stub.status == "FAILED"
