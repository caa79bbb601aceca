"""What every test shares. Between transactional tests the tables are emptied: on SQLite by DELETE,
which the product's triggers rightly refuse, so they step aside for that one moment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.db.backends.sqlite3.operations import DatabaseOperations


@pytest.fixture(autouse=True, scope="session")
def _triggers_step_aside_for_the_flush() -> Iterator[None]:
    plain = DatabaseOperations.execute_sql_flush

    def flush(self: Any, sql_list: list[str]) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
            triggers = cursor.fetchall()
            for name, _ in triggers:
                cursor.execute(f'DROP TRIGGER "{name}"')
            try:
                plain(self, sql_list)
            finally:
                for _, sql in triggers:
                    cursor.execute(sql)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DatabaseOperations, "execute_sql_flush", flush)
        yield
