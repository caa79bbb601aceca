"""An effect before it is sent: what is declared, and what is to be done when its key is known already."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from allstop.errors import GateUnavailable, Json, MustWait, NeverSent, Queued, WaitingForApproval
from allstop.held import Judge, now
from allstop.outcome import Outcome, plain_outcome
from allstop.talk import Talk

E = TypeVar("E", bound="Declared")

_BOUNDARIES = {"model_turn": "model", "browser_action": "act", "delivery": "deliver"}


ASK_AGAIN_S = 2.0  # how often the gate is asked while people decide


class Declared:
    """The handle of one effect. `skipped`: the last send found the key settled."""

    _owner: Any

    def __init__(self, spec: Json, judge: Judge) -> None:
        self._wait_s = float(spec.pop("wait_s", 0.0))
        self._spec = spec
        self._judge = judge
        self._tried = False
        self._step_id = ""
        self._reversible: Json | None = None
        self.skipped = False

    @property
    def key(self) -> str:
        """The effect key. Give it to the provider as its idempotency key."""
        return str(self._spec["key"])

    @property
    def body(self) -> str | None:
        """The text that was declared: send these very bytes."""
        return self._spec.get("body")

    @property
    def reversible(self) -> Json | None:
        """What its kind says of afterwards: {"can": true, false or None (nobody said), "sentence", "preset"};
        None until the gate has answered, which is before anything is sent."""
        return self._reversible

    def _noted(self, answer: Json) -> Json:
        """Keep which step it has, for a retry, and whether it can be lessened."""
        self._reversible = answer.get("reversible") or self._reversible
        self._step_id = str((answer.get("effect") or {}).get("step_id") or self._step_id)
        return answer

    def _retrying(self, delay_s: float, max_tries: int | None) -> tuple[str, Json]:
        """The question for another try. Raises NeverSent before the first."""
        if not self._step_id:
            raise NeverSent(f"Effect {self.key!r} was not sent yet: there is nothing to try again.")
        run = self._owner.run
        body = {"worker": run.worker, "seen_version": run.version, "delay_s": float(delay_s)}
        return f"steps/{self._step_id}/retry", body | ({"max_tries": max_tries} if max_tries else {})

    def _goes_on_waiting(self, answer: Json, since: float) -> bool:
        """Whether people decide first, and the caller wants to wait for them longer."""
        if answer.get("known") != "waiting":
            return False
        self._owner.note_waiting()
        return now() - since < self._wait_s

    def _known(self, answer: Json) -> Any:
        what, effect = answer.get("known"), answer.get("effect") or {}
        if what == "waiting":
            said = f"Effect {self.key!r} waits for people to approve it. Nothing was sent."
            raise WaitingForApproval(said, effect, answer.get("review") or {})
        if answer.get("queued"):
            raise Queued(f"Effect {self.key!r} is queued: Allstop sends effects of this kind itself.", effect)
        if what == "settled":
            self.skipped = True
            return answer.get("result")
        if what == "must_wait":
            todo = answer.get("what_to_do") or "Wait until its outcome is known."
            raise MustWait(f"Effect {self.key!r} was sent before and may not be sent now. {todo}", effect)
        raise GateUnavailable(f"Allstop answered {what!r} for effect {self.key!r}. Nothing was sent.")

    def _check_sent(self, error: BaseException | None) -> None:
        """At the end of its block."""
        if error is None and not self._tried:
            raise NeverSent(f"The block of effect {self.key!r} ended without send(): it was not declared.")


class Declaring(ABC, Generic[E]):
    """What runs and steps share, whoever waits for the answers."""

    @abstractmethod
    def _declared(self, spec: Json, judge: Judge) -> E:
        """The handle of an effect with this spec."""

    @abstractmethod
    def step_ref(self, key: str, name: str | None) -> Json:
        """The step of a gate call: one already claimed, or one to register and claim in the same call."""

    def note_waiting(self) -> None:
        """Told when the step of a call waits for people: whoever held it holds it no longer."""

    def coming_back(self) -> Talk[bool]:
        """Whether to ask the gate again: a step that was claimed is claimed anew first, once it is free."""
        yield from ()
        return True

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
        approval: bool | int = False,
        on_stop: str | None = None,
        wait_s: float = 0.0,
        outcome_of: Judge = plain_outcome,
    ) -> E:
        """One change of the outside world, to be made with `.send(fn, …)`. Nothing is asked before that.

        key: stable, the same on every attempt, free of times and attempt numbers; give it to the provider
        too. body: the very text that is sent; its bytes are digested and stored. compensation: a kind, or
        {"kind", "title", "body"}; or say `none_because`. approval: how many people decide before it is sent
        (True: one); wait_s: how long `send` waits for them before it raises WaitingForApproval. on_stop:
        "ask_provider" lets a cancel of the run ask its provider to cancel it, where its kind says how and the
        rules of the workspace let it. outcome_of: judges what `fn` returned or raised.
        """
        spec = {
            "key": key,
            "kind": kind,
            "class": op_class,
            "target": target,
            "title": title,
            "body": body,
            "amount": amount,
            "approval": approval or None,
            "on_stop": on_stop,
            "wait_s": wait_s or None,
            "plan": plan(compensation, none_because),
        }
        return self._declared({name: value for name, value in spec.items() if value is not None}, outcome_of)

    def _permit_body(self, op_class: str) -> Json:
        """The question for a permit that belongs to no effect."""
        name = op_class.replace("_", " ").capitalize()
        step = self.step_ref(f"{op_class}:{uuid.uuid4().hex}", name)
        return {"boundary": _BOUNDARIES.get(op_class, "dispatch"), "class": op_class, "step": step}


def plan(compensation: str | Json | None, none_because: str | None) -> Json:
    """The declared compensation, or the reason why there is none: exactly one of the two."""
    if (compensation is None) == (none_because is None):
        raise TypeError("Say either compensation=… or none_because=…: a plan is declared before the send.")
    if compensation is None:
        return {"none_because": none_because}
    return {"kind": compensation} if isinstance(compensation, str) else compensation


def from_arguments(texts: dict[str, str | Callable[..., str] | None], args: Any, kwargs: Any) -> Any:
    """Key, target, title and body of one call of a gated function."""
    return {n: t(*args, **kwargs) if callable(t) else t for n, t in texts.items()}
