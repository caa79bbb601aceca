"""What a run and a step share in asyncio: effects, model turns and reads, each behind the gate."""

from __future__ import annotations

import functools
import threading
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from allstop.aio.effect import AsyncEffect
from allstop.aio.permit import AsyncPermit
from allstop.aio.threads import Abandoned
from allstop.aio.turn import AsyncTurn
from allstop.claimed import Claimed
from allstop.declared import Declaring, from_arguments
from allstop.errors import Json, Refused, Withheld
from allstop.held import Judge
from allstop.outcome import Outcome, plain_outcome
from allstop.permit import Permit

if TYPE_CHECKING:
    from allstop.aio.run import AsyncRun

P = ParamSpec("P")
T = TypeVar("T")


class AsyncGated(Declaring[AsyncEffect]):
    """Everything here asks the gate first. `run` is the run that it belongs to."""

    run: AsyncRun

    @abstractmethod
    def step_of(self, permit: AsyncPermit) -> AbstractAsyncContextManager[AsyncGated]:
        """The step of a permit without an effect: ended with the call if it was registered for it."""

    @abstractmethod
    def claimed_with(self, permit: Permit) -> Claimed | None:
        """The same for a thread, which ends it by itself. None if the step goes on after the call."""

    def _declared(self, spec: Json, judge: Judge) -> AsyncEffect:
        return AsyncEffect(self, spec, judge)

    def gated(
        self,
        *,
        key: str | Callable[..., str],
        kind: str,
        target: str | Callable[..., str] | None = None,
        title: str | Callable[..., str] | None = None,
        body: str | Callable[..., str] | None = None,
        **settings: Any,
    ) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Awaitable[Any]]]:
        """`effect` as a decorator of an async function: each call of it is one send.

        key, target, title, body may be functions of the call's own arguments. `settings`: the rest of
        `effect`.
        """
        texts = {"key": key, "target": target, "title": title, "body": body}

        def decorate(fn: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[Any]]:
            @functools.wraps(fn)
            async def gated_call(*args: P.args, **kwargs: P.kwargs) -> Any:
                made = from_arguments(texts, args, kwargs)
                return await self.effect(kind=kind, **made, **settings).send(fn, *args, **kwargs)

            return gated_call

        return decorate

    async def model_turn(self, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run one model turn behind the gate. Let `fn` return an Outcome to report its usage."""
        return await self.ask("model_turn", fn, *args, **kwargs)

    def turn(self) -> AsyncTurn:
        """One model turn that notes what it makes and spends: `await turn.send(stream, prompt, turn)`."""
        return AsyncTurn(self)

    async def read(self, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run one read behind the gate."""
        return await self.ask("read", fn, *args, **kwargs)

    async def ask(
        self, op_class: str, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `fn` under a permit that belongs to no effect. Its return value is not stored."""
        value: T = await self.asked(op_class, functools.partial(fn, *args, **kwargs), plain_outcome)
        return value

    async def asked(self, op_class: str, call: Callable[[], Any], judge: Judge) -> Any:
        """`ask`, judged by `judge`."""
        with self.run.scope.send():
            answer, asked_at = await self._ask_for(op_class)
            permit = self.run.permit_in(answer, asked_at)
            async with self.step_of(permit) as step:
                return await step.spend(permit, call, judge, keep_result=False)

    async def in_thread(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run one read with a sync function, in a thread."""
        return await self.ask_in_thread("read", fn, *args, **kwargs)

    async def ask_in_thread(
        self, op_class: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """`ask` for a sync function, in a thread that looks, calls and reports; see AsyncEffect."""
        with self.run.scope.thread():
            answer, asked_at = await self._ask_for(op_class)
            permit, call = self.run.thread_permit_in(answer, asked_at), functools.partial(fn, *args, **kwargs)
            return await self.spend_in_thread(permit, call, plain_outcome, keep_result=False)

    async def _ask_for(self, op_class: str) -> tuple[Json, float]:
        return await self.run.ask_gate(f"runs/{self.run.id}/permits", self._permit_body(op_class))

    # -- using a permit, with its claim kept alive by the heartbeat

    async def spend(
        self, permit: AsyncPermit, call: Callable[[], Any], judge: Judge, *, keep_result: bool
    ) -> Any:
        """For one call in this task."""
        with self.run.holding(permit.claim_token):
            try:
                return await permit.spend(call, judge, keep_result=keep_result)
            except Refused as refusal:
                self.run.note(refusal)
                raise
            except Withheld as refusal:
                self.run.note_step(refusal, permit.step_id)
                raise
            finally:
                self.note_outcome(permit.outcome)

    async def spend_in_thread(
        self, permit: Permit, call: Callable[[], T], judge: Judge, *, keep_result: bool
    ) -> T:
        """For one call in a thread, which does all of it: the look belongs directly before the call."""
        claimed = None if keep_result else self.claimed_with(permit)

        def work(gone: threading.Event) -> T:
            begin, judge_it = _unless(gone, call), functools.partial(_judged_begun, judge)
            with self.run.holding(permit.claim_token):
                try:
                    value = permit.spend(begin, judge_it, keep_result=keep_result)
                except BaseException as error:
                    self._end_there(permit, claimed, error)
                    raise
                self._end_there(permit, claimed, None)
                return value

        try:
            return await self.run.threads.run(work)
        except Refused as refusal:
            self.run.note(refusal)
            raise
        except Withheld as refusal:
            self.run.note_step(refusal, permit.step_id)
            raise

    def _end_there(self, permit: Permit, claimed: Claimed | None, error: BaseException | None) -> None:
        (claimed or self).note_outcome(permit.outcome)
        if claimed is not None:
            self.run.have_in_thread(claimed.leaving(error))


def _unless(gone: threading.Event, call: Callable[[], T]) -> Callable[[], T]:
    def begin() -> T:
        if gone.is_set():
            raise Abandoned("Nobody waits for this call any more; it was not made.")
        return call()

    return begin


def _judged_begun(judge: Judge, value: object) -> Outcome:
    if isinstance(value, Abandoned):
        return Outcome("not_applied", detail=str(value))
    return judge(value)
