"""The outside world of the async tests, and clients of the stub."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from allstop.aio import AsyncClient, AsyncEffect, AsyncRun

from tests.client.stub import Stub, StubServer


class Call:
    """Stands for a provider's API: each call lasts until it is let go, and counts how it ended."""

    def __init__(self, *, held: bool = False, raises: BaseException | None = None) -> None:
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.ended: list[str] = []
        self._raises = raises
        if not held:
            self.go.set()

    async def __call__(self, key: str = "charge:7") -> dict[str, str]:
        self.begun.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        if self._raises is not None:
            raise self._raises
        self.ended.append(key)
        return {"id": "ch_1"}


def connected(server: StubServer, buffer: Path | bool, **settings: Any) -> AsyncClient:
    quick = {"timeout_s": 5.0, "give_up_s": 5.0, "report_for_s": 5.0, "heartbeat_s": 0.05}
    return AsyncClient(server.url, "als_x", worker="w-1", buffer=buffer, **{**quick, **settings})


def charging(run: AsyncRun, key: str = "charge:7") -> AsyncEffect:
    return run.effect(key=key, kind="bank.charge", body='{"amount": 100}', none_because="a test")


def outcomes(stub: Stub) -> list[str]:
    return [c.body["outcome"] for c in stub.seen("/report$")]


async def until_cut(work: Coroutine[Any, Any, Any], begun: Callable[[], object]) -> None:
    """Wait for it until something has begun, and then no longer, as a timeout would have it."""
    task = asyncio.create_task(work)
    await until(begun)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def until(true: Callable[[], object], within_s: float = 10) -> None:
    end = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end, "it did not come true"
        await asyncio.sleep(0.005)
