"""One effect: declared, permitted, looked at again, sent and reported, all inside `send()`.

The handle gives out nothing that permits: the second look and the call it permits are one statement, in one
thread, so it can be neither forgotten nor made too early.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from allstop.declared import ASK_AGAIN_S, Declared
from allstop.errors import Json
from allstop.held import Judge, now
from allstop.outcome import Outcome

if TYPE_CHECKING:
    from allstop.gated import Gated


class Effect(Declared):
    """Made by `run.effect(…)` or `step.effect(…)`. `skipped`: the last send found the key settled."""

    _owner: Gated

    def __init__(self, owner: Gated, spec: Json, judge: Judge) -> None:
        super().__init__(spec, judge)
        self._owner = owner

    def send(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call `fn(*args, **kwargs)` if, and only if, the gate permits it now. Returns what `fn` returned.

        A key that is settled already: `fn` is not called, the stored result is returned. Raises MustWait
        (sent before, outcome not known), WaitingForApproval and NotApproved (people decide, or decided),
        Queued (Allstop will send it), Refused, GateUnavailable, PermitExpired (nothing was sent), what `fn`
        raised, and ReportNotDelivered (it was called, the report did not get through).
        """
        since, run = now(), self._owner.run
        answer, asked_at = self._ask()
        while self._goes_on_waiting(answer, since):
            time.sleep(ASK_AGAIN_S)
            run.checkpoint()
            if run.have(self._owner.coming_back()):
                answer, asked_at = self._ask()
        if answer.get("permit") is None:
            return self._known(answer)
        permit, call = run.permit_in(answer, asked_at), functools.partial(fn, *args, **kwargs)
        value = self._owner.spend(permit, call, self._judge, keep_result=True)
        return value.result if isinstance(value, Outcome) else value

    def _ask(self) -> tuple[Json, float]:
        self._tried = True
        run, step = self._owner.run, self._owner.step_ref(self.key, self._spec.get("title"))
        answer, asked_at = run.ask_gate(f"runs/{run.id}/effects", {**self._spec, "step": step})
        return self._noted(answer), asked_at

    def retry(self, *, delay_s: float = 0, max_tries: int | None = None) -> Json:
        """Ask for another try in `delay_s`, under the same key; `send` again once it is due.

        Returns the step: `due_at` says when. Raises RetryRefused (it may have happened, only a worker's word
        denies it, or it was tried often enough), Refused, GateUnavailable, NeverSent.
        """
        return self._owner.run.have(self._owner.run.posting(*self._retrying(delay_s, max_tries)))

    def __enter__(self) -> Effect:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._check_sent(error)
