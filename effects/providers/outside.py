"""The provider outside: an agent sends for itself, and may still say where its effects can be looked up."""

from __future__ import annotations

from effects.models import Kind
from effects.new_kind import BadKind, NewKind, Questions, check_cancel, check_lookup
from effects.settle import Told

from .http import inspect, look_up
from .shape import NoSender, Ready, Sendable

QUESTIONS = Questions()  # nobody but its maker knows what such a kind does


def send(effect: Sendable, kind: Kind, ready: Ready) -> Told:
    """Raises NoSender."""
    raise NoSender(kind.name)


compensate = send


def check(new: NewKind) -> None:
    """Raises BadKind."""
    if set(new.send) - {"cancel"}:
        raise BadKind("send", "Our executor does not send what its agent sends for itself")
    check_lookup(new)
    check_cancel(new)


__all__ = ["QUESTIONS", "check", "compensate", "inspect", "look_up", "send"]
