"""Databases for real processes: migrated once, then copied, one fresh copy a test."""

import itertools
import os
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from tests.processes import ROOT

numbers = itertools.count(1)


@dataclass(frozen=True)
class Database:
    """A migrated, empty database. `rows` reads it from outside, in a statement of its own."""

    kind: str
    url: str

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        if self.kind == "sqlite":
            connection = sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=20)
            try:
                with connection:
                    return connection.execute(sql).fetchall()
            finally:
                connection.close()
        with psycopg.connect(self.url, autocommit=True) as reading:
            cursor = reading.execute(sql)
            return cursor.fetchall() if cursor.description else []

    def value(self, sql: str) -> Any:
        """The first column of the first row."""
        return self.rows(sql)[0][0]


def migrate(url: str, data: Path) -> None:
    environ = {**os.environ, "DATABASE_URL": url, "ALLSTOP_DATA": str(data), "SECRET_KEY": "migrating"}
    environ["DJANGO_SETTINGS_MODULE"] = "dashboard.settings"
    command = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
    subprocess.run(command, cwd=ROOT, env=environ, check=True, timeout=600)  # a busy machine takes minutes


@dataclass(frozen=True)
class SqliteTemplate:
    folder: Path

    @classmethod
    def make(cls, folder: Path) -> "SqliteTemplate":
        """Migrated here, or by an earlier pass of the same `manage.py test`."""
        made, shared = cls(folder), os.environ.get("ALLSTOP_TEST_TEMPLATE")
        if shared and Path(shared).exists():
            shutil.copy(shared, made.file)
            return made
        migrate(f"sqlite:///{made.file}", folder)
        if shared:
            shutil.copy(made.file, mine := Path(f"{shared}-{os.getpid()}"))
            mine.rename(shared)  # whole at once: another pass may look for it now
        return made

    @property
    def file(self) -> Path:
        return self.folder / "template.sqlite3"

    def copy(self, folder: Path) -> Database:
        target = folder / f"allstop{next(numbers)}.sqlite3"
        shutil.copy(self.file, target)
        return Database("sqlite", f"sqlite:///{target}")

    def drop(self, database: Database) -> None:
        Path(database.url.removeprefix("sqlite:///")).unlink(missing_ok=True)


@dataclass(frozen=True)
class PostgresqlTemplate:
    server_url: str
    name: str

    @classmethod
    def make(cls, server_url: str, folder: Path) -> "PostgresqlTemplate":
        template = cls(server_url, f"template_{os.getpid()}")
        template._execute(f"CREATE DATABASE {template.name}")
        migrate(template._url(template.name), folder)
        return template

    def copy(self, folder: Path) -> Database:
        name = f"process_{os.getpid()}_{next(numbers)}"
        self._execute(f"CREATE DATABASE {name} TEMPLATE {self.name}")
        return Database("postgresql", self._url(name))

    def drop(self, database: Database) -> None:
        self._execute(f"DROP DATABASE {database.url.rpartition('/')[2]} WITH (FORCE)")

    def _url(self, name: str) -> str:
        return f"{self.server_url.rpartition('/')[0]}/{name}"

    def _execute(self, sql: str) -> None:
        with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
            connection.execute(sql.encode())
