"""The sealing task, and what every task is made of."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from celery.worker import state
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext

from dashboard.celery import PERIODIC
from runs import evidence, tasks
from runs.models import Evidence, IdempotencyRecord, Seal
from tests.worlds import World, in_seconds

pytestmark = pytest.mark.django_db(transaction=True)


def not_sealed() -> set[str]:
    """Streams whose newest line is beyond their newest seal."""
    tops = {line.stream: line.seq for line in Evidence.objects.order_by("seq")}
    sealed = {seal.stream: seal.upto_seq for seal in Seal.objects.order_by("upto_seq")}
    return {stream for stream, top in tops.items() if sealed.get(stream, 0) < top}


def test_every_stream_is_sealed_and_sealed_again_when_it_goes_on(world: World) -> None:
    tasks.seal()  # of what made the world
    runs = [world.run(f"run-{n}") for n in range(3)]
    assert len(not_sealed()) == 3
    tasks.seal()
    assert not_sealed() == set()
    seals = Seal.objects.count()
    tasks.seal()
    assert Seal.objects.count() == seals
    world.stop(runs[0])
    assert not_sealed() == {runs[0].pk}
    tasks.seal()
    assert not_sealed() == set()


def test_more_streams_than_one_look_takes_are_all_sealed(world: World) -> None:
    tasks.seal()  # of what made the world
    for number in range(7):
        world.run(f"run-{number}")
    looks = 0
    while streams := evidence.streams_to_seal(limit=2):
        assert len(streams) <= 2
        for stream in streams:
            evidence.seal_stream(stream)
        looks += 1
    assert (looks, not_sealed()) == (4, set())


def test_a_stream_that_was_missed_is_found_on_the_round(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lines are older than what a pass looks back to, because others were sealed meanwhile."""
    monkeypatch.setattr(evidence, "streams_to_seal", lambda limit: [])
    monkeypatch.setattr(evidence.Round, "SLICE", 3)
    monkeypatch.setattr(tasks, "_round", evidence.Round())
    for number in range(7):
        world.run(f"run-{number}")
    missed = not_sealed()
    assert len(missed) >= 7
    passes = 0
    while not_sealed():
        tasks.seal()
        passes += 1
        assert passes < 10
    late = world.run("late")
    while late.pk in not_sealed():  # the round begins again
        tasks.seal()
        passes += 1
        assert passes < 20


def test_a_stream_that_can_not_be_sealed_holds_up_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken, *others = sorted(world.run(f"run-{n}").pk for n in range(3))
    real = evidence.seal_stream

    def seal_stream(stream: str) -> Any:
        if stream == broken:
            raise RuntimeError("out of order")
        return real(stream)

    monkeypatch.setattr(evidence, "seal_stream", seal_stream)
    with caplog.at_level(logging.ERROR):
        tasks.seal()
    assert not_sealed() == {broken}
    assert broken in caplog.text
    assert len(others) == 2


def test_a_task_gives_its_connection_back() -> None:
    held: list[bool] = []

    def work() -> None:
        try:
            tasks.with_own_connection(lambda: held.append(Evidence.objects.exists() or True))()
            held.append(connection.connection is not None)
            Evidence.objects.exists()  # the control: without it the thread keeps one
            held.append(connection.connection is not None)
        finally:
            connections.close_all()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert held == [True, False, True]


def test_a_tick_that_comes_while_the_last_one_works_is_dropped() -> None:
    began, over, count = threading.Event(), threading.Event(), []

    @tasks.alone
    def work() -> None:
        count.append(1)
        began.set()
        over.wait(10)

    first = threading.Thread(target=work)
    first.start()
    began.wait(10)
    work()  # would wait for ten seconds
    over.set()
    first.join(10)
    assert len(count) == 1
    work()
    assert len(count) == 2


@pytest.mark.parametrize("told", [0, 1, True])
@pytest.mark.parametrize("how", ["should_stop", "should_terminate"])
def test_a_worker_that_was_told_to_stop_is_leaving(
    monkeypatch: pytest.MonkeyPatch, how: str, told: object
) -> None:
    assert not tasks.leaving()
    monkeypatch.setattr(state, how, told)
    assert tasks.leaving()
    done: list[str] = []
    tasks.each(done.append, ["one", "two"])
    assert done == [], "the next worker's sweep finds them"


# --- Forgetting -------------------------------------------------------------------------------------------


def test_answers_that_are_too_old_to_be_asked_for_are_deleted_by_an_index(world: World) -> None:
    """Each call that creates something leaves one: without this, the table grows for ever."""
    IdempotencyRecord.objects.bulk_create(
        IdempotencyRecord(owner="o", key=f"k-{n}", request_digest="", created_at=in_seconds(-n * 86_400))
        for n in range(2_200)
    )
    with CaptureQueriesContext(connection) as seen:
        tasks.forget()
    assert IdempotencyRecord.objects.count() == 7  # of today and of six days before
    statements = [one["sql"] for one in seen.captured_queries if "runs_idempotencyrecord" in one["sql"]]
    oldest = next(sql for sql in statements if sql.startswith("SELECT"))
    with connection.cursor() as cursor:
        explain = "EXPLAIN QUERY PLAN" if connection.vendor == "sqlite" else "EXPLAIN"
        if connection.vendor == "postgresql":
            cursor.execute("SET enable_seqscan = off")  # a table this small is read as a whole
        cursor.execute(f"{explain} {oldest}")
        assert "idempotency_by_age" in str(cursor.fetchall())
        if connection.vendor == "postgresql":
            cursor.execute("RESET enable_seqscan")


def test_forgetting_is_on_the_schedule() -> None:
    assert PERIODIC["forget"]["task"] == tasks.forget.name
