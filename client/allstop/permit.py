"""A permit, spent in one thread: look, then call, then report."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from allstop.errors import Json
from allstop.held import Held, Judge, judged, now
from allstop.link import Link, Send
from allstop.outcome import Outcome
from allstop.talk import carry_out

T = TypeVar("T")

__all__ = ["Judge", "Permit", "now"]


class Permit(Held):
    """send: how a call to the server is made, in the thread that spends it."""

    def __init__(self, link: Link, send: Send, data: Json, *, asked_at: float) -> None:
        super().__init__(link, data, asked_at=asked_at)
        self._send = send

    def spend(self, call: Callable[[], T], judge: Judge, *, keep_result: bool) -> T:
        """Look, then call at once in this very thread, then report. `keep_result`: also store a plain return
        value.

        Raises Refused, GateUnavailable or PermitExpired with nothing sent; what `call` raises;
        ReportNotDelivered.
        """
        self._look()
        try:
            value = call()
        except BaseException as error:
            self.outcome = judged(judge, error)
            self._report_failure(self.outcome, error)
            raise
        self.outcome = judged(judge, value)
        self._report(self.outcome, value, keep_result=keep_result or isinstance(value, Outcome))
        return value

    def _look(self) -> None:
        carry_out(self.looking(), self._send)

    def _report(self, outcome: Outcome, value: object, *, keep_result: bool) -> None:
        carry_out(self.reporting(outcome, value, keep_result=keep_result), self._send)

    def _report_failure(self, outcome: Outcome, raised: BaseException) -> None:
        carry_out(self.reporting_failure(outcome, raised), self._send)
