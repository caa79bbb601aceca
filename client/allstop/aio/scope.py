"""Where a stop may cancel the task of a run, and what becomes of that cancellation."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator


class StopScope:
    """Cancels a task at a safe boundary, as asyncio.timeout does at a time.

    It asks for one cancellation and takes that one back when the scope is left; whoever else cancels the task
    keeps theirs. Belongs to the event loop of its task.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self._before = 0
        self._sends = 0
        self._threads = 0
        self._wanted = False
        self._told = False
        self.asked = False

    def enter(self) -> None:
        """From here on, in this task. Raises RuntimeError outside of one."""
        self._task = asyncio.current_task()
        if self._task is None:
            raise RuntimeError("A run is entered inside of a task.")
        self._before = self._task.cancelling()

    def leave(self) -> bool:
        """No cancellation from here on. False if somebody else wants the task to be cancelled."""
        task, self._task = self._task, None
        if task is None:
            return True
        left = task.uncancel() if self.asked else task.cancelling()
        return left <= self._before

    def heard(self) -> None:
        """A refusal is raised in the current task. The run's own needs no cancellation then; others do."""
        if self._task is None:
            return
        if asyncio.current_task() is self._task:
            self._told = True
        else:
            asyncio.get_running_loop().call_soon(self.want)

    def want(self) -> None:
        """Cancel now, or when what is being sent has been reported."""
        self._wanted = True
        self._cancel_if_safe()

    def stop_waiting(self) -> None:
        """For threads: nobody waits for their reports any more, so neither need the task."""
        self._threads = 0
        self.want()

    @contextlib.contextmanager
    def send(self) -> Iterator[None]:
        """A stop does not interrupt this: not the call, and not the report of what came of it."""
        self._sends += 1
        try:
            yield
        finally:
            self._sends -= 1
            self._try_soon()

    @contextlib.contextmanager
    def thread(self) -> Iterator[None]:
        """The same, as long as somebody waits for the report."""
        self._threads += 1
        try:
            yield
        finally:
            self._threads = max(0, self._threads - 1)
            self._try_soon()

    def _try_soon(self) -> None:
        """Not at once: what a call returned is first given to whoever waits for it."""
        if self._wanted:
            asyncio.get_running_loop().call_soon(self._cancel_if_safe)

    def _cancel_if_safe(self) -> None:
        busy = self._sends or self._threads
        if self._task is not None and self._wanted and not (busy or self._told or self.asked):
            self.asked = True
            self._task.cancel()
