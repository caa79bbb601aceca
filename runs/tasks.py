"""Tasks of this room, and how a task of any room begins and ends.

Messages are wake-ups; rows are the truth.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, ParamSpec

from celery import shared_task
from celery.worker import state
from django.db import close_old_connections
from structlog.contextvars import bound_contextvars

from . import audit, evidence, idempotency

P = ParamSpec("P")
log = logging.getLogger(__name__)

STREAMS_A_PASS = 5_000
_round = evidence.Round()


def each(work: Callable[[Any], object], ids: Iterable[str | int]) -> None:
    """Do the work for each id. What goes wrong with one is logged and never stops the others.

    A worker that was told to stop leaves the rest to the next one's sweep.
    """
    for one in ids:
        if leaving():
            return
        try:
            work(one)
        except Exception:
            log.exception("%s failed for %s; the next sweep tries again", work, one)
            close_old_connections()


def alone(function: Callable[P, None]) -> Callable[P, None]:
    """At most one at a time in this process: a tick that comes while the last one works is dropped."""
    busy = threading.Lock()

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        if busy.acquire(blocking=False):
            try:
                function(*args, **kwargs)
            finally:
                busy.release()

    return call


def with_own_connection(function: Callable[P, None]) -> Callable[P, None]:
    """A thread gives its database connection back when its task ends: a pool has few.

    What is logged meanwhile names the task.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        close_old_connections()
        try:
            with bound_contextvars(task=function.__name__):
                function(*args, **kwargs)
        finally:
            close_old_connections()

    return call


def leaving() -> bool:
    """This worker was told to stop: what is in flight ends, nothing new is claimed."""
    told: tuple[Any, ...] = (state.should_stop, state.should_terminate)  # an exit code, and 0 is one
    return any(code is not None and code is not False for code in told)


@shared_task(name="runs.tasks.seal")
@with_own_connection
@alone
def seal() -> None:
    """Chain the evidence lines that are not sealed yet: new ones, and those found on the round."""
    each(evidence.seal_stream, evidence.streams_to_seal(STREAMS_A_PASS))
    each(evidence.seal_stream, _round.next())


@shared_task(name="runs.tasks.forget")
@with_own_connection
@alone
def forget() -> None:
    """Delete kept answers that nobody will ask for again."""
    while not leaving() and idempotency.forget():
        pass


@shared_task(name="runs.tasks.audit")
@with_own_connection
@alone
def write_audit() -> None:
    """Take what people and agents did to the workspaces' streams, some lines of each in a pass."""
    if leaving():
        return
    audit.flush()
    audit.take_presses()
    each(audit.place, audit.unplaced())
    each(audit.write, audit.due())
    audit.forget()
