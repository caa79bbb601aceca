"""What is tidied up when a run is stopped, in asyncio; see allstop.cleanup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allstop.aio.step import AsyncStep
from allstop.cleanup import Declarations, Declared

if TYPE_CHECKING:
    from allstop.aio.run import AsyncRun
    from allstop.aio.wire import AsyncWire
    from allstop.link import Link


class AsyncCleanups(Declarations):
    """The declared cleanups of one run."""

    def __init__(self, run: AsyncRun, link: Link, wire: AsyncWire) -> None:
        super().__init__(run, link)
        self._run, self._wire = run, wire

    async def carry_out(self) -> None:
        """The run is stopped: make the calls, the last declared first, each behind the cleanup guard."""
        for one in reversed(self._take()):
            with self._turn(one):
                await self._one(one)

    async def _one(self, one: Declared) -> None:
        step = AsyncStep(self._run, self._link, self._wire, key=one.key, op_class=one.op_class, held=one.held)
        async with step:
            if one.op_class == "read":
                await step.read(one.call)
            else:
                await step.effect(op_class=one.op_class, **one.words).send(one.call)
