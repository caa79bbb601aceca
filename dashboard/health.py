"""Is this process alive, and could it record a stop right now? For proxies and container health checks."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import DatabaseError, InterfaceError, connection
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from runs.models import IdempotencyRecord
from runs.store import Now, one_transaction

KEPT_S = 1.0  # so that a flood of questions is no flood of commits
PATIENCE_S = 3.0  # for a lock on SQLite; PostgreSQL has its lock_timeout
MINE = {"owner": "readyz", "key": "readyz"}


@require_safe
def livez(request: HttpRequest) -> HttpResponse:
    """200 as long as requests are answered at all; asks nobody."""
    return HttpResponse("alive\n", "text/plain; charset=utf-8")


@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """200 when a row was written and committed as a stop would be, else 503."""
    if ready.now():
        return HttpResponse("a stop can be recorded\n", "text/plain; charset=utf-8")
    return HttpResponse("a stop can NOT be recorded\n", "text/plain; charset=utf-8", 503)


class Ready:
    """What the last try came to, for a moment."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._was, self._until = False, 0.0

    def now(self) -> bool:
        """Whether a commit goes through; tried at most once every KEPT_S."""
        with self._lock:
            if time.monotonic() > self._until:
                self._was, self._until = can_commit(), time.monotonic() + KEPT_S
            return self._was

    def forget(self) -> None:
        """Try again at the next question."""
        self._until = 0.0


ready = Ready()


def can_commit() -> bool:
    """Write one row, always the same, to the disk: a full one shows at the commit, not before."""
    try:
        with not_for_long(), one_transaction():
            mine = IdempotencyRecord.objects.filter(**MINE)
            if not mine.update(created_at=Now()):
                IdempotencyRecord.objects.create(**MINE, request_digest="")
    except (DatabaseError, InterfaceError):
        return False
    return True


@contextmanager
def not_for_long() -> Iterator[None]:
    """On SQLite, wait for another writer for PATIENCE_S instead of the 20 s of other requests."""
    if connection.vendor != "sqlite":
        yield
        return
    usual = connection.settings_dict["OPTIONS"].get("timeout", 5)
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA busy_timeout = {int(PATIENCE_S * 1000)}")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"PRAGMA busy_timeout = {int(usual * 1000)}")
