"""Put a backup in the place of a database: all of it in one transaction, or nothing.

The tables are made as they were when the backup was taken, its rows are put in, and the migrations since
then bring them to today. (Tables that stand as the backup needs them are only emptied.) Then
`effects.restore` sees to it that nothing from before goes on. A process that dies on the way leaves the
database as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.apps import apps
from django.core.management.color import no_style
from django.db import connection, models, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader

from dashboard.backup import BadBackup, Batch, Header, Taken, batches, check, decoded
from effects.restore import Before, Tally, put_to_rest
from runs.models import Restore, Run, User, Workspace

Node = tuple[str, str]


class NotEmpty(RuntimeError):
    """The database holds an installation already. Nothing was changed."""


class Newer(BadBackup):
    """It was taken by a newer release, whose tables this one does not know. Upgrade first."""

    def __str__(self) -> str:
        return type(self).__doc__ or ""


@dataclass(frozen=True)
class Restored:
    """What was put back, and what its restore left for people to decide."""

    taken: Taken
    restore: Restore
    tally: Tally


def holds_something() -> bool:
    """Whether this database has people or workspaces of its own."""
    there = set(connection.introspection.table_names())
    return any(model._meta.db_table in there and model._base_manager.exists() for model in (Workspace, User))


def restore(file: Path, *, replace: bool = False) -> Restored:
    """Restore a backup into this database, which must be empty unless it is to be replaced.

    Raises BadBackup, Newer, NotEmpty; OperationalError while another process holds the tables. Whatever
    it raises, the database is as it was.
    """
    taken = check(file)
    nodes = leaves(taken.header)
    if holds_something() and not replace:
        raise NotEmpty
    with all_or_nothing():
        before = how_far() if replace else Before()
        load(file, tables_for(taken.header, nodes))
        migrate_to_today()
        made = Restore.objects.create(
            taken_at=taken.header.taken_at, digest=taken.digest, release=taken.header.release
        )
        made.refresh_from_db()
        tally = put_to_rest(made, before)
    return Restored(taken, made, tally)


def leaves(header: Header) -> list[Node]:
    """The newest migration of each app at the time of the backup. Raises Newer."""
    graph = MigrationLoader(connection).graph
    applied = set(header.migrations)
    if not applied <= set(graph.nodes):
        raise Newer
    return sorted(node for node in applied if not _later(graph, node) & applied)


def _later(graph: Any, node: Node) -> set[Node]:
    return {child.key for child in graph.node_map[node].children if child.key[0] == node[0]}


@contextmanager
def all_or_nothing() -> Iterator[None]:
    """One transaction that may take its time. On SQLite tables are changed with the checks of keys off,
    which can be switched outside a transaction only; the keys are checked before the commit.
    """
    sqlite = connection.vendor == "sqlite"
    with connection.cursor() as cursor:
        if sqlite:
            cursor.execute("PRAGMA foreign_keys = OFF")
        try:
            with transaction.atomic(durable=True):
                if not sqlite:
                    cursor.execute("SET LOCAL statement_timeout = 0")
                    cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
                yield
                connection.check_constraints()
        finally:
            if sqlite:
                cursor.execute("PRAGMA foreign_keys = ON")


def how_far() -> Before:
    """The versions and epochs of the database that is replaced, as far as its tables can be read."""
    if not holds_something():
        return Before()
    versions = dict(Run.objects.order_by("pk").values_list("pk", "cancel_version").iterator())
    return Before(versions, dict(Workspace.objects.values_list("pk", "epoch")))


# the tables ---------------------------------------------------------------------------------------------


def tables_for(header: Header, nodes: list[Node]) -> dict[str, Any]:
    """The tables as they were at the time of the backup, by name: those that are there, if they fit."""
    executor = MigrationExecutor(connection)
    state: Any = apps
    if (
        not set(executor.loader.applied_migrations)
        == set(header.migrations)
        == set(executor.loader.graph.nodes)
    ):
        drop_tables()
        state = MigrationExecutor(connection).migrate(nodes).apps
    found = state.get_models(include_auto_created=True)
    return {model._meta.label_lower: model for model in found if model._meta.managed}


def drop_tables() -> None:
    """Drop Allstop's tables, with the functions of their triggers; tables of others stay."""
    prefixes = ("django_", *(f"{config.label}_" for config in apps.get_app_configs()))
    with connection.cursor() as cursor:
        ours = [name for name in connection.introspection.table_names(cursor) if name.startswith(prefixes)]
        functions = _trigger_functions(cursor, ours)
        for name in ours:
            end = " CASCADE" if connection.vendor == "postgresql" else ""
            cursor.execute(f"DROP TABLE {connection.ops.quote_name(name)}{end}")
        for function in functions:
            cursor.execute(f"DROP FUNCTION {function}")


def _trigger_functions(cursor: Any, tables: list[str]) -> list[str]:
    if connection.vendor != "postgresql":
        return []
    cursor.execute(
        "SELECT DISTINCT t.tgfoid::regprocedure::text FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
        " WHERE NOT t.tgisinternal AND c.relname = ANY(%s) AND pg_table_is_visible(c.oid)",
        [tables],
    )
    return [row[0] for row in cursor.fetchall()]


def migrate_to_today() -> None:
    """Everything from the backup's migrations on."""
    executor = MigrationExecutor(connection)
    executor.migrate(executor.loader.graph.leaf_nodes())


# the rows -----------------------------------------------------------------------------------------------


def load(file: Path, tables: dict[str, Any]) -> None:
    """The rows of the backup and no others, past the triggers that judge changes and not copies."""
    with triggers_aside(tables.values()), connection.cursor() as cursor:
        for sql in connection.ops.sql_flush(no_style(), [model._meta.db_table for model in tables.values()]):
            cursor.execute(sql)
        for batch in batches(file):
            _insert(tables, batch)
    _number_on(tables.values())


def _insert(tables: dict[str, Any], batch: Batch) -> None:
    if batch.table not in tables:
        raise BadBackup(f"It holds a table {batch.table}, which its migrations do not make.")
    model = tables[batch.table]
    fields = {field.attname: field for field in model._meta.concrete_fields}
    columns = [(name, fields[name]) for name in batch.columns]
    model._base_manager.bulk_create(
        [
            model(**{name: decoded(field, value) for (name, field), value in zip(columns, row, strict=True)})
            for row in batch.rows
        ]
    )


@contextmanager
def triggers_aside(tables: Iterable[type[models.Model]]) -> Iterator[None]:
    """No trigger of ours fires meanwhile. They are back before the commit, or nothing is committed."""
    names = [connection.ops.quote_name(model._meta.db_table) for model in tables]
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SET CONSTRAINTS ALL DEFERRED")  # a migration may have set some of them otherwise
            for name in names:
                cursor.execute(f"ALTER TABLE {name} DISABLE TRIGGER USER")
            yield
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # a table with checks to come can't be altered
            for name in names:
                cursor.execute(f"ALTER TABLE {name} ENABLE TRIGGER USER")
            cursor.execute("SET CONSTRAINTS ALL DEFERRED")
            return
        cursor.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
        triggers = cursor.fetchall()
        for name, _ in triggers:
            cursor.execute(f"DROP TRIGGER {connection.ops.quote_name(name)}")
        yield
        for _, sql in triggers:
            cursor.execute(sql)


def _number_on(tables: Iterable[type[models.Model]]) -> None:
    """Numbers that the database gives go on after the highest one of the backup."""
    with connection.cursor() as cursor:
        for sql in connection.ops.sequence_reset_sql(no_style(), list(tables)):
            cursor.execute(sql)
