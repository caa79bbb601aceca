"""Emptying tables between tests, past the triggers that refuse to lose evidence.

Test code only: Django empties the tables after each test that commits; our triggers refuse, as they should.
What the migrations themselves put there (content types and permissions) stays: making it again, as Django
does by a signal after each flush, took longer than most of these tests.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from django.core.management.commands import flush
from django.db import transaction
from django.db.backends.base.operations import BaseDatabaseOperations

KEPT = {'"django_content_type"', '"auth_permission"'}


def install() -> None:
    """From now on flush means this, in this process."""
    BaseDatabaseOperations.execute_sql_flush = execute_sql_flush  # type: ignore[method-assign]
    flush.emit_post_migrate_signal = tell_nobody  # type: ignore[attr-defined]


def tell_nobody(*_: object, **__: object) -> None:
    """No app has to make its rows again."""
    from django.contrib.contenttypes.models import ContentType

    ContentType.objects.clear_cache()


@contextmanager
def without_triggers(connection: Any) -> Iterator[Any]:
    """A cursor in a transaction during which no trigger fires; they are all back at its end."""
    with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SET LOCAL session_replication_role = replica")
            yield cursor
            return
        cursor.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
        triggers = cursor.fetchall()
        for name, _ in triggers:
            cursor.execute(f'DROP TRIGGER "{name}"')
        yield cursor
        for _, sql in triggers:
            cursor.execute(sql)


def execute_sql_flush(self: BaseDatabaseOperations, sql_list: Iterable[str]) -> None:
    with without_triggers(self.connection) as cursor:
        for sql in sql_list:
            for statement in cheaper(sql):
                cursor.execute(statement)


def cheaper(sql: str) -> list[str]:
    """PostgreSQL's TRUNCATE writes new files for every table and index; a few rows are deleted sooner: of all
    tables in one way to the server and back.
    """
    if not sql.startswith(("TRUNCATE", "DELETE FROM")) or "RESTART IDENTITY" in sql:
        return [sql]
    emptied = [table for table in re.findall(r'"[^"]+"', sql) if table not in KEPT]
    return ["; ".join(f"DELETE FROM {table}" for table in emptied)] if emptied else []
