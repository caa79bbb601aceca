"""A verb on a wire that is cut: a stop is tried once more on another one, and stays one stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from runs import stops
from runs.models import Press, StopRequest
from tests.worlds import World, fresh, kinds_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.only("postgresql")]


def terminated() -> None:
    """The server ends this session, as in a fail-over."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")


def frozen() -> None:
    """This process says nothing for longer than the server waits inside a transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SET idle_in_transaction_session_timeout = '100ms'")
    time.sleep(0.5)


def once(monkeypatch: pytest.MonkeyPatch, name: str, fault: Callable[[], None]) -> list[str]:
    """Let the fault come in the first call of a function of `stops`, behind its work."""
    real: Any = getattr(stops, name)
    calls: list[str] = []

    def call(*args: Any, **kwargs: Any) -> Any:
        came_to = real(*args, **kwargs)
        calls.append(name)
        if len(calls) == 1:
            fault()
        return came_to

    monkeypatch.setattr(stops, name, call)
    return calls


@pytest.mark.invariant("I3")
@pytest.mark.parametrize("fault", [terminated, frozen])
@pytest.mark.parametrize("name", ["demand", "_record_stop", "_record_press"])
def test_a_stop_whose_wire_was_cut_is_recorded_on_another_one(
    monkeypatch: pytest.MonkeyPatch, name: str, fault: Callable[[], None]
) -> None:
    world = World()
    run = world.run()
    calls = once(monkeypatch, name, fault)
    answer = world.stop(run)
    assert len(calls) == 2, "it was cut, and tried again"
    assert (answer.answer, fresh(run).cancel_version, fresh(run).status) == ("recorded", 2, "CANCELLING")
    assert (StopRequest.objects.count(), Press.objects.count()) == (1, 1)
    assert kinds_of(run).count("stop.acknowledged") == 1
