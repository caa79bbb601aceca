"""How verbs talk to the database: one durable transaction, the server's clock, who waits.

Measured shapes and their reasons: docs/decisions/0002-versions-not-clocks.md and
docs/decisions/0006-a-stop-goes-first-in-line.md.
"""

from __future__ import annotations

import gc
import random
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

import uuid_utils
from django.db import InterfaceError, InternalError, OperationalError, connection, models, transaction
from django.db.models import Func
from django.db.models.expressions import Combinable

from . import counts

P = ParamSpec("P")
R = TypeVar("R")

RETRYABLE = {"40P01", "40001", "55P03"}  # deadlock, serialization, lock timeout
# The wire, or the session at its other end, is gone. 25P03: we were silent too long in a transaction.
LOST = {"57P01", "57P02", "57P03", "08003", "08006", "08001", "25P03", None}
STOP_DEADLINE_S = 20.0

# What a caller wants done with a verb's result in the verb's own transaction, last before its commit.
_alongside: ContextVar[Callable[[Any], None] | None] = ContextVar("alongside", default=None)


@contextmanager
def alongside(work: Callable[[Any], None]) -> Iterator[None]:
    """Have each verb called in this block do `work(result)` before it commits.

    Both are kept or neither. It runs again when the verb does (a lock conflict, a lost wire).
    """
    before = _alongside.set(work)
    try:
        yield
    finally:
        _alongside.reset(before)


@contextmanager
def one_transaction() -> Iterator[None]:
    """One durable transaction. On SQLite no cycles are collected while it holds the write lock.

    The error of a BEGIN that found the file locked refers to itself, and keeps its cursor. Collected in
    this thread, the cursor of another thread's connection waits until that connection is at rest; and
    that may be waiting for our lock: for 20 seconds neither moves, and nobody else writes.
    """
    held = False
    try:
        with transaction.atomic(durable=True):
            if connection.vendor == "sqlite":
                held = _pause_collecting(1)
            yield
    finally:
        if held:
            _pause_collecting(-1)


_pausing = threading.Lock()
_paused = 0
_collects = True


def _pause_collecting(more: int) -> bool:
    """Count those who need it; the first switches it off, the last back to what it was."""
    global _paused, _collects
    with _pausing:
        if not _paused:
            _collects = gc.isenabled()
            gc.disable()
        _paused += more
        if not _paused and _collects:
            gc.enable()
    return True


def _once(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """One try of a verb: its transaction, and what was asked for alongside."""
    with one_transaction():
        result = function(*args, **kwargs)
        work = _alongside.get()
        if work is not None:
            work(result)
        return result


def new_id(prefix: str) -> str:
    """A sortable, prefixed id: `run_` + 32 hex digits of a UUIDv7."""
    return f"{prefix}_{uuid_utils.uuid7().hex}"


class Now(Func):
    """The database's clock at this very moment, also after a lock wait (not now())."""

    function = "CURRENT_TIMESTAMP"
    template = "CURRENT_TIMESTAMP"
    output_field = models.DateTimeField()

    def as_postgresql(self, compiler: Any, conn: Any, **extra: Any) -> Any:
        return self.as_sql(compiler, conn, template="clock_timestamp()", **extra)

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return self.as_sql(
            compiler, connection, template="STRFTIME('%%%%Y-%%%%m-%%%%d %%%%H:%%%%M:%%%%f', 'NOW')", **extra
        )


def after(seconds: float) -> Combinable:
    """The database's clock `seconds` from now, as an expression."""
    return models.ExpressionWrapper(
        Now() + models.Value(timedelta(seconds=seconds)), output_field=models.DateTimeField()
    )


def database_time() -> datetime:
    """One read of the database's clock (UTC, aware)."""
    if connection.vendor == "sqlite":
        text = "SELECT STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')"
    else:
        text = "SELECT clock_timestamp()"
    with connection.cursor() as cursor:
        cursor.execute(text)
        value = cursor.fetchone()[0]
    if isinstance(value, str):
        return datetime.fromisoformat(value + "+00:00")
    return cast(datetime, value)


def _sqlstate(error: BaseException) -> str | None:
    return getattr(error.__cause__, "sqlstate", None)


def _worth_another_try(error: BaseException) -> bool:
    if connection.vendor == "sqlite":
        return "locked" in str(error)
    return _sqlstate(error) in RETRYABLE


def _forget(error: BaseException | None) -> None:
    """An error and the frames that it passed hold each other, and a cursor: let go of it here, not in
    whichever thread the collector happens to run (see `one_transaction`)."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__


def verb(function: Callable[P, R]) -> Callable[P, R]:
    """A public verb: exactly one durable transaction, tried again on lock conflicts.

    Raises: RuntimeError inside another transaction ("intent not yet committed");
    OperationalError when the database stays unreachable: nothing was recorded.
    """

    name = counts.name_of(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with counts.timed(name):
            return _tried(function, *args, **kwargs)

    return call


def _tried(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    for attempt in range(5):
        try:
            return _once(function, *args, **kwargs)
        except OperationalError as error:
            if attempt == 4 or not _worth_another_try(error):
                raise
            _forget(error)
        time.sleep(random.uniform(0.002, 0.02) * (attempt + 1))  # noqa: S311
    raise AssertionError("unreachable")


def stop_verb(function: Callable[P, R]) -> Callable[P, R]:
    """As `verb`, for stops: first in line on SQLite, and tried again after a lost wire.

    The function must be idempotent by its own key: a COMMIT whose answer was lost is repeated.
    """
    name = counts.name_of(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with counts.timed(name):
            return _first_in_line(function, *args, **kwargs)

    return call


def _first_in_line(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    if connection.vendor == "sqlite":
        with no_waiting():
            return _keep_trying(function, *args, **kwargs)
    try:
        return _tried(function, *args, **kwargs)
    except (OperationalError, InterfaceError, InternalError) as error:
        if _sqlstate(error) not in LOST:
            raise
        connection.close()
        return _tried(function, *args, **kwargs)


def _keep_trying(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    end = time.monotonic() + STOP_DEADLINE_S
    while True:
        try:
            return _once(function, *args, **kwargs)
        except OperationalError as error:
            if time.monotonic() > end or not _worth_another_try(error):
                raise
            _forget(error)
        time.sleep(0.001)


@contextmanager
def no_waiting() -> Iterator[None]:
    """SQLite's own busy handler backs off and starves a stop; ask each millisecond instead."""
    if connection.in_atomic_block:  # `atomic(durable=True)` will say so
        yield
        return
    usual = connection.settings_dict["OPTIONS"].get("timeout", 5)
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout = 0")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"PRAGMA busy_timeout = {int(usual * 1000)}")
