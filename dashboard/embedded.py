"""Without Redis the server's own process works off the tasks: a worker in a thread, a ticker in another.

Everything sent here dies with the process. That is fine: the sweeper finds due rows again at the next start.
"""

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator

from celery import Celery
from celery.worker import WorkController, state

log = logging.getLogger(__name__)
THREADS = 16
# One process does everything, and whoever holds SQLite's write lock lets go of the interpreter at each
# statement. Beside a busy thread it would get it back after Python's usual 5 ms, each time.
TURN_S = 0.0005


class Worker(WorkController):
    """A worker without signal handlers, banner, gossip or heartbeat: the server's process has its own."""

    started: threading.Event

    def on_consumer_ready(self, consumer: object) -> None:
        self.started.set()


def _worker(app: Celery, threads: int) -> Worker:
    worker = Worker(
        app=app,
        pool="threads",
        concurrency=threads,
        hostname="embedded",
        loglevel="WARNING",
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
    worker.started = threading.Event()
    return worker


def tick(app: Celery, periodic: dict[str, float], stopping: threading.Event) -> None:
    """Send each periodic task when it is due, all of them at once at the start, until told to stop."""
    due = dict.fromkeys(periodic, 0.0)
    while True:
        now = time.monotonic()
        for name, every in periodic.items():
            if due[name] <= now:
                due[name] = now + every
                send(app, name, every)
        if stopping.wait(max(0.0, min(due.values()) - time.monotonic())):
            return


def send(app: Celery, name: str, every: float) -> None:
    try:
        app.send_task(name, expires=every)
    except Exception:  # a ticker that dies would silence every deadline
        log.exception("A periodic task could not be sent: %s", name)


def nudge(app: Celery) -> None:
    """Celery asks whether to stop between two waits of two seconds; a message ends each of them.

    These have expired when they arrive: the worker drops them.
    """
    for _ in range(2):
        send(app, next(iter(periodic(app))), 0.0001)


def periodic(app: Celery) -> dict[str, float]:
    """Task name to seconds, from the same schedule that beat reads."""
    return {entry["task"]: float(entry["schedule"]) for entry in app.conf.beat_schedule.values()}


def leave() -> None:
    """Told to go: from now on nothing new is claimed; what has begun is let finish."""
    state.should_stop = 0  # type: ignore[assignment]


@contextlib.contextmanager
def running(app: Celery, *, threads: int = THREADS) -> Iterator[Callable[[], bool]]:
    """Work off tasks for as long as the block lasts; a task that has begun is let finish.

    Yields a function that says whether worker and ticker are both alive.
    """
    app.finalize()
    worker, stopping = _worker(app, threads), threading.Event()
    working = threading.Thread(target=worker.start, name="worker", daemon=True)
    ticking = threading.Thread(target=tick, args=(app, periodic(app), stopping), name="ticker", daemon=True)
    usual = sys.getswitchinterval()
    sys.setswitchinterval(TURN_S)
    working.start()
    if not worker.started.wait(20):
        raise RuntimeError("The embedded worker did not start within 20 seconds.")
    ticking.start()
    try:
        yield lambda: working.is_alive() and ticking.is_alive()
    finally:
        stopping.set()
        ticking.join(5)
        leave()
        nudge(app)
        working.join(30)
        state.should_stop = None
        sys.setswitchinterval(usual)
