"""Misconfiguration, said at start with what to do instead of found at night."""

import re
import socket
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.apps.config import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.checks import Warning as Advice
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from effects import browsing
from effects.models import Kind, Provider
from runs import keyring

from .crowd import KEPT_FREE

KEYS = {
    keyring.SEAL: "Until then nothing is signed.",
    keyring.REDACTION: "Until then removed text leaves no digest by which it could be told again.",
}
OLDEST_DAPHNE = (4, 2, 2)
SQLITE_FULL = 2
ORIGIN = re.compile(r"https?://(\[[0-9a-f:.]+\]|[\w.-]+)(:\d+)?", re.IGNORECASE)
NETWORK = frozenset(("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "fuse.sshfs", "lustre"))
MOUNTS = Path("/proc/self/mounts")


@register(Tags.security)
def installation(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Key, hosts, origins, clock, server: what a process must have before it may answer anyone."""
    found: list[CheckMessage] = [*_origins(), *_clock(), *_daphne(version("daphne")), *_keys()]
    return found + ([*_debug()] if settings.DEBUG else [*_key(), *_hosts()])


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


def _origins() -> list[CheckMessage]:
    wrong = [origin for origin in settings.ALLSTOP_ORIGINS if not ORIGIN.fullmatch(origin)]
    if settings.ALLSTOP_ORIGINS and not wrong:
        return []
    what = f"{wrong[0]!r} is no origin" if wrong else "There is no origin"
    hint = "Set ALLSTOP_ORIGINS to where pages are opened, such as https://stop.example.com, without a path."
    return [Error(f"{what}: no page could press Stop.", hint=hint, id="allstop.E004")]


def _clock() -> list[CheckMessage]:
    if settings.USE_TZ and settings.TIME_ZONE == "UTC":
        return []
    hint = "Remove TIME_ZONE and USE_TZ from your settings: moments are kept and shown in UTC."
    return [Error("Moments would not be kept in UTC.", hint=hint, id="allstop.E005")]


def _keys() -> list[CheckMessage]:
    """A warning, no error: a stop must be recorded whether or not a statement of it can be signed."""
    found: list[CheckMessage] = []
    for name, lost in KEYS.items():
        try:
            keyring.read(name)
        except keyring.KeyUnreadable as error:
            hint = f"{lost} `manage.py up` makes it; in other processes set ALLSTOP_KEYS to its folder."
            found.append(Advice(f"The key file {error}.", hint=hint, id="allstop.W014"))
        if keyring.open_to_others(name):
            hint = f"chmod 600 {keyring.folder() / name}; if others could read it, also rotate it."
            found.append(Advice(f"The key file {name} is open to others.", hint=hint, id="allstop.W015"))
    return found


def _debug() -> list[CheckMessage]:
    hint = "Unset ALLSTOP_DEBUG where anybody else can reach the server."
    return [Advice("Debug pages show settings and rows to anyone.", hint=hint, id="allstop.W001")]


@register(Tags.database)
def durability(databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """An acknowledged stop must survive a power cut, so a commit must reach the disk."""
    found: list[CheckMessage] = []
    for alias in databases or []:
        connection = connections[alias]
        found += _sqlite(connection) if connection.vendor == "sqlite" else _postgresql(connection)
        found += _pool(connection.settings_dict)
    return found


@register(Tags.database)
def providers(databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Kinds that are registered here must be sent from here: a browser, a mail server."""
    tables = connections["default"].introspection.table_names() if "default" in (databases or []) else []
    if Kind._meta.db_table not in tables:
        return []
    used = set(Kind.objects.order_by().values_list("provider", flat=True).distinct())
    found: list[CheckMessage] = []
    if Provider.BROWSER in used and (why := browsing.lacks()):
        hint = f"On each server that sends: {why}."
        what = "Kinds of provider browser can't be sent from here."
        found.append(Advice(what, hint=hint, id="allstop.W012"))
    if Provider.EMAIL in used and not settings.EMAIL_CONFIGURED:
        hint = "Set EMAIL_URL to a mail server that takes messages."
        what = "Kinds of provider email can't be sent from here."
        found.append(Advice(what, hint=hint, id="allstop.W013"))
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
    if _value(connection, "PRAGMA journal_mode") not in ("wal", "memory"):
        hint = "Remove `PRAGMA journal_mode` from DATABASE_URL; the settings say WAL."
        found.append(Error("A page that is read would hold up a stop.", hint=hint, id="allstop.E015"))
    return found + _network(Path(str(connection.settings_dict["NAME"])))


def _network(file: Path) -> list[CheckMessage]:
    kind = _file_system(file.absolute())
    if kind not in NETWORK:
        return []
    hint = "Put the data folder (--data, ALLSTOP_DATA) on a disk of this machine, or use PostgreSQL."
    return [Advice(f"SQLite is on a network share ({kind}).", hint=hint, id="allstop.W010")]


def _file_system(file: Path) -> str:
    """What kind of file system holds the file, by the longest mount above it; "" where nothing tells."""
    with suppress(OSError):
        mounts = [line.split(" ")[1:3] for line in MOUNTS.read_text().splitlines()]
        above = [(place, kind) for place, kind in mounts if file.is_relative_to(place.replace(r"\040", " "))]
        return max(above, key=lambda mount: len(mount[0]), default=("", ""))[1]
    return ""


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
    if _value(connection, "SHOW idle_in_transaction_session_timeout") == "0":
        hint = "Remove `options` from DATABASE_URL; the settings say idle_in_transaction_session_timeout=5s."
        found.append(Error("A host that vanishes would hold up stops.", hint=hint, id="allstop.E016"))
    if _value(connection, "SHOW transaction_read_only") == "on":
        hint = "Point DATABASE_URL to the primary: a standby can't record a stop."
        found.append(Error("This PostgreSQL can only be read.", hint=hint, id="allstop.E017"))
    return found


def _pool(database: dict[str, Any]) -> list[CheckMessage]:
    """Stops and pages have connections to themselves: a pool must hold more than those."""
    pool = database.get("OPTIONS", {}).get("pool")
    if not isinstance(pool, dict) or int(pool["max_size"]) > KEPT_FREE:
        return []
    hint = f"Set ALLSTOP_POOL to more than {KEPT_FREE}; 20 is the default."
    return [Error("The pool has no connections to keep free for stops.", hint=hint, id="allstop.E018")]


@register(Tags.database)
def broker(databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Asked only with the database: no other command should wait for a broker that is away."""
    place = urlsplit(settings.REDIS_URL)
    if not databases or not place.hostname:
        return []
    try:
        socket.create_connection((place.hostname, place.port or 6379), timeout=1).close()
    except OSError as error:
        why = error.strerror or type(error).__name__
        hint = "Start Valkey or mend REDIS_URL. Stops are recorded without it; drains wait until it is back."
        told = f"The broker at {place.hostname}:{place.port or 6379} can't be reached ({why})."
        return [Advice(told, hint=hint, id="allstop.W011")]
    return []
