"""One model turn in asyncio; see allstop.turn."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from allstop.turn import Notes

if TYPE_CHECKING:
    from allstop.aio.gated import AsyncGated

P = ParamSpec("P")
T = TypeVar("T")


class AsyncTurn(Notes):
    """Made by `run.turn()` or `step.turn()`, for one `send`."""

    def __init__(self, owner: AsyncGated) -> None:
        super().__init__(owner.run.checkpoint)
        self._owner = owner

    async def send(self, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """`await fn(*args, **kwargs)` if the gate permits it now; `fn` may use this turn to note what it has.

        A stop that comes meanwhile is raised by `partial`. However it is cut off, also by a cancellation,
        what it has noted is told.
        """
        call: Callable[[], Any] = functools.partial(fn, *args, **kwargs)
        value: T = await self._owner.asked("model_turn", call, self.judge)
        return value
