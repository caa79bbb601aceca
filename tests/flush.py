"""Emptying tables between tests, past the triggers that refuse to lose evidence.

Test code only: Django empties the tables after each test that commits; our triggers refuse, as they should.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import transaction
from django.db.backends.base.operations import BaseDatabaseOperations


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
    """PostgreSQL's TRUNCATE writes new files for every table and index; a few rows are deleted sooner."""
    if not sql.startswith("TRUNCATE") or "RESTART IDENTITY" in sql:
        return [sql]
    return [f"DELETE FROM {table}" for table in re.findall(r'"[^"]+"', sql)]
