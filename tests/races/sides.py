"""Two or more threads, each with a database connection of its own, brought to meet at a chosen statement.

Nothing here waits by sleeping: a side that is held says so, and that one side waits for another is read from
the database (PostgreSQL), or from its own BEGIN that has not come back while the other is inside (SQLite).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from django.db import connection, connections

T = TypeVar("T")
PATIENCE_S = 8.0


class Side(Generic[T]):
    """One thread that makes one call, and stands still before the first statement that begins with `hold`.

    `hold` is the beginning of an SQL statement, or COMMIT.
    """

    def __init__(
        self, name: str, call: Callable[[], T], hold: str = "", start: threading.Barrier | None = None
    ) -> None:
        self.name, self._call, self._hold, self._start = name, call, hold, start
        self.pid = 0
        self.asked_to_begin, self.inside = False, False
        self._standing, self._go, self._over = threading.Event(), threading.Event(), threading.Event()
        self._value: T | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    # --- what a test says ---------------------------------------------------------------------------------

    def stands(self) -> None:
        """Until it stands where it was to be held."""
        if not self._standing.wait(PATIENCE_S):
            raise AssertionError(f"{self.name} never came to {self._hold!r}: {self._error or self._value!r}")

    def go(self) -> None:
        """Let it go on."""
        self._go.set()

    def result(self) -> T:
        """What the call returned; raises what it raised."""
        self.go()
        if not self._over.wait(2 * PATIENCE_S):
            raise AssertionError(f"{self.name} has not come back")
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def waits_for(self, other: Side[Any]) -> bool:
        """True once it waits for the other side, False once it is over (or held) without having waited."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if self._blocked_by(other):
                return True
            if self._over.is_set() or (self._standing.is_set() and not self._go.is_set()):
                return False
            time.sleep(0.002)
        raise AssertionError(f"{self.name} neither waits for {other.name} nor comes back")

    # --- inside -------------------------------------------------------------------------------------------

    def _blocked_by(self, other: Side[Any]) -> bool:
        if connection.vendor == "sqlite":
            return self.asked_to_begin and not self.inside and other.inside
        if not self.pid:
            return False
        with connection.cursor() as cursor:
            cursor.execute("SELECT %s = ANY(pg_blocking_pids(%s))", [other.pid, self.pid])
            return bool(cursor.fetchone()[0])

    def _run(self) -> None:
        try:
            if self._start is not None:
                self._start.wait(PATIENCE_S)
            connection.ensure_connection()
            if connection.vendor == "postgresql":
                self.pid = connection.connection.info.backend_pid
            with connection.execute_wrapper(self._watch), self._held_commits():
                self._value = self._call()
        except BaseException as error:  # handed to result()
            self._error = error
        finally:
            connections.close_all()
            self._over.set()

    def _watch(
        self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]
    ) -> Any:
        if self._hold and sql.startswith(self._hold):
            self._stand()
        if not sql.startswith("BEGIN"):
            return execute(sql, params, many, context)
        self.asked_to_begin = True
        done = execute(sql, params, many, context)
        self.inside = True
        return done

    @contextmanager
    def _held_commits(self) -> Iterator[None]:
        """Django commits through no statement: the thread's own connection object is watched instead."""
        own: Any = connection
        commit = own.commit

        def held() -> None:
            if self._hold == "COMMIT":
                self._stand()
            commit()
            self.inside = False

        own.commit = held
        try:
            yield
        finally:
            del own.commit

    def _stand(self) -> None:
        self._hold = ""
        self._standing.set()
        if not self._go.wait(PATIENCE_S):
            raise AssertionError(f"{self.name} was held and forgotten")


@contextmanager
def sides() -> Iterator[Callable[..., Side[Any]]]:
    """Makes sides, and lets all of them go on and end when the block ends."""
    made: list[Side[Any]] = []

    def make(name: str, call: Callable[[], Any], hold: str = "") -> Side[Any]:
        made.append(Side(name, call, hold))
        return made[-1]

    try:
        yield make
    finally:
        for side in made:
            side.go()
        for side in made:
            side._over.wait(PATIENCE_S)


def together(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """All calls at once, each in a thread and on a connection of its own; what each returned or raised."""
    start = threading.Barrier(len(calls))
    threads = [Side(f"side {n}", call, start=start) for n, call in enumerate(calls)]
    found: list[Any] = []
    for thread in threads:
        try:
            found.append(thread.result())
        except Exception as error:
            found.append(error)
    return found
