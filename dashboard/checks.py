"""Misconfiguration, said at start with what to do instead of found at night."""

import re
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Any

from django.apps.config import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

OLDEST_DAPHNE = (4, 2, 2)
SQLITE_FULL = 2


@register(Tags.security)
def installation(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Key, hosts, server: what a process must have before it may answer anyone."""
    found: list[CheckMessage] = []
    if not settings.DEBUG:
        found += [*_key(), *_hosts()]
    return found + _daphne(version("daphne"))


def _key() -> list[CheckMessage]:
    with suppress(ImproperlyConfigured):  # which Django raises when an empty key is read
        if settings.SECRET_KEY:
            return []
    hint = "Set SECRET_KEY, or start once with `manage.py up`, which keeps one in the data folder."
    return [Error("There is no secret key.", hint=hint, id="allstop.E001")]


def _hosts() -> list[CheckMessage]:
    if settings.ALLOWED_HOSTS and "*" not in settings.ALLOWED_HOSTS:
        return []
    hint = "Set ALLSTOP_HOSTS to the names this server is reached by, separated by commas."
    return [Error("The server would answer to any name, or to none.", hint=hint, id="allstop.E002")]


def _daphne(found: str) -> list[CheckMessage]:
    if tuple(int(part) for part in re.findall(r"\d+", found)[:3]) >= OLDEST_DAPHNE:
        return []
    hint = "Install the locked packages: pip install --require-hashes -r requirements/run.txt"
    return [Error(f"Daphne {found} is older than 4.2.2.", hint=hint, id="allstop.E003")]


@register(Tags.database)
def durability(databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """An acknowledged stop must survive a power cut, so a commit must reach the disk."""
    found: list[CheckMessage] = []
    for alias in databases or []:
        connection = connections[alias]
        found += _sqlite(connection) if connection.vendor == "sqlite" else _postgresql(connection)
    return found


def _value(connection: BaseDatabaseWrapper, sql: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0]


def _sqlite(connection: BaseDatabaseWrapper) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    if _value(connection, "PRAGMA synchronous") < SQLITE_FULL:
        hint = "Remove `PRAGMA synchronous` from DATABASE_URL; the settings say FULL."
        found.append(Error("SQLite may lose a commit in a power cut.", hint=hint, id="allstop.E010"))
    if connection.settings_dict["OPTIONS"].get("transaction_mode") != "IMMEDIATE":
        hint = "Remove `transaction_mode` from DATABASE_URL; the settings say IMMEDIATE."
        found.append(Error("Writers on SQLite would fail half-way.", hint=hint, id="allstop.E011"))
    return found


def _postgresql(connection: BaseDatabaseWrapper) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    if _value(connection, "SHOW synchronous_commit") in ("off", "local"):
        hint = "ALTER SYSTEM SET synchronous_commit = on; then reload PostgreSQL."
        found.append(Error("PostgreSQL acknowledges before it has written.", hint=hint, id="allstop.E012"))
    if _value(connection, "SHOW fsync") == "off":
        hint = "ALTER SYSTEM SET fsync = on; then restart PostgreSQL."
        found.append(Error("PostgreSQL does not wait for the disk.", hint=hint, id="allstop.E013"))
    if _value(connection, "SHOW transaction_isolation") != "read committed":
        hint = "Remove `isolation_level` from DATABASE_URL: the gate reads after its lock, in a new snapshot."
        found.append(Error("PostgreSQL is not at READ COMMITTED.", hint=hint, id="allstop.E014"))
    return found
