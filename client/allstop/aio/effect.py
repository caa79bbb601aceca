"""One effect, in asyncio: declared, permitted, looked at again, sent and reported, all inside `send()`."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from allstop.declared import ASK_AGAIN_S, Declared
from allstop.errors import Json
from allstop.held import Judge, now
from allstop.outcome import Outcome

if TYPE_CHECKING:
    from allstop.aio.gated import AsyncGated


class AsyncEffect(Declared):
    """Made by `run.effect(…)` or `step.effect(…)`. `skipped`: the last send found the key settled."""

    _owner: AsyncGated

    def __init__(self, owner: AsyncGated, spec: Json, judge: Judge) -> None:
        super().__init__(spec, judge)
        self._owner = owner

    async def send(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """`await fn(*args, **kwargs)` if, and only if, the gate permits it now. Returns what came of it.

        Raises as Effect.send does. A stop that comes meanwhile cancels the run after the report. A sync `fn`
        would hold up the event loop: use `call_in_thread`.
        """
        run = self._owner.run
        with run.scope.send():
            answer, asked_at = await self._ask()
            if answer.get("permit") is None:
                return self._known(answer)
            permit, call = run.permit_in(answer, asked_at), functools.partial(fn, *args, **kwargs)
            return _plain(await self._owner.spend(permit, call, self._judge, keep_result=True))

    async def call_in_thread(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """The same for a sync `fn`, in a thread that looks, calls and reports by itself.

        A thread can't be interrupted. If this task is cancelled meanwhile, the thread goes on: the effect is
        unknown as soon as the lease ends, and is settled when the thread returns and reports, even after the
        run's block.
        """
        run = self._owner.run
        with run.scope.thread():
            answer, asked_at = await self._ask()
            if answer.get("permit") is None:
                return self._known(answer)
            permit, call = run.thread_permit_in(answer, asked_at), functools.partial(fn, *args, **kwargs)
            return _plain(await self._owner.spend_in_thread(permit, call, self._judge, keep_result=True))

    async def _ask(self) -> tuple[Json, float]:
        """The gate's answer; asked again while people decide, as long as the caller wants to wait."""
        since, run = now(), self._owner.run
        answer, asked_at = await self._ask_once()
        while self._goes_on_waiting(answer, since):
            await asyncio.sleep(ASK_AGAIN_S)
            run.checkpoint()
            if await run.had(self._owner.coming_back()):
                answer, asked_at = await self._ask_once()
        return answer, asked_at

    async def _ask_once(self) -> tuple[Json, float]:
        self._tried = True
        run, step = self._owner.run, self._owner.step_ref(self.key, self._spec.get("title"))
        answer, asked_at = await run.ask_gate(f"runs/{run.id}/effects", {**self._spec, "step": step})
        return self._noted(answer), asked_at

    async def retry(self, *, delay_s: float = 0, max_tries: int | None = None) -> Json:
        """Ask for another try in `delay_s`, as Effect.retry does."""
        run = self._owner.run
        return await run.had(run.posting(*self._retrying(delay_s, max_tries)))

    async def __aenter__(self) -> AsyncEffect:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._check_sent(error)


def _plain(value: Any) -> Any:
    return value.result if isinstance(value, Outcome) else value
