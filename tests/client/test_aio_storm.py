"""Cancellations and stops at any moment: no permit is left open, no call untold, no cancellation lost."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from pathlib import Path

from allstop import Refused
from allstop.aio import AsyncClient

from tests.client.aworld import charging, connected, outcomes, until
from tests.client.stub import Call as SeenCall
from tests.client.stub import Json, Reply, Stub, StubServer

ROUNDS = 40


class World:
    """The provider, and what happens at the n-th event of a run: a request to the server, or a call."""

    def __init__(self, stub: Stub) -> None:
        self.begun = self.ended = self.events = 0
        self.acts: list[tuple[int, Callable[[], object]]] = []
        self._loop = asyncio.get_running_loop()
        self._answer = stub.answer
        stub.answer = self.answer  # type: ignore[method-assign]

    async def __call__(self) -> str:
        self.begun += 1
        self.event()
        await asyncio.sleep(0.002)
        self.ended += 1
        return "paid"

    def answer(self, call: SeenCall, query: Json) -> tuple[Reply, bool]:
        if not call.path.endswith("/heartbeat"):
            self._loop.call_soon_threadsafe(self.event)
        return self._answer(call, query)

    def event(self) -> None:
        self.events += 1
        for act in [act for at, act in self.acts if at == self.events]:
            act()


async def one(client: AsyncClient, stub: Stub, world: World, number: int, chance: random.Random) -> str:
    """How the agent's task ended, stopped or cancelled at one of its events, or both."""
    cleaned = asyncio.Event()

    async def agent() -> str:
        try:
            async with client.run(f"r{number}") as run:
                for step in range(3):
                    await charging(run, f"{number}:{step}").send(world)
                    await asyncio.sleep(0)
            return "completed"
        finally:
            cleaned.set()

    task = asyncio.create_task(agent())
    what, first, second = number % 3, number // 3 % 8 + 2, chance.randrange(2, 10)
    world.events, world.acts = 0, [(first, stub.stop)] if what == 0 else [(first, task.cancel)]
    world.acts += [(second, stub.stop)] if what == 2 else []
    with contextlib.suppress(asyncio.CancelledError, Refused):
        await task
    assert cleaned.is_set()
    return "cancelled" if task.cancelled() else type(task.exception() or "").__name__


async def test_at_any_moment(server: StubServer, stub: Stub, buffer: Path) -> None:
    chance, seen = random.Random(7), []
    world = World(stub)
    async with connected(server, buffer, heartbeat_s=0.003, timeout_s=5, give_up_s=5) as client:
        for number in range(ROUNDS):
            stub.status, stub.version, stub.stop_row = "ACTIVE", 1, None
            seen.append(await one(client, stub, world, number, chance))
            await until(lambda: all(p["state"] != "OPEN" for p in stub.permits.values()))
    told = outcomes(stub)
    assert {"cancelled", "StopRequested"} <= set(seen) <= {"cancelled", "StopRequested", "str"}
    assert told.count("applied") + told.count("unknown") == world.begun
    assert told.count("unknown") == world.begun - world.ended
    assert len(told) == len(stub.permits)
    assert {"applied", "unknown", "not_sent"} <= set(told)
