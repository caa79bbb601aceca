"""Cancellations and stops at any moment: no permit is left open, no call untold, no cancellation lost."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path

from allstop import Refused
from allstop.aio import AsyncClient

from tests.client.aworld import charging, connected, outcomes, until
from tests.client.stub import Stub, StubServer

ROUNDS = 40


class Ledger:
    """What the outside world saw."""

    def __init__(self, chance: random.Random) -> None:
        self.begun = self.ended = 0
        self._chance = chance

    async def __call__(self) -> str:
        self.begun += 1
        await asyncio.sleep(self._chance.uniform(0, 0.004))
        self.ended += 1
        return "paid"


async def one(client: AsyncClient, stub: Stub, ledger: Ledger, number: int, chance: random.Random) -> str:
    """How the agent's task ended, cancelled at a random moment, stopped at another, or both."""
    cleaned = asyncio.Event()

    async def agent() -> str:
        try:
            async with client.run(f"r{number}") as run:
                for step in range(3):
                    await charging(run, f"{number}:{step}").send(ledger)
                    await asyncio.sleep(0)
            return "completed"
        finally:
            cleaned.set()

    task = asyncio.create_task(agent())
    loop, what = asyncio.get_running_loop(), number % 3
    if what != 0:
        loop.call_later(chance.uniform(0, 0.04), stub.stop)
    if what != 1:
        loop.call_later(chance.uniform(0, 0.04), task.cancel)
    with contextlib.suppress(asyncio.CancelledError, Refused):
        await task
    assert cleaned.is_set()
    return "cancelled" if task.cancelled() else type(task.exception() or "").__name__


async def test_at_any_moment(server: StubServer, stub: Stub, buffer: Path) -> None:
    chance, seen = random.Random(7), []
    ledger = Ledger(chance)
    async with connected(server, buffer, heartbeat_s=0.003, timeout_s=5, give_up_s=5) as client:
        for number in range(ROUNDS):
            stub.status, stub.version, stub.stop_row = "ACTIVE", 1, None
            seen.append(await one(client, stub, ledger, number, chance))
            await until(lambda: all(p["state"] != "OPEN" for p in stub.permits.values()))
    told = outcomes(stub)
    assert {"cancelled", "StopRequested"} <= set(seen) <= {"cancelled", "StopRequested", "str"}
    assert told.count("applied") + told.count("unknown") == ledger.begun
    assert told.count("unknown") == ledger.begun - ledger.ended
    assert len(told) == len(stub.permits)
    assert {"applied", "unknown", "not_sent"} <= set(told)
