"""The thread that keeps claims alive and learns of a stop while the agent is busy."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from allstop.errors import GateUnavailable, NotQuiet, Refused, Rejected

log = logging.getLogger("allstop")

MISSED = (GateUnavailable, Refused, Rejected, NotQuiet)


class Silence:
    """Says once that heartbeats fail, until one is heard again."""

    def __init__(self) -> None:
        self._said = False

    def missed(self, error: BaseException) -> None:
        """A beat that fails loses nothing: permits end by themselves and the gate is asked anew each time."""
        if not self._said:
            log.warning("No heartbeat; claims end when their lease does: %s", error)
        self._said = True

    def heard(self) -> None:
        """The server answered."""
        self._said = False


class Heartbeat(threading.Thread):
    """Calls `beat()` every `every_s` seconds, at once again when it returns True. A daemon thread."""

    def __init__(self, beat: Callable[[], bool], every_s: float) -> None:
        super().__init__(name="allstop-heartbeat", daemon=True)
        self._beat = beat
        self._every_s = every_s
        self._end = threading.Event()
        self._soon = threading.Event()
        self._silence = Silence()

    def run(self) -> None:
        """Beat until `stop()`."""
        again = False
        while not self._end.is_set():
            self._soon.wait(0.0 if again else self._every_s)
            self._soon.clear()
            if not self._end.is_set():
                again = self._once()

    def soon(self) -> None:
        """Beat now instead of when it is due."""
        self._soon.set()

    def stop(self) -> None:
        """End the thread; waits for a beat in progress at most a few seconds."""
        self._end.set()
        self._soon.set()
        if self.is_alive() and threading.current_thread() is not self:
            self.join(timeout=5.0)

    def _once(self) -> bool:
        try:
            again = self._beat()
        except MISSED as error:
            self._silence.missed(error)
            return False
        self._silence.heard()
        return again
