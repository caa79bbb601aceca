"""A step, in asyncio."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING

from allstop.aio.gated import AsyncGated
from allstop.aio.permit import AsyncPermit
from allstop.aio.wire import AsyncWire
from allstop.claimed import Claimed
from allstop.link import Link
from allstop.permit import Permit

if TYPE_CHECKING:
    from allstop.aio.run import AsyncRun


class AsyncStep(Claimed, AsyncGated):
    """Claimed on entry, finished on exit with the result that its calls add up to, given back if there were
    none. Neither is interrupted by a stop.
    """

    def __init__(
        self,
        run: AsyncRun,
        link: Link,
        wire: AsyncWire,
        *,
        key: str,
        name: str | None = None,
        op_class: str = "external_write",
        held: tuple[str, str] = ("", ""),
    ) -> None:
        super().__init__(run, link, key=key, name=name, op_class=op_class, held=held)
        self.run = run
        self._wire = wire

    def step_of(self, permit: AsyncPermit) -> AbstractAsyncContextManager[AsyncGated]:
        """This step goes on after the call."""
        return contextlib.nullcontext(self)

    def claimed_with(self, permit: Permit) -> None:
        """This step goes on after the call."""

    async def __aenter__(self) -> AsyncStep:
        with self.run.scope.send():
            claim = self._wire.start(self._wire.have(self.claiming()))
            try:
                await self.run.hear(asyncio.shield(claim))
            except asyncio.CancelledError:
                self._wire.leave(self._wire.start(self._give_back(claim)))
                raise
        return self

    async def _give_back(self, claim: asyncio.Task[None]) -> None:
        """Whoever wanted it was cancelled while it was being claimed."""
        await asyncio.wait({claim})
        if self.claim_token:
            await self._wire.have(self.leaving(asyncio.CancelledError()))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self.run.scope.send():
            await self._wire.settled(self._link.give_up_s)  # a report that comes before the finish
            await self._wire.settle(self.leaving(error))
