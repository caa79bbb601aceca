"""One model turn: what it has made so far and what it spent, told even if it is cut off in the middle."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from allstop.errors import Json
from allstop.outcome import Outcome, plain_outcome

if TYPE_CHECKING:
    from allstop.gated import Gated

P = ParamSpec("P")
T = TypeVar("T")
MOST = 64 * 1024  # bytes of a partial output that are sent


class Notes:
    """What a turn's function notes while it runs; used from any thread. `checkpoint` is the run's."""

    def __init__(self, checkpoint: Callable[[], None]) -> None:
        self._checkpoint = checkpoint
        self._lock = threading.Lock()
        self._parts: list[bytes] = []
        self._room = MOST
        self._cut = False
        self._spend: Json = {}

    def partial(self, chunk: str) -> None:
        """Note one more piece of the output, as it comes in. Raises StopRequested if a stop is known by now.

        It is only told if the turn does not come to its end: as its partial output, never as a result.
        """
        data = chunk.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace")
        with self._lock:
            self._cut = self._cut or len(data) > self._room
            self._parts.append(data[: self._room])
            self._room -= len(self._parts[-1])
        self._checkpoint()

    def spend(
        self,
        *,
        model: str | None = None,
        tokens_in: int | None = None,
        tokens_out: int | None = None,
        cost: str | None = None,
    ) -> None:
        """Note what it spent so far; what is said later replaces it. cost: text, such as "0.012 USD"."""
        for name, number in (("tokens_in", tokens_in), ("tokens_out", tokens_out)):
            if number is not None and (type(number) is not int or number < 0):
                raise ValueError(f"{name} is a whole number that is not negative, not {number!r}.")
        told = {"model": model, "tokens_in": tokens_in, "tokens_out": tokens_out, "cost": cost}
        with self._lock:
            self._spend |= {name: value for name, value in told.items() if value is not None}

    def judge(self, value: object) -> Outcome:
        """How it ended: an exception after a piece of output cut it off."""
        outcome = plain_outcome(value)
        with self._lock:
            spend = self._spend or outcome.spend
            if not isinstance(value, BaseException) or not self._parts:
                return dataclasses.replace(outcome, spend=spend)
            text = b"".join(self._parts).decode(errors="ignore")
            note = f"Cut off by {type(value).__name__}."
            note += " Its output was longer; the first 64 KiB are told." if self._cut else ""
            return Outcome("partial", detail=note, spend=spend, partial_output=text)


class Turn(Notes):
    """Made by `run.turn()` or `step.turn()`, for one `send`."""

    def __init__(self, owner: Gated) -> None:
        super().__init__(owner.run.checkpoint)
        self._owner = owner

    def send(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `fn(*args, **kwargs)` if the gate permits it now; `fn` may use this turn to note what it has.

        Returns what `fn` returned; it is not stored. Raises as `model_turn` does.
        """
        call: Callable[[], Any] = functools.partial(fn, *args, **kwargs)
        value: T = self._owner.asked("model_turn", call, self.judge)
        return value
