"""Many new rows in one statement, column by column: for chunks of a scope stop, where `bulk_create` is slow.

Most columns of such rows are alike. Those are sent once; the others as one array each (PostgreSQL) or row by
row on one prepared statement (SQLite). In a fan-out: less than half the processor time of `bulk_create`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connection, models
from django.db.models import NOT_PROVIDED

from .columns import Redacting

PLAIN = (str, int, type(None))


class Each(list[Any]):
    """A value for each row, in their order; any other value of a column is that of all rows."""


def insert(model: type[models.Model], columns: Mapping[str, Any], then: str = "") -> None:
    """Insert as many rows as an `Each` among the columns is long; none are read back.

    `columns`: by attribute name (`run_id`); what is left out gets its default. `then`: what follows, such as
    ON CONFLICT. No signal is sent, and nothing is checked but by the database. Names are those of models.
    """
    size = next(len(value) for value in columns.values() if isinstance(value, Each))
    given = [field for field in model._meta.concrete_fields if _is_given(field, columns)]
    values = {field: columns.get(field.attname, NOT_PROVIDED) for field in given}
    one = {field: _alike(field, value) for field, value in values.items()}
    if size:
        (_row_by_row if connection.vendor == "sqlite" else _as_arrays)(model, size, one, then)


def _is_given(field: Any, columns: Mapping[str, Any]) -> bool:
    """A column that nobody names is left to the database where that has a default, or gives a number."""
    own = isinstance(field, models.AutoField) or field.db_default is not NOT_PROVIDED
    return field.attname in columns or not own


def _alike(field: Any, value: Any) -> Any:
    """As the database takes it: the one value of all rows, or an Each."""
    if isinstance(value, Each):
        if any(one != value[0] for one in value):
            as_is = () if isinstance(field, Redacting) else PLAIN
            return Each(one if isinstance(one, as_is) else _stored(field, one) for one in value)
        value = value[0] if value else None
    return _stored(field, field.get_default() if value is NOT_PROVIDED else value)


def _stored(field: Any, value: Any) -> Any:
    return field.get_db_prep_save(value, connection)


def _as_arrays(model: type[models.Model], size: int, values: Mapping[Any, Any], then: str) -> None:
    each = [field for field, value in values.items() if isinstance(value, Each)]
    names = ", ".join(_quoted(field.column) for field in values)
    taken = ", ".join(_quoted(field.column) if field in each else "%s" for field in values)
    arrays = ", ".join(f"%s::{_type(field)}[]" for field in each)
    named = ", ".join(_quoted(field.column) for field in each)
    source = f"UNNEST({arrays}) AS given({named})" if each else f"generate_series(1, {size})"
    sql = f"INSERT INTO {_table(model)} ({names}) SELECT {taken} FROM {source} {then}"  # noqa: S608
    alike = [value for field, value in values.items() if field not in each]
    with connection.cursor() as cursor:
        cursor.execute(sql, [*alike, *(list(values[field]) for field in each)])


def _row_by_row(model: type[models.Model], size: int, values: Mapping[Any, Any], then: str) -> None:
    names = ", ".join(_quoted(field.column) for field in values)
    marks = ", ".join(["%s"] * len(values))
    columns: list[Sequence[Any]] = [
        value if isinstance(value, Each) else [value] * size for value in values.values()
    ]
    sql = f"INSERT INTO {_table(model)} ({names}) VALUES ({marks}) {then}"  # noqa: S608
    with connection.cursor() as cursor:
        cursor.executemany(sql, list(zip(*columns, strict=True)))


def _type(field: Any) -> str:
    """Without its length: a text that is too long is an error, not a shorter text."""
    return str(field.db_type(connection)).partition("(")[0]


def _table(model: type[models.Model]) -> str:
    return _quoted(model._meta.db_table)


def _quoted(name: str) -> str:
    return connection.ops.quote_name(name)
