"""Providers: who sends an effect, and who can be asked what became of it.

Only effects.executor calls `send()`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from effects.models import Effect, Kind
from effects.models import Provider as Name
from effects.reconcile import CANT_TELL, Answer
from effects.settle import Told

from . import http, workspace

Ready = Callable[[], None]


class Provider(Protocol):
    """What a module of this package answers."""

    def send(self, effect: Effect, kind: Kind, ready: Ready) -> Told:
        """Send once. `ready` is called directly before the first byte and passes its exception on."""

    def look_up(self, effect: Effect, kind: Kind) -> Answer:
        """What the provider holds under the effect's key. Never raises for what a provider does."""


SENDERS: dict[str, Provider] = {Name.HTTP: http, Name.WORKSPACE: workspace}
# An agent that sends for itself may still say where its effects can be looked up.
LOOKERS: dict[str, Provider] = {Name.HTTP: http, Name.OUTSIDE: http, Name.WORKSPACE: workspace}


class NoSender(LookupError):
    """Effects of this kind are sent by their agent, not by our executor."""


def send(effect: Effect, kind: Kind, ready: Ready) -> Told:
    """Send through the kind's provider. Raises NoSender, and what `ready` raises."""
    provider = SENDERS.get(kind.provider)
    if provider is None:
        raise NoSender(kind.name)
    return provider.send(effect, kind, ready)


def look_up(effect: Effect) -> Answer:
    """Ask the provider of an effect's kind what it holds."""
    kind = effect.kind
    if kind is None or not kind.lookup:
        return Answer(CANT_TELL, "this kind has no look-up")
    return LOOKERS[kind.provider].look_up(effect, kind)
