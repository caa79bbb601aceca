"""What each module of this package answers, and what it is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from effects.models import Kind
from effects.new_kind import NewKind, Questions
from effects.reconcile import Answer
from effects.settle import Told
from runs.models import Run

Ready = Callable[[], None]


class NoSender(LookupError):
    """Effects of this kind are sent by their agent, not by our executor."""


class Sendable(Protocol):
    """What can be sent and looked up under a key: an effect, or a compensation.

    `attempt` counts from 1 and is fresh when it is sent; `key` is the same on every attempt.
    """

    @property
    def pk(self) -> Any: ...
    @property
    def key(self) -> str: ...
    @property
    def body(self) -> Any: ...
    @property
    def attempt(self) -> int: ...
    @property
    def run(self) -> Run: ...
    @property
    def run_id(self) -> str: ...
    @property
    def kind(self) -> Kind | None: ...
    @property
    def op_class(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def amount(self) -> str: ...
    @property
    def provider_ref(self) -> str: ...
    @property
    def dispatched_at(self) -> datetime | None: ...


@dataclass(frozen=True)
class Inspection:
    """What is there now, for people to read: a sentence, and what was seen. It settles nothing."""

    says: str
    observed: dict[str, Any] = field(default_factory=dict)


class Provider(Protocol):
    """A module of this package."""

    QUESTIONS: Questions

    def send(self, effect: Sendable, kind: Kind, ready: Ready) -> Told:
        """Send once. `ready` is called directly before the first byte and passes its exception on."""

    def look_up(self, effect: Sendable, kind: Kind) -> Answer:
        """What the provider holds under the key. Never raises for what a provider does."""

    def inspect(self, effect: Sendable) -> Inspection | None:
        """What is there now; None where nobody can look. Never raises for what a provider does."""

    def compensate(self, effect: Sendable, kind: Kind, ready: Ready) -> Told:
        """Send a compensation, whose kind this is; as send() does, in all but few providers."""

    def check(self, new: NewKind) -> None:
        """What no kind of this provider may be. Raises BadKind."""


def inspection_of(answer: Answer) -> Inspection:
    """A look-up's answer as people read it."""
    says = f"{answer.answer}: {answer.detail}" if answer.detail else answer.answer
    return Inspection(says, answer.observed)
