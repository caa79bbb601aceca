"""Where an agent begins, in asyncio."""

from __future__ import annotations

import asyncio
import functools
from types import TracebackType

from allstop.aio.run import AsyncRun
from allstop.aio.threads import Threads
from allstop.aio.wire import AsyncWire
from allstop.base import BaseClient, registering_kind, stopping
from allstop.errors import Json


class AsyncClient(BaseClient[AsyncRun]):
    """A connection to one Allstop server, for one event loop; see BaseClient for its settings.

    Threads and reports that were left behind use a connection of their own, which blocks only its thread.
    """

    @functools.cached_property
    def _async_wire(self) -> AsyncWire:
        return AsyncWire(self._address)

    @functools.cached_property
    def _threads(self) -> Threads:
        return Threads(self._close)

    def _attach(self, spec: Json) -> AsyncRun:
        begin = functools.partial(self._courier.start, self._send)
        return AsyncRun(self._link, self._async_wire, self._send, self._threads, begin, spec)

    async def request_stop(
        self,
        *,
        run_id: str | None = None,
        run_key: str | None = None,
        key: str | None = None,
        **words: object,
    ) -> Json:
        """Stop a run, by id or, also before it exists, by key. Returns the stop request.

        words: reason, note, mode. Needs a token with stop:write. Raises StopNotRecorded unless the server
        confirmed it.
        """
        return await self._async_wire.have(stopping(run_id, run_key, key, dict(words)))

    async def put_kind(self, name: str, definition: Json) -> Json:
        """Register or replace an effect kind with its six answers. Needs a token with kinds:write."""
        return await self._async_wire.have(registering_kind(name, definition))

    async def close(self) -> None:
        """Close the connections. Runs must have ended; a thread that goes on keeps what it needs."""
        await self._async_wire.settled(self._address.give_up_s)
        await self._async_wire.close()
        await asyncio.to_thread(self._courier.close)
        self._threads.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
