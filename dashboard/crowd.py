"""API calls wait for a place before they take a database connection, so that a stop always finds one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.db import connection

from runs.problems import Problem

KEPT_FREE = 4  # connections of the pool that only stops and pages use
PATIENCE_S = 5.0


class Crowd:
    """At most `places` at a time; None means that nobody waits."""

    def __init__(self, places: int | None) -> None:
        self.size = places or 0
        self._places = threading.BoundedSemaphore(places) if places else None

    @property
    def taken(self) -> int:
        """How many hold a place now."""
        return self.size - self._places._value if self._places else 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place, and give the connection back with it. Raises Problem when none comes free."""
        if self._places is None:
            yield
            return
        if not self._places.acquire(timeout=PATIENCE_S):
            detail = "Too many requests wait for the store. Nothing was changed; send it again."
            raise Problem("store-unavailable", detail, headers={"Retry-After": "1"})
        try:
            yield
        finally:
            if not connection.in_atomic_block:  # else somebody else's transaction is still open
                connection.close_if_unusable_or_obsolete()
            self._places.release()


def places(database: dict[str, Any]) -> int | None:
    """How many API calls may use this database at a time: its pool but for a few. None without a pool."""
    pool = database.get("OPTIONS", {}).get("pool")
    return max(1, int(pool["max_size"]) - KEPT_FREE) if isinstance(pool, dict) else None


crowd = Crowd(places(settings.DATABASES["default"]))
