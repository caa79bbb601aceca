"""What the tests of the executor share: a queued effect, workers at work, and a database that is away."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import InternalError, OperationalError, connections

from effects import intents
from effects.models import Effect
from runs.models import Permit, Run
from tests.provider import Provider
from tests.worlds import World, a_kind, fresh, intention

BODY = b'{"amount": 1e2, "to": "a", "to": "b"}'


def at_the_bank(bank: Provider) -> World:
    """A team whose charges our executor sends to this bank."""
    world = World()
    send, lookup = {"url": f"{bank.url}/charges"}, {"url": f"{bank.url}/charges?key={{key}}"}
    a_kind(world.workspace, provider="http", send=send, lookup=lookup)
    return world


def queued(world: World, run: Run, key: str = "charge:7", **fields: Any) -> Effect:
    """An effect that its agent declared for our executor to send."""
    new = intention(key, **{"body": BODY, **fields})
    effect = intents.declare(world.ask(run, step_key=key), new)
    assert isinstance(effect, Effect)
    return effect


def permit_of(effect: Effect) -> Permit:
    permit: Permit = Permit.objects.get(effect_key=effect.key)
    return permit


def stands(effect: Effect) -> tuple[str, str]:
    """The settlement of an effect, and the status of its step."""
    effect = fresh(effect)
    return effect.settlement, effect.step.status


@contextmanager
def at_work(*work: Callable[[], Any]) -> Iterator[list[Any]]:
    """Do this in threads of their own, as workers do; what each came to, when the block has ended."""
    came_to: list[Any] = []

    def do(one: Callable[[], Any]) -> None:
        try:
            came_to.append(one())
        except Exception as error:
            came_to.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=do, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    try:
        yield came_to
    finally:
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()


def before(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, work: Callable[[], Any]) -> None:
    """Do something directly before the first call of a function, as another process might."""
    real, due = getattr(module, name), [work]

    def call(*args: Any, **kwargs: Any) -> Any:
        if due:
            due.pop()()
        return real(*args, **kwargs)

    monkeypatch.setattr(module, name, call)


AWAY = OperationalError("server closed the connection unexpectedly")
SILENT = InternalError("terminating connection due to idle-in-transaction timeout")


def fails(
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    name: str,
    times: int,
    *,
    after: bool = False,
    error: Exception = AWAY,
) -> None:
    """Let the database be away for the first calls of a function; `after`: its work was done by then."""
    real, left = getattr(module, name), [None] * times

    def call(*args: Any, **kwargs: Any) -> Any:
        if not left:
            return real(*args, **kwargs)
        left.pop()
        if after:
            real(*args, **kwargs)
        raise error

    monkeypatch.setattr(module, name, call)
