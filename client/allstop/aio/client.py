"""Where an agent begins, in asyncio."""

from __future__ import annotations

import asyncio
import functools
from types import TracebackType

from allstop.aio.run import AsyncRun
from allstop.aio.threads import Threads
from allstop.aio.wire import AsyncWire
from allstop.base import BaseClient, registering_kind, stopping, target
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
        scope: str | None = None,
        session: str | None = None,
        policy: str | None = None,
        step_id: str | None = None,
        run_ids: list[str] | None = None,
        key: str | None = None,
        **words: object,
    ) -> Json:
        """Stop a run, by id or, also before it exists, by key; or one step, whose run goes on; or all runs
        of a session, a policy (its id or name), a list, or with scope="workspace" of the token's workspace.
        Returns the stop request.

        words: reason, note, mode; of a session, policy or workspace also review_at, ends_at, observe. Needs a
        token with stop:write. Raises StopNotRecorded unless the server confirmed it.
        """
        named = {"run_id": run_id, "run_key": run_key, "step_id": step_id, "run_ids": run_ids}
        where = target(scope, **named, session=session, policy=policy)
        return await self._async_wire.have(stopping(where, key, dict(words)))

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
