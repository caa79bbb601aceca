"""Where an agent begins, in asyncio."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Mapping
from types import TracebackType

from allstop import look_ups
from allstop.aio.run import AsyncRun
from allstop.aio.threads import Threads
from allstop.aio.wire import AsyncWire
from allstop.base import BaseClient, registering_kind, stopping, target
from allstop.errors import GateUnavailable, Json
from allstop.look_ups import AsyncLook, LookUp, Seen

log = logging.getLogger("allstop")


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

    async def answer_look_ups(
        self,
        kinds: Mapping[str, AsyncLook],
        *,
        every_s: float | None = None,
        until: asyncio.Event | None = None,
    ) -> int:
        """Answer what is due of these kinds, each with its function; returns how many answers were taken.

        Once, or again each `every_s` seconds until the event is set (without one: until it is cancelled). In
        a loop a server that is away is waited for. A function that raises has seen nothing: "can't tell".
        Needs a token with runs:write, and kinds with lookup {"poll": true}.
        """
        names, done = look_ups.known(kinds), 0
        until = until or asyncio.Event()
        while True:
            try:
                for name in names:
                    done += await self._answer_due(name, kinds[name])
            except GateUnavailable as error:
                if every_s is None:
                    raise
                log.warning("No look-up is answered for now: %s", error)
            if every_s is None or await _set_within(until, every_s):
                return done

    async def _answer_due(self, kind: str, look: AsyncLook) -> int:
        done = 0
        for one in await self._async_wire.have(look_ups.taking(kind)):
            seen = await _seen(one, look)
            done += await self._async_wire.have(look_ups.telling(one, seen))
        return done

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


async def _seen(one: LookUp, look: AsyncLook) -> Seen:
    try:
        seen = look(one)
        return await seen if inspect.isawaitable(seen) else seen
    except Exception as error:
        return look_ups.failed(one, error)


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True
