"""Tells what is left in the outbox: at the start of a run, and in a thread while the server is away."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable

from allstop.errors import GateUnavailable, Refused, Rejected
from allstop.facts import sending
from allstop.outbox import Outbox
from allstop.talk import Answer, Ask, carry_out
from allstop.wire import Address, Wire

log = logging.getLogger("allstop")

_LONGEST_PAUSE_S = 30.0


class Courier:
    """address: of the server that it tells; each fact for as long as one call may take."""

    def __init__(self, outbox: Outbox, address: Address) -> None:
        self._outbox = outbox
        self._address = address
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._end = threading.Event()
        if outbox.folder is not None:
            outbox.when_left = self.wake

    def start(self, send: Callable[[Ask], Answer]) -> None:
        """Adopt what dead processes left, and tell it before anything is asked.

        Bounded: the first one that is not heard ends it, and the thread goes on.
        """
        self._outbox.adopt()
        if self._outbox.waiting and not self._deliver(send):
            self.wake()

    def _deliver(self, send: Callable[[Ask], Answer]) -> bool:
        """Tell each fact once, in order. False if some were not heard."""
        tried: set[str] = set()
        while not self._end.is_set() and (fact := self._outbox.take(tried)):
            tried.add(fact.key)
            try:
                carry_out(sending(fact, self._address.give_up_s), send)
            except BaseException as error:
                self._outbox.leave(fact, error)
                if not isinstance(error, (Refused, Rejected)):
                    return self._go_on(error)
            else:
                self._outbox.done(fact)
                log.info("A report that was kept has been delivered: %s", fact.path)
        return not self._outbox.waiting

    def _go_on(self, error: BaseException) -> bool:
        if not isinstance(error, GateUnavailable):
            raise error
        return False

    def wake(self) -> None:
        """Tell what waits, in a thread of its own, until all is told."""
        with self._lock:
            if self._thread is not None or self._end.is_set() or not self._outbox.waiting:
                return
            thread = threading.Thread(target=self._run, name="allstop-courier", daemon=True)
            with contextlib.suppress(RuntimeError):  # the interpreter is ending: the next process tells it
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        pause, wire = 0.5, Wire(self._address)
        try:
            while not self._end.wait(pause) and not (self._deliver(wire.send) and self._is_over()):
                pause = min(pause * 2, _LONGEST_PAUSE_S)
        finally:
            wire.close()

    def _is_over(self) -> bool:
        """Decided under the lock, so that what is left at this moment finds a thread or starts one."""
        with self._lock:
            over = not self._outbox.waiting
            self._thread = None if over else self._thread
            return over

    def close(self) -> None:
        """End the thread after the call that it is at. What it did not tell stays on the disk."""
        self._end.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=0.5)
