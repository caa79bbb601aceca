"""One effect: declared, permitted, looked at again, sent and reported, all inside `send()`.

The handle gives out nothing that permits: the second look and the call it permits are one statement, in one
thread, so it can be neither forgotten nor made too early.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from allstop.errors import GateUnavailable, Json, MustWait, NeverSent, Queued
from allstop.outcome import Outcome
from allstop.permit import Judge

if TYPE_CHECKING:
    from allstop.gated import Gated


class Effect:
    """Made by `run.effect(…)` or `step.effect(…)`. `skipped`: the last send found the key settled."""

    def __init__(self, owner: Gated, spec: Json, judge: Judge) -> None:
        self._owner = owner
        self._spec = spec
        self._judge = judge
        self._tried = False
        self.skipped = False

    @property
    def key(self) -> str:
        """The effect key. Give it to the provider as its idempotency key."""
        return str(self._spec["key"])

    @property
    def body(self) -> str | None:
        """The text that was declared: send these very bytes."""
        return self._spec.get("body")

    def send(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call `fn(*args, **kwargs)` if, and only if, the gate permits it now. Returns what `fn` returned.

        A key that is settled already: `fn` is not called, the stored result is returned. Raises MustWait
        (sent before, outcome not known), Queued (Allstop will send it), Refused, GateUnavailable,
        PermitExpired (nothing was sent), what `fn` raised, and ReportNotDelivered (it was called, the report
        did not get through).
        """
        self._tried = True
        run, step = self._owner.run, self._owner.step_ref(self.key, self._spec.get("title"))
        answer, asked_at = run.ask_gate(f"runs/{run.id}/effects", {**self._spec, "step": step})
        if answer.get("permit") is None:
            return self._known(answer)
        permit, call = run.permit_in(answer, asked_at), functools.partial(fn, *args, **kwargs)
        value = self._owner.spend(permit, call, self._judge, keep_result=True)
        return value.result if isinstance(value, Outcome) else value

    def _known(self, answer: Json) -> Any:
        what, effect = answer.get("known"), answer.get("effect") or {}
        if answer.get("queued"):
            raise Queued(f"Effect {self.key!r} is queued: Allstop sends effects of this kind itself.", effect)
        if what == "settled":
            self.skipped = True
            return answer.get("result")
        if what == "must_wait":
            todo = answer.get("what_to_do") or "Wait until its outcome is known."
            raise MustWait(f"Effect {self.key!r} was sent before and may not be sent now. {todo}", effect)
        raise GateUnavailable(f"Allstop answered {what!r} for effect {self.key!r}. Nothing was sent.")

    def __enter__(self) -> Effect:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and not self._tried:
            raise NeverSent(f"The block of effect {self.key!r} ended without send(): it was not declared.")


def plan(compensation: str | Json | None, none_because: str | None) -> Json:
    """The declared compensation, or the reason why there is none: exactly one of the two."""
    if (compensation is None) == (none_because is None):
        raise TypeError("Say either compensation=… or none_because=…: a plan is declared before the send.")
    if compensation is None:
        return {"none_because": none_because}
    return {"kind": compensation} if isinstance(compensation, str) else compensation
