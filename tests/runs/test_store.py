"""A verb on a wire that is cut, and beside writers that wait: it comes to its one commit."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import pytest
from django.db import OperationalError, connection, connections, transaction
from django.db.backends.sqlite3.base import SQLiteCursorWrapper

from runs import stops, store
from runs.models import Press, StopRequest
from runs.store import no_waiting, one_transaction
from tests.worlds import World, fresh, kinds_of

pytestmark = pytest.mark.django_db(transaction=True)


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


@pytest.mark.only("postgresql")
@pytest.mark.invariant("I3")
@pytest.mark.parametrize("fault", [terminated, frozen])
@pytest.mark.parametrize("name", ["demand", "record_stop", "record_press"])
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


# --- Writers that wait for each other's cursors -----------------------------------------------------------


def found_locked() -> None:
    """One try of a stop while another writes: the error of its BEGIN holds itself, and the cursor."""
    with suppress(OperationalError), no_waiting(), transaction.atomic():
        pass


@contextmanager
def plain_transaction() -> Iterator[None]:
    """The unsafe shape: what `one_transaction` was before."""
    with transaction.atomic(durable=True):
        yield


@pytest.mark.race
@pytest.mark.only("sqlite")
@pytest.mark.parametrize(("shape", "waits"), [(one_transaction, False), (plain_transaction, True)])
def test_a_writer_collects_no_cursor_of_another_that_waits_for_it(
    shape: Callable[[], AbstractContextManager[None]], waits: bool
) -> None:
    holds, asked, over = threading.Event(), threading.Event(), threading.Event()
    came_to: list[str] = []

    def other() -> None:
        assert holds.wait(10)
        found_locked()
        try:
            with connection.cursor() as cursor:
                cursor.execute("PRAGMA busy_timeout = 2000")
                asked.set()
                cursor.execute("BEGIN IMMEDIATE")  # waits for us, inside SQLite
                cursor.execute("ROLLBACK")
            came_to.append("wrote")
        except OperationalError as error:
            came_to.append(str(error))
        finally:
            over.set()
            connections.close_all()

    gc.collect()
    waiting = threading.Thread(target=other)
    waiting.start()
    with shape():
        holds.set()
        assert asked.wait(10)
        time.sleep(0.3)
        for _ in range(200_000):  # garbage in cycles: the collector comes by itself
            cycle: list[Any] = []
            cycle.append(cycle)
        was_over = over.is_set()
    waiting.join(20)
    assert (was_over, came_to) == ((True, ["database is locked"]) if waits else (False, ["wrote"]))
    assert gc.isenabled()


def cursors() -> int:
    return sum(type(one) is SQLiteCursorWrapper for one in gc.get_objects())


@pytest.mark.race
@pytest.mark.only("sqlite")
@pytest.mark.parametrize(("forgets", "left"), [(True, False), (False, True)])
def test_a_stop_that_found_the_file_locked_keeps_no_cursor(
    monkeypatch: pytest.MonkeyPatch, forgets: bool, left: bool
) -> None:
    world = World()
    run, tried = world.run(), threading.Event()
    if not forgets:
        monkeypatch.setattr(store, "_forget", lambda error: None)  # the control
    real, tries = store._once, [0]

    def once_more(*args: Any, **kwargs: Any) -> Any:
        tries[0] += 1
        if tries[0] > 20:
            tried.set()
        return real(*args, **kwargs)

    monkeypatch.setattr(store, "_once", once_more)
    holds = threading.Event()

    def hold() -> None:
        with transaction.atomic():
            holds.set()
            tried.wait(10)
        connections.close_all()

    holder = threading.Thread(target=hold)
    holder.start()
    assert holds.wait(10)
    gc.collect()
    gc.disable()
    try:
        before = cursors()
        stops.request_stop(actor=world.alice, wish=stops.Wish(), run_id=run.pk)
        assert (cursors() - before > 10) is left
    finally:
        gc.enable()
        holder.join(10)
    assert tries[0] > 20
