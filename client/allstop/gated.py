"""What a run and a step share: effects, model turns and reads, each behind the gate."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from allstop.declared import Declaring, from_arguments
from allstop.effect import Effect
from allstop.errors import Json, Refused, Withheld
from allstop.held import Judge
from allstop.outcome import plain_outcome
from allstop.permit import Permit
from allstop.turn import Turn

if TYPE_CHECKING:
    from allstop.run import Run

P = ParamSpec("P")
T = TypeVar("T")


class Gated(Declaring[Effect]):
    """Everything here asks the gate first. `run` is the run that it belongs to."""

    run: Run

    @abstractmethod
    def step_of(self, permit: Permit) -> AbstractContextManager[Gated]:
        """The step of a permit without an effect: ended with the call if it was registered for it."""

    def _declared(self, spec: Json, judge: Judge) -> Effect:
        return Effect(self, spec, judge)

    def gated(
        self,
        *,
        key: str | Callable[..., str],
        kind: str,
        target: str | Callable[..., str] | None = None,
        title: str | Callable[..., str] | None = None,
        body: str | Callable[..., str] | None = None,
        **settings: Any,
    ) -> Callable[[Callable[P, T]], Callable[P, Any]]:
        """`effect` as a decorator: each call of the function is one send.

        key, target, title, body may be functions of the call's own arguments. `settings`: the rest of
        `effect`.
        """
        texts = {"key": key, "target": target, "title": title, "body": body}

        def decorate(fn: Callable[P, T]) -> Callable[P, Any]:
            @functools.wraps(fn)
            def gated_call(*args: P.args, **kwargs: P.kwargs) -> Any:
                made = from_arguments(texts, args, kwargs)
                return self.effect(kind=kind, **made, **settings).send(fn, *args, **kwargs)

            return gated_call

        return decorate

    def model_turn(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run one model turn behind the gate. Let `fn` return an Outcome to report its usage."""
        return self.ask("model_turn", fn, *args, **kwargs)

    def turn(self) -> Turn:
        """One model turn that notes what it makes and spends: `turn.send(stream, prompt, turn)`."""
        return Turn(self)

    def read(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run one read behind the gate."""
        return self.ask("read", fn, *args, **kwargs)

    def ask(self, op_class: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn` under a permit that belongs to no effect. Its return value is not stored."""
        return self.asked(op_class, functools.partial(fn, *args, **kwargs), plain_outcome)

    def asked(self, op_class: str, call: Callable[[], T], judge: Judge) -> T:
        """`ask`, judged by `judge`."""
        answer, asked_at = self.run.ask_gate(f"runs/{self.run.id}/permits", self._permit_body(op_class))
        permit = self.run.permit_in(answer, asked_at)
        with self.step_of(permit) as step:
            return step.spend(permit, call, judge, keep_result=False)

    def spend(self, permit: Permit, call: Callable[[], T], judge: Judge, *, keep_result: bool) -> T:
        """Use a permit for one call, with its claim kept alive by the heartbeat."""
        with self.run.holding(permit.claim_token):
            try:
                return permit.spend(call, judge, keep_result=keep_result)
            except Refused as refusal:
                self.run.note(refusal)
                raise
            except Withheld as refusal:
                self.run.note_step(refusal, permit.step_id)
                raise
            finally:
                self.note_outcome(permit.outcome)
