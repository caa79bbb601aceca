"""Every UPDATE that a test of these rooms makes is looked at: none may have a joined filter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection

from tests.worlds import World


@pytest.fixture(autouse=True)
def guarded_updates() -> Iterator[list[str]]:
    """The UPDATE statements of this test. `IN (SELECT` is what a lock wait does not check again."""
    seen: list[str] = []

    def look(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith("UPDATE"):
            seen.append(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(look):
        yield seen
    assert not [sql for sql in seen if "IN (SELECT" in sql]


@pytest.fixture
def world(db: None) -> World:
    return World()
