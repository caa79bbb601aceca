"""A backup: every row of one moment, in one file that either database can read.

The file is gzipped lines of JSON. First a header (FORMAT, when, by which release, the migrations that
the tables are at); then each table: an object with its name and columns, and an array per row; last an
object with the number of rows and the SHA-256 of all lines before it. A file without that last line is
one that was cut off. The digest shows damage, not malice: whoever can write the file can write its digest.

Left out: LEFT_OUT, with the reason. What stays in is as secret as the database: password hashes, digests
of tokens, claim tokens of work in flight (a late report is told by them).
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import IO, Any

from django.apps import apps
from django.db import connection, models, transaction
from django.db.migrations.recorder import MigrationRecorder

from runs.store import database_time

FORMAT = "allstop.backup/1"
# The rows of these tables stay behind. A session would let whoever held its cookie in again, signed in
# before whatever made the restore necessary; everybody signs in anew. A confirmation key is as good.
LEFT_OUT = frozenset({"sessions.session", "account.emailconfirmation"})


class BadBackup(ValueError):
    """This file can't be restored. Nothing was changed."""


@dataclass(frozen=True)
class Header:
    """What a backup says of itself. `migrations` are (app, name), in the order they were applied."""

    format: str
    taken_at: datetime
    release: str
    database: str
    migrations: list[tuple[str, str]]

    @property
    def line(self) -> dict[str, Any]:
        return {**vars(self), "taken_at": self.taken_at.isoformat()}

    @classmethod
    def of(cls, told: Any) -> Header:
        """Raises BadBackup for another kind of file, or a format of the future."""
        found = told.get("format") if isinstance(told, dict) else None
        if found != FORMAT:
            what = f"a backup of the format {found}" if found else "no backup of Allstop"
            raise BadBackup(f"It is {what}; this release reads {FORMAT}.")
        moment = datetime.fromisoformat(told["taken_at"])
        named = [(app, name) for app, name in told["migrations"]]
        return cls(FORMAT, moment, told["release"], told["database"], named)


@dataclass(frozen=True)
class Taken:
    """A backup as it was written or checked: its file, its header, rows by table, and its digest."""

    file: Path
    header: Header
    rows: dict[str, int]
    digest: str


# taking one -----------------------------------------------------------------------------------------


def take(file: Path, release: str) -> Taken:
    """Write a backup of this moment to a new file, readable by its owner alone.

    Nobody waits for it: it reads one snapshot. Raises FileExistsError; a try that fails leaves no file.
    """
    if file.exists():
        raise FileExistsError(file)
    partial = file.with_name(f"{file.name}.{os.getpid()}.partial")
    try:
        taken_at = database_time()  # before the snapshot: what is missing is never called present
        with snapshot():
            header = Header(FORMAT, taken_at, release, connection.vendor, _migrations())
            rows, digest = _write(partial, header)
        os.link(partial, file)  # which fails where a file has appeared meanwhile
    finally:
        partial.unlink(missing_ok=True)
    _reach_the_disk(file.parent)
    return Taken(file, header, rows, digest)


@contextmanager
def snapshot() -> Iterator[None]:
    """Read one moment of the database without keeping anybody waiting, for as long as it takes."""
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("BEGIN DEFERRED")  # `atomic` would take the write lock, and stops would wait
            try:
                yield
            finally:
                cursor.execute("ROLLBACK")
        return
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        cursor.execute("SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0")
        yield


def _migrations() -> list[tuple[str, str]]:
    applied = MigrationRecorder.Migration.objects.order_by("pk")
    return [(row.app, row.name) for row in applied]


def kept_tables() -> list[type[models.Model]]:
    """The tables whose rows travel, in a fixed order."""
    ours = [model for model in apps.get_models(include_auto_created=True) if travels(model)]
    return sorted(ours, key=lambda model: model._meta.label_lower)


def travels(model: type[models.Model]) -> bool:
    """Whether it has rows of its own that belong into a backup."""
    kind = model._meta
    return kind.managed and not kind.proxy and kind.label_lower not in LEFT_OUT


def _write(partial: Path, header: Header) -> tuple[dict[str, int], str]:
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as raw:
        with gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as packed:
            lines = _Lines(packed)
            lines.add(header.line)
            rows = {model._meta.label_lower: _write_table(lines, model) for model in kept_tables()}
            digest = lines.digest
            lines.add({"rows": rows, "sha256": digest})
        raw.flush()
        os.fsync(raw.fileno())
    return rows, digest


def _write_table(lines: _Lines, model: type[models.Model]) -> int:
    columns = [field.attname for field in model._meta.concrete_fields if field.column]
    lines.add({"table": model._meta.label_lower, "columns": columns})
    number = 0
    for row in model._base_manager.order_by("pk").values_list(*columns).iterator(chunk_size=500):
        lines.add([encoded(value) for value in row])
        number += 1
    return number


class _Lines:
    """Writes lines, and hashes what it writes."""

    def __init__(self, out: IO[bytes] | gzip.GzipFile) -> None:
        self._out, self._hash = out, hashlib.sha256()

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def add(self, value: Any) -> None:
        line = json.dumps(value, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        self._hash.update(line)
        self._out.write(line)


def _reach_the_disk(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# values ---------------------------------------------------------------------------------------------


def encoded(value: Any) -> Any:
    """A column's value as JSON. A value of a kind that is not named here fails in `json.dumps`, loudly."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if isinstance(value, bytes | memoryview):
        return base64.b64encode(bytes(value)).decode()
    return value


def decoded(field: models.Field[Any, Any], value: Any) -> Any:
    """The value of this column from its JSON."""
    kind = field.get_internal_type()
    if value is None or kind == "JSONField":
        return value
    if kind == "DateTimeField":
        return datetime.fromisoformat(value)
    if kind == "DateField":
        return date.fromisoformat(value)
    if kind == "DurationField":
        return timedelta(microseconds=value)
    return base64.b64decode(value) if kind == "BinaryField" else value


# reading one ----------------------------------------------------------------------------------------


def check(file: Path) -> Taken:
    """Read a backup to its end: all there, and as it was written. Raises BadBackup, OSError."""
    header: Header | None = None
    hashed, rows, table, last = hashlib.sha256(), dict[str, int](), "", None
    for line in raw_lines(file):
        if last is not None:
            raise BadBackup("It has lines behind its last one.")
        told = _parsed(line)
        if header is None:
            header = Header.of(told)
        elif isinstance(told, list):
            rows[table] += 1
        elif "sha256" in told:
            last = told
            continue
        else:
            table = told["table"]
            rows[table] = 0
        hashed.update(line)
    if header is None or last is None:
        raise BadBackup("It ends in the middle: it was not written to its end, or was cut off.")
    if last["sha256"] != hashed.hexdigest() or last["rows"] != rows:
        raise BadBackup("Its digest does not fit: it is damaged, or was changed.")
    return Taken(file, header, rows, last["sha256"])


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise BadBackup("It holds a line that is no JSON.") from error


def raw_lines(file: Path) -> Iterator[bytes]:
    """The lines of the file. Raises BadBackup where it can't be unpacked."""
    with gzip.open(file) as packed:
        try:
            yield from packed
        except (EOFError, gzip.BadGzipFile, OSError) as error:
            raise BadBackup(f"It can't be unpacked: {error}.") from error


def batches(file: Path, most: int = 500, most_bytes: int = 4_000_000) -> Iterator[Batch]:
    """The rows of a checked file, some at a time, table by table."""
    table: str = ""
    columns: Sequence[str] = ()
    rows: list[list[Any]] = []
    size = 0
    for line in raw_lines(file):
        told = json.loads(line)
        if isinstance(told, list):
            rows.append(told)
            size += len(line)
            if len(rows) < most and size < most_bytes:
                continue
        if rows:
            yield Batch(table, columns, rows)
        rows, size = [], 0
        if isinstance(told, dict) and "table" in told:
            table, columns = told["table"], told["columns"]


@dataclass(frozen=True)
class Batch:
    """Some rows of one table; each holds its values in the order of `columns`."""

    table: str
    columns: Sequence[str]
    rows: list[list[Any]]
