"""Without Redis the server's own process works off the tasks, at once, and lets them end."""

import threading
import time
from collections.abc import Iterator

import pytest
from celery import Celery, current_app

from dashboard import embedded
from dashboard.celery import app as ours


@pytest.fixture
def app() -> Iterator[Celery]:
    """An app like ours, with tasks of its own."""
    made = Celery("test", set_as_current=False)
    made.conf.update(
        broker_url="memory://localhost/",
        broker_transport_options={"polling_interval": 0.02},
        task_ignore_result=True,
        task_default_queue=f"queue-{time.monotonic_ns()}",
        worker_hijack_root_logger=False,
        beat_schedule={"tick": {"task": "tick", "schedule": 0.2}},
    )
    made.set_default()
    yield made
    ours.set_default()
    made.close()


def nothing() -> None:
    """What a tick does where only its coming matters."""


def test_every_thread_finds_our_app() -> None:
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(current_app.main))
    thread.start()
    thread.join()
    assert found == ["allstop"]


def test_every_periodic_task_exists() -> None:
    ours.loader.import_default_modules()
    assert [name for name in embedded.periodic(ours) if name not in ours.tasks] == []


def test_a_task_is_taken_within_a_tenth_of_a_second(app: Celery) -> None:
    took: list[float] = []

    def measure(sent: float) -> None:
        took.append(time.monotonic() - sent)

    app.task(name="tick", shared=False)(nothing)
    task = app.task(name="measure", shared=False)(measure)
    with embedded.running(app, threads=2):
        for _ in range(5):
            task.delay(time.monotonic())
            time.sleep(0.1)
    assert len(took) == 5
    assert sorted(took)[2] < 0.1


def test_periodic_tasks_run_at_the_start_and_again(app: Celery) -> None:
    ticks: list[float] = []

    def tick() -> None:
        ticks.append(time.monotonic())

    app.task(name="tick", shared=False)(tick)
    with embedded.running(app, threads=2) as alive:
        time.sleep(1)
        assert alive()
    assert 3 <= len(ticks) <= 7


def test_a_task_that_has_begun_is_let_finish_and_the_end_is_quick(app: Celery) -> None:
    begun, done = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        time.sleep(0.5)
        done.set()

    app.task(name="tick", shared=False)(nothing)
    task = app.task(name="work", shared=False)(work)
    with embedded.running(app, threads=2):
        task.delay()
        assert begun.wait(5)
        told = time.monotonic()
    assert done.is_set()
    assert time.monotonic() - told < 3
