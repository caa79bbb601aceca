"""Sync tools in threads: a thread can't be interrupted, so what it did is told when it returns."""

# ruff: noqa: PT012 - what raises is the end of the run's own block

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from allstop import StopRequested
from allstop.aio import AsyncClient

from tests.client.aworld import Call, charging, connected, outcomes, until, until_cut
from tests.client.stub import Stub, StubServer
from tests.client.test_buffer import left

CLIENT = Path(__file__).parents[2] / "client"


@pytest.fixture
async def client(server: StubServer, buffer: Path) -> AsyncIterator[AsyncClient]:
    async with connected(server, buffer) as client:
        yield client


class Tool:
    """A sync function that lasts until it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go = threading.Event()
        self.made = 0

    def __call__(self) -> str:
        self.begun.set()
        assert self.go.wait(20)
        self.made += 1
        return threading.current_thread().name


async def test_a_tool_looks_calls_and_reports_in_one_thread_while_the_loop_goes_on(
    client: AsyncClient, stub: Stub
) -> None:
    tool, turns = Tool(), 0
    async with client.run("r") as run:
        sending = asyncio.create_task(charging(run).call_in_thread(tool))
        while not tool.begun.is_set() or turns < 5:
            turns += 1
            await asyncio.sleep(0.01)
        assert (len(stub.seen("/permits/", "GET")), outcomes(stub)) == (1, [])
        tool.go.set()
        assert await sending == "allstop-tool"
    assert outcomes(stub) == ["applied"]
    assert stub.status == "COMPLETED"


async def test_it_waits_for_no_thread_of_a_pool(client: AsyncClient, stub: Stub) -> None:
    """A look that is followed by a wait in a queue would be an old look."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    blocker = threading.Event()
    blocked = asyncio.get_running_loop().run_in_executor(None, blocker.wait)
    async with client.run("r") as run:
        async with asyncio.timeout(10):
            assert await charging(run).call_in_thread(lambda: 7) == 7
            assert await run.in_thread(lambda text: text, "read") == "read"
        blocker.set()
        await blocked
    assert outcomes(stub) == ["applied", "applied"]
    assert [s["status"] for s in stub.steps.values()] == ["SUCCEEDED"]


async def test_a_stop_waits_for_the_thread_as_long_as_its_drain_does(client: AsyncClient, stub: Stub) -> None:
    tool, got = Tool(), []

    async def stop_then_let_go(tool: Tool) -> None:
        await until(tool.begun.is_set)
        stub.stop()
        await until(lambda: any(c.body["seen_version"] == 2 for c in stub.seen("/heartbeat$")))
        await asyncio.sleep(0.1)
        tool.go.set()

    with pytest.raises(StopRequested):
        async with client.run("r") as run:
            stopping = asyncio.create_task(stop_then_let_go(tool))
            got.append(await charging(run).call_in_thread(tool))
            await stopping
            await asyncio.sleep(60)
    assert (got, outcomes(stub)) == (["allstop-tool"], ["applied"])


@pytest.mark.parametrize("status", ["CANCELLING_TIMEOUT", "ABANDONED"])
async def test_a_tool_that_outlives_the_stop_is_settled_by_its_late_report_after_the_run_was_left(
    client: AsyncClient, stub: Stub, status: str
) -> None:
    tool = Tool()
    with pytest.raises(StopRequested):
        async with client.run("r") as run:
            sending = asyncio.create_task(charging(run).call_in_thread(tool))
            await until(tool.begun.is_set)
            stub.stop(status)
            await sending
    assert (tool.made, outcomes(stub)) == (0, [])
    next(iter(stub.permits.values()))["state"] = "LOST"
    stub.effects["charge:7"]["settlement"] = "UNKNOWN"
    with pytest.raises((asyncio.CancelledError, StopRequested)):
        sending.cancel()
        await sending
    tool.go.set()
    await until(lambda: outcomes(stub) == ["applied"])
    assert stub.effects["charge:7"]["settlement"] == "CONFIRMED"
    assert tool.made == 1


async def test_cancelled_from_outside_the_run_goes_on_and_the_thread_reports_late(
    client: AsyncClient, stub: Stub
) -> None:
    tool = Tool()
    async with client.run("r") as run:
        await until_cut(charging(run).call_in_thread(tool), tool.begun.is_set)
        token = next(iter(stub.permits.values()))["claim_token"]
        await until(lambda: any(c.body["claim_tokens"] == [token] for c in stub.seen("/heartbeat$")))
        tool.go.set()
        await until(lambda: outcomes(stub) == ["applied"])
    assert stub.status == "COMPLETED"


async def test_cancelled_before_its_thread_has_begun_nothing_is_sent(client: AsyncClient, stub: Stub) -> None:
    tool = Tool()
    stub.slow("/permits/", 0.2, method="GET")
    async with client.run("r") as run:
        sending = asyncio.create_task(charging(run).call_in_thread(tool))
        await until(lambda: stub.seen("/permits/", "GET"))
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await until(lambda: outcomes(stub))
    assert (tool.begun.is_set(), outcomes(stub)) == (False, ["not_applied"])


async def test_a_client_that_was_closed_meanwhile_still_hears_the_report(
    server: StubServer, stub: Stub, buffer: Path
) -> None:
    tool = Tool()
    async with connected(server, buffer) as client:
        with pytest.raises(ValueError, match="the agent"):
            async with client.run("r") as run:
                await until_cut(charging(run).call_in_thread(tool), tool.begun.is_set)
                raise ValueError("the agent has had enough")
    assert outcomes(stub) == []
    tool.go.set()
    await until(lambda: outcomes(stub) == ["applied"])
    await until(lambda: not any(t.name == "allstop-tool" for t in threading.enumerate()))
    assert left(buffer) == []


async def test_async_calls_beside_a_thread_go_on(client: AsyncClient, stub: Stub) -> None:
    tool = Tool()
    async with client.run("r") as run, asyncio.TaskGroup() as group:
        group.create_task(charging(run, "a").call_in_thread(tool))
        await charging(run, "b").send(Call(), "b")
        assert outcomes(stub) == ["applied"]
        tool.go.set()
    assert outcomes(stub) == ["applied", "applied"]


LEAVING = """
import asyncio, sys, threading, time
from allstop.aio import AsyncClient
begun = threading.Event()
def tool():
    begun.set()
    time.sleep(1.0)
async def main():
    settings = {"report_for_s": 0.3, "give_up_s": 0.3, "buffer": sys.argv[2]}
    async with AsyncClient(sys.argv[1], "als_x", **settings) as client:
        async with client.run("r") as run:
            effect = run.effect(key="k", kind="x", none_because="a test")
            call = asyncio.create_task(effect.call_in_thread(tool))
            while not begun.is_set():
                await asyncio.sleep(0.01)
            call.cancel()
            await call
try:
    asyncio.run(main())
except asyncio.CancelledError:
    print("the loop is gone", flush=True)
"""


@pytest.mark.kill
@pytest.mark.parametrize("server_is_there", [True, False])
def test_the_interpreter_ends_after_the_tool_has_reported_or_its_report_is_on_disk(
    server: StubServer, stub: Stub, buffer: Path, server_is_there: bool
) -> None:
    environ = {**os.environ, "PYTHONPATH": str(CLIENT)}
    if not server_is_there:
        stub.say("/report$", 503, "", times=500)
    command = [sys.executable, "-c", LEAVING, server.url, str(buffer)]
    agent = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)
    assert agent.stdout is not None
    assert agent.stdout.readline() == "the loop is gone\n"
    left_at = time.monotonic()
    assert agent.wait(20) == 0
    agent.stdout.close()
    assert time.monotonic() - left_at > 0.3
    assert (stub.effects["k"]["settlement"] == "CONFIRMED") is server_is_there
    assert len(left(buffer)) == (0 if server_is_there else 1)
