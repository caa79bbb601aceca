"""Sync functions of the caller, in threads that may outlive the task which waits for them."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class Abandoned(Exception):
    """Nobody waits any more, and the call had not begun: it was not made."""


class Threads:
    """The threads of one client. Not daemons: the interpreter waits for what they are at, and its report."""

    def __init__(self, at_the_end: Callable[[], None]) -> None:
        self._at_the_end = at_the_end
        self._lock = threading.Lock()
        self._running = 0
        self._closed = False

    async def run(self, work: Callable[[threading.Event], T]) -> T:
        """What `work` returns, from a thread of its own: none that it would have to wait for.

        Cancelled, it returns at once; the thread goes on, and the event that it was given is set.
        """
        gone, future, context = threading.Event(), Future[T](), contextvars.copy_context()
        future.set_running_or_notify_cancel()

        def in_thread() -> None:
            try:
                future.set_result(context.run(work, gone))
            except BaseException as error:
                future.set_exception(error)
            finally:
                self._end_one()

        with self._lock:
            self._running += 1
        threading.Thread(target=in_thread, name="allstop-tool").start()
        answer = asyncio.wrap_future(future)
        answer.add_done_callback(_heard)
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            gone.set()
            raise

    def close(self) -> None:
        """No new ones. What they need is closed with the last of them."""
        with self._lock:
            self._closed = True
            idle = not self._running
        if idle:
            self._at_the_end()

    def _end_one(self) -> None:
        with self._lock:
            self._running -= 1
            last = self._closed and not self._running
        if last:
            self._at_the_end()


def _heard(answer: asyncio.Future[T]) -> None:
    """What a thread raised is in its report; that nobody waits for it any more is no mistake."""
    if not answer.cancelled():
        answer.exception()
