"""A run as its agent sees it in asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

from allstop.aio.cleanup import AsyncCleanups
from allstop.aio.gated import AsyncGated
from allstop.aio.permit import AsyncPermit
from allstop.aio.scope import StopScope
from allstop.aio.step import AsyncStep
from allstop.aio.threads import Threads
from allstop.aio.wire import AsyncWire
from allstop.attached import Attached
from allstop.claimed import Claimed
from allstop.errors import GateUnavailable, Json, NotQuiet, Refused, Rejected
from allstop.heartbeat import MISSED, Silence
from allstop.link import Link, Send
from allstop.outcome import Outcome, plain_outcome
from allstop.permit import Judge, Permit
from allstop.talk import Do, T, Talk, carry_out

log = logging.getLogger("allstop")

# While a run is in one of these, its stop waits for the reports of what was under way.
_WAITED_FOR = ("ACTIVE", "PAUSING", "CANCELLING")


class AsyncRun(Attached, AsyncGated):
    """Registered or attached to on entry. On exit: completed after a clean body, failed after an exception.

    A stop cancels the task that entered it: at its next await, never inside of a send, and once. Cleanup runs
    as after any cancellation, and StopRequested is raised at the end of the block. A cancellation by anybody
    else goes through as it came.
    """

    def __init__(
        self, link: Link, wire: AsyncWire, send: Send, threads: Threads, begin: Callable[[], None], spec: Json
    ) -> None:
        super().__init__(link, spec)
        self.run = self
        self.threads = threads
        self.scope = StopScope()
        self._wire = wire
        self._send = send
        self._begin = begin
        self._silence = Silence()
        self._heart: asyncio.Task[None] | None = None
        self._cleanups = AsyncCleanups(self, link, wire)

    # -- beginning and end

    async def __aenter__(self) -> AsyncRun:
        await self._wire.have(_done(self._begin))
        await self._wire.have(self.registering())
        self.scope.enter()
        self._heart = asyncio.create_task(self._beat_on(), name="allstop-heartbeat")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        halted = self._halted_by(error, alone=self.scope.leave())
        try:
            await self._wire.settled(self._link.give_up_s)
            if error is None and self._halt is None:
                await self._wire.have(self._cleanups.giving_back())
            await self._wire.have(self.leaving(halted or error))
        finally:
            await self._tidy_up()
            await self._end_heart()
            await self._wire.have(self.confirming())
        if halted is not None:
            raise halted from error

    async def _tidy_up(self) -> None:
        """After a stop: what was declared for it, at the version of the stop, which is what the gate asks."""
        if self.take_on_the_stop():
            await self._cleanups.carry_out()

    def _halted_by(self, error: BaseException | None, *, alone: bool) -> Refused | None:
        """The refusal behind what ended the block, if that was our cancellation or refusals in its tasks.

        A group of refusals is no cancellation, so nobody's is lost if it becomes the one refusal that it is.
        """
        if self._halt is None:
            return None
        ours = alone and self.scope.asked and isinstance(error, asyncio.CancelledError)
        return self.halted() if ours or _only_refusals(error) else None

    async def complete(self, summary: str | None = None) -> None:
        """Say that the work is done. Raises StopRequested if a stop came first, NotQuiet if a step is
        held. What Allstop itself is sending of the run is waited for, as long as give_up_s lasts.
        """
        await self.hear(self._wire.have(self.ending("complete", summary)))

    async def fail(self, summary: str | None = None) -> None:
        """Say that the run ends without its work being done. Raises StopRequested when a stop came first."""
        await self.hear(self._wire.have(self.ending("fail", summary)))

    def checkpoint(self) -> None:
        """Raise StopRequested (or StaleVersion) if one is known by now. Asks nobody, awaits nothing."""
        if self._halt is not None:
            self._tell_scope()
        super().checkpoint()

    async def had(self, talk: Talk[T]) -> T:
        """Have a conversation, in this task."""
        return await self.hear(self._wire.have(talk))

    # -- work

    def step(self, key: str, name: str | None = None, op_class: str = "external_write") -> AsyncStep:
        """A step to fill with several effects: `async with run.step("invoice-7", "Invoice 7") as step: …`."""
        return AsyncStep(self, self._link, self._wire, key=key, name=name, op_class=op_class)

    async def cleanup(
        self,
        key: str,
        fn: Callable[..., Awaitable[Any]],
        /,
        *args: Any,
        name: str | None = None,
        op_class: str = "workspace_change",
    ) -> None:
        """Declare what is tidied up if this run is stopped: `await fn(*args)` then; see Run.cleanup."""
        await self.had(self._cleanups.declaring(key, name, op_class, functools.partial(fn, *args)))

    async def hand_over(
        self,
        fn: Callable[..., Awaitable[Any]],
        /,
        *args: Any,
        key: str,
        target: str,
        title: str | None = None,
        body: str | None = None,
        outcome_of: Judge = plain_outcome,
    ) -> Any:
        """Hand a message over yourself: `await fn(*args)` if the gate permits it now; see Run.hand_over."""
        told = {"key": key, "title": title, "body": body}
        with self.scope.send():
            queued = await self.had(self.delivering("outside", target, **told))
            answer, asked_at = await self.ask_gate(f"deliveries/{queued['id']}/hand-over", {})
            if answer.get("permit") is None:
                return self.handed_before(key, answer)
            permit = self.permit_in(answer, asked_at)
            return await self.spend(permit, functools.partial(fn, *args), outcome_of, keep_result=False)

    async def deliver(
        self,
        channel: str,
        target: str,
        *,
        key: str,
        title: str | None = None,
        body: str | None = None,
        content_type: str | None = None,
    ) -> Json:
        """Have Allstop hand over one of the run's own messages; see Run.deliver."""
        message = {"key": key, "title": title, "body": body, "content_type": content_type}
        return await self.had(self.delivering(channel, target, **message))

    # -- what AsyncGated and AsyncStep need

    def step_ref(self, key: str, name: str | None) -> Json:
        """A step of its own for one call, registered and claimed with it."""
        return {"key": key} | ({"name": name} if name else {})

    def note_outcome(self, outcome: Outcome | None) -> None:
        """A run keeps no tally: its steps and effects do."""

    def step_of(self, permit: AsyncPermit) -> AsyncStep:
        """The step that was registered with this permit, to be finished after its one call."""
        held = (permit.step_id, permit.claim_token)
        return AsyncStep(self, self._link, self._wire, key=permit.id, held=held)

    def claimed_with(self, permit: Permit) -> Claimed:
        """The same for a thread."""
        return Claimed(self, self._link, key=permit.id, held=(permit.step_id, permit.claim_token))

    def permit_in(self, answer: Json, asked_at: float) -> AsyncPermit:
        """The permit in a gate's answer. Raises GateUnavailable when there is none."""
        return AsyncPermit(self._link, self._wire, self.permit_data(answer), asked_at=asked_at)

    def thread_permit_in(self, answer: Json, asked_at: float) -> Permit:
        """The same, to be spent in a thread."""
        return Permit(self._link, self._send, self.permit_data(answer), asked_at=asked_at)

    def have_in_thread(self, talk: Talk[T]) -> T:
        """Have a conversation from a thread."""
        return carry_out(talk, self._send)

    async def ask_gate(self, path: str, body: Json) -> tuple[Json, float]:
        """See `asking`. Cancelled while it waits, the answer is still heard, and its permit given back."""
        question = self._wire.start(self._wire.have(self.asking(path, body)))
        try:
            return await self.hear(asyncio.shield(question))
        except asyncio.CancelledError:
            back = self._give_back(question, own_step="key" in body.get("step", {}))
            self._wire.leave(self._wire.start(back))
            raise

    async def _give_back(self, question: asyncio.Task[tuple[Json, float]], *, own_step: bool) -> None:
        with contextlib.suppress(Refused, GateUnavailable, Rejected, NotQuiet):
            answer, asked_at = await question
            if answer.get("permit") is None:
                return
            permit = self.permit_in(answer, asked_at)
            await self._wire.have(permit.reporting_not_sent(asyncio.CancelledError()))
            if own_step and answer.get("effect") is None:
                await self._wire.have(self.step_of(permit).leaving(None))

    async def hear(self, answer: Awaitable[T]) -> T:
        """The answer; a refusal in it is told to the run's task, unless this is the one that it is raised
        in.
        """
        try:
            return await answer
        except Refused as refusal:
            self.note(refusal)
            raise

    def note(self, refusal: Refused) -> None:
        """Remember a refusal that says the run as a whole may not go on."""
        super().note(refusal)
        if self._halt is not None:
            self._tell_scope()

    def _tell_scope(self) -> None:
        task = _this_task()
        if task is not None and task is not self._heart:
            self.scope.heard()

    # -- the heartbeat

    async def _beat_on(self) -> None:
        again = False
        while True:
            await asyncio.sleep(0.0 if again else self._link.pace.heartbeat_s)
            again = await self._beat()

    async def _beat(self) -> bool:
        try:
            again = await self._wire.have(self.beating())
        except MISSED as error:
            self._silence.missed(error)
            return False
        except Exception:  # a heart that dies hears of no stop
            log.exception("A heartbeat failed.")
            return False
        self._silence.heard()
        if self._halt is not None:
            self.scope.want()
            if self.status not in _WAITED_FOR:
                self.scope.stop_waiting()
        return again

    async def _end_heart(self) -> None:
        if self._heart is not None:
            self._heart.cancel()
            await asyncio.wait({self._heart})


def _this_task() -> asyncio.Task[object] | None:
    """None in a thread."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def _done(work: Callable[[], None]) -> Talk[None]:
    yield Do(work)


def _only_refusals(error: BaseException | None) -> bool:
    """Whether it is a group of refusals: from tasks of a group inside the run's block."""
    if not isinstance(error, BaseExceptionGroup):
        return False
    return all(isinstance(one, Refused) or _only_refusals(one) for one in error.exceptions)
