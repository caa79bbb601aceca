"""What a run and a step share: effects, model turns and reads, each behind the gate."""

from __future__ import annotations

import functools
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from allstop.effect import Effect, plan
from allstop.errors import Json, Refused
from allstop.outcome import Outcome, plain_outcome
from allstop.permit import Judge, Permit

if TYPE_CHECKING:
    from allstop.run import Run

P = ParamSpec("P")
T = TypeVar("T")

_BOUNDARIES = {"model_turn": "model", "browser_action": "act", "delivery": "deliver"}


class Gated(ABC):
    """Everything here asks the gate first. `run` is the run that it belongs to."""

    run: Run

    @abstractmethod
    def step_ref(self, key: str, name: str | None) -> Json:
        """The step of a gate call: one already claimed, or one to register and claim in the same call."""

    @abstractmethod
    def step_of(self, permit: Permit) -> AbstractContextManager[Gated]:
        """The step of a permit without an effect: ended with the call if it was registered for it."""

    @abstractmethod
    def note_outcome(self, outcome: Outcome | None) -> None:
        """Told after each call that was made or refused (None: nothing was sent)."""

    def effect(
        self,
        *,
        key: str,
        kind: str,
        target: str | None = None,
        title: str | None = None,
        body: str | None = None,
        compensation: str | Json | None = None,
        none_because: str | None = None,
        op_class: str = "external_write",
        amount: str | None = None,
        outcome_of: Judge = plain_outcome,
    ) -> Effect:
        """One change of the outside world, to be made with `.send(fn, …)`. Nothing is asked before that.

        key: stable, the same on every attempt, free of times and attempt numbers; give it to the provider
        too. body: the very text that is sent; its bytes are digested and stored. compensation: a kind, or
        {"kind", "title", "body"}; or say `none_because`. outcome_of: judges what `fn` returned or raised.
        """
        spec = {
            "key": key,
            "kind": kind,
            "class": op_class,
            "target": target,
            "title": title,
            "body": body,
            "amount": amount,
            "plan": plan(compensation, none_because),
        }
        return Effect(self, {name: value for name, value in spec.items() if value is not None}, outcome_of)

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

        def decorate(fn: Callable[P, T]) -> Callable[P, Any]:
            @functools.wraps(fn)
            def gated_call(*args: P.args, **kwargs: P.kwargs) -> Any:
                texts = {"key": key, "target": target, "title": title, "body": body}
                made: dict[str, Any] = {n: t(*args, **kwargs) if callable(t) else t for n, t in texts.items()}
                return self.effect(kind=kind, **made, **settings).send(fn, *args, **kwargs)

            return gated_call

        return decorate

    def model_turn(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run one model turn behind the gate. Let `fn` return an Outcome to report its usage."""
        return self.ask("model_turn", fn, *args, **kwargs)

    def read(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run one read behind the gate."""
        return self.ask("read", fn, *args, **kwargs)

    def ask(self, op_class: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn` under a permit that belongs to no effect. Its return value is not stored."""
        name = op_class.replace("_", " ")
        body = {
            "boundary": _BOUNDARIES.get(op_class, "dispatch"),
            "class": op_class,
            "step": self.step_ref(f"{op_class}:{uuid.uuid4().hex}", name.capitalize()),
        }
        permit = self.run.permit_in(*self.run.ask_gate(f"runs/{self.run.id}/permits", body))
        call = functools.partial(fn, *args, **kwargs)
        with self.step_of(permit) as step:
            return step.spend(permit, call, plain_outcome, keep_result=False)

    def spend(self, permit: Permit, call: Callable[[], T], judge: Judge, *, keep_result: bool) -> T:
        """Use a permit for one call, with its claim kept alive by the heartbeat."""
        with self.run.holding(permit.claim_token):
            try:
                return permit.spend(call, judge, keep_result=keep_result)
            except Refused as refusal:
                self.run.note(refusal)
                raise
            finally:
                self.note_outcome(permit.outcome)
