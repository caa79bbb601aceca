"""The wire of `allstop.wire`, waiting in the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2

from allstop.errors import GateUnavailable
from allstop.talk import Answer, Ask, Do, T, Talk
from allstop.wire import Address, Patience, request

log = logging.getLogger("allstop")

# How long somebody who was cancelled waits for the report of what they did.
GRACE_S = 1.0


class AsyncWire:
    """The connection of one AsyncClient, for the event loop that it is used in."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._disk = ThreadPoolExecutor(1, "allstop-disk")
        self._http = httpx2.AsyncClient(base_url=address.base_url, headers=address.headers)
        self._going: set[asyncio.Task[Any]] = set()
        self._left: set[asyncio.Task[Any]] = set()

    async def close(self) -> None:
        """Close the connections."""
        self._disk.shutdown(wait=False)
        await self._http.aclose()

    async def send(self, ask: Ask) -> Answer:
        """Ask once, however often it is tried. Raises as Wire.send does."""
        patience = Patience(ask, self.address)
        while patience.left() > 0:
            try:
                response = await self._http.request(**request(ask, patience))
            except httpx2.RequestError as error:
                patience.missed(error)
            except RuntimeError as error:  # a beat that was still waiting when its client was closed
                if not self._http.is_closed:
                    raise
                raise GateUnavailable("This client was closed.") from error
            else:
                if answer := patience.taken(response):
                    return answer
            await asyncio.sleep(patience.pause())
        raise patience.over()

    async def have(self, talk: Talk[T]) -> T:
        """Have a conversation, in this task. What an await raises, a cancellation too, is raised in it."""
        try:
            item = next(talk)
            while True:
                try:
                    got = await self._one(item)
                except BaseException as error:
                    item = talk.throw(error)
                else:
                    item = talk.send(got)
        except StopIteration as end:
            value: T = end.value
            return value

    async def _one(self, item: Ask | Do) -> object:
        if isinstance(item, Ask):
            return await self.send(item)
        return await asyncio.get_running_loop().run_in_executor(self._disk, item.work)

    # -- what is not interrupted

    async def settle(self, talk: Talk[T]) -> T:
        """Have a conversation to its end, even if whoever waits for it is cancelled meanwhile."""
        task = self.start(self.have(talk))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self.leave(task)
            raise

    async def settle_soon(self, talk: Talk[None]) -> None:
        """The same for somebody who was cancelled: they wait a moment, then it goes on without them."""
        task = self.start(self.have(talk))
        self.leave(task)
        await asyncio.wait({task}, timeout=GRACE_S)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start something that does not end with whoever waits for it."""
        task = asyncio.create_task(work)
        self._going.add(task)
        task.add_done_callback(self._ended)
        return task

    def leave(self, task: asyncio.Task[Any]) -> None:
        """Nobody waits for it any more."""
        if not task.done():
            self._left.add(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._going.discard(task)
        self._left.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.debug("Ended with %r: %s", error, task.get_name())

    async def settled(self, within_s: float) -> None:
        """Wait for what was left behind."""
        if self._left:
            await asyncio.wait(self._left, timeout=within_s)
