"""A permit, spent in one task: look, then call, then report."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from allstop.aio.wire import AsyncWire
from allstop.errors import Json
from allstop.held import Held, Judge, judged
from allstop.link import Link
from allstop.outcome import Outcome

T = TypeVar("T")


class AsyncPermit(Held):
    """wire: how the server is asked and told."""

    def __init__(self, link: Link, wire: AsyncWire, data: Json, *, asked_at: float) -> None:
        super().__init__(link, data, asked_at=asked_at)
        self._wire = wire

    async def spend(
        self, call: Callable[[], Awaitable[T] | T], judge: Judge, *, keep_result: bool
    ) -> T | Any:
        """Look, then call at once in this very task, then report. `keep_result`: also store a plain return
        value.

        Raises as Permit.spend does. A cancellation from outside reaches the call; what it did is then
        unknown, is reported as that, and the cancellation goes on.
        """
        await self._look()
        try:
            value = call()  # nothing is awaited between the look's answer and this
            if inspect.isawaitable(value):
                value = await value
        except BaseException as error:
            self.outcome = judged(judge, error)
            await self._report_failure(self.outcome, error)
            raise
        self.outcome = judged(judge, value)
        await self._report(self.outcome, value, keep_result=keep_result or isinstance(value, Outcome))
        return value

    async def _look(self) -> None:
        try:
            await self._wire.have(self.opening())
        except asyncio.CancelledError as error:
            await self._wire.settle_soon(self.reporting_not_sent(error))
            raise
        except BaseException as error:
            await self._wire.settle(self.reporting_not_sent(error))
            raise
        if self.left() <= 0:
            await self._wire.settle(self.reporting_too_late())

    async def _report(self, outcome: Outcome, value: object, *, keep_result: bool) -> None:
        await self._wire.settle(self.reporting(outcome, value, keep_result=keep_result))

    async def _report_failure(self, outcome: Outcome, raised: BaseException) -> None:
        talk = self.reporting_failure(outcome, raised)
        if isinstance(raised, asyncio.CancelledError):
            await self._wire.settle_soon(talk)
        else:
            await self._wire.settle(talk)
