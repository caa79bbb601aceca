"""A setting that could lose a stop or open a door is named at the start, with an id and what to do."""

import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks
from django.db import connection
from pytest_django.fixtures import Settings

from dashboard import checks
from runs import keyring
from tests.processes import ROOT
from tests.worlds import a_kind, a_workspace


def ids(found: list[Any]) -> list[str]:
    assert all(message.hint for message in found)
    return [message.id for message in found]


@pytest.mark.django_db
def test_an_installation_as_shipped_has_nothing_to_say() -> None:
    assert ids(run_checks(databases=["default"])) == []


def test_a_missing_key_and_missing_hosts_are_errors(settings: Settings) -> None:
    settings.SECRET_KEY, settings.ALLOWED_HOSTS = "", []
    assert ids(checks.installation(None)) == ["allstop.E001", "allstop.E002"]


def test_a_server_that_answers_to_any_name_is_an_error(settings: Settings) -> None:
    settings.ALLOWED_HOSTS = ["*"]
    assert ids(checks.installation(None)) == ["allstop.E002"]


@pytest.mark.parametrize(("version", "found"), [("4.2.1", ["allstop.E003"]), ("4.2.2", []), ("4.10.0", [])])
def test_an_old_daphne_is_an_error(version: str, found: list[str]) -> None:
    assert ids(checks._daphne(version)) == found


@pytest.mark.parametrize(
    ("origins", "found"),
    [
        ([], ["allstop.E004"]),
        (["https://stop.example.com", "stop.example.com"], ["allstop.E004"]),
        (["https://stop.example.com/"], ["allstop.E004"]),
        (["*"], ["allstop.E004"]),
        (["https://stop.example.com:8443", "http://[::1]:8000"], []),
    ],
)
def test_pages_need_an_exact_origin(settings: Settings, origins: list[str], found: list[str]) -> None:
    settings.ALLSTOP_ORIGINS = origins
    assert ids(checks.installation(None)) == found


@pytest.mark.parametrize(("name", "value"), [("USE_TZ", False), ("TIME_ZONE", "Europe/Berlin")])
def test_moments_are_kept_in_utc(settings: Settings, name: str, value: object) -> None:
    setattr(settings, name, value)
    assert ids(checks.installation(None)) == ["allstop.E005"]


def test_debug_pages_are_warned_of(settings: Settings) -> None:
    settings.DEBUG = True
    assert ids(checks.installation(None)) == ["allstop.W001"]


@pytest.mark.parametrize(("size", "found"), [(4, ["allstop.E018"]), (5, []), (20, [])])
def test_a_pool_without_connections_for_stops_is_an_error(size: int, found: list[str]) -> None:
    assert ids(checks._pool({"OPTIONS": {"pool": {"max_size": size}}})) == found


def test_a_broker_that_is_away_is_a_warning_and_no_command_waits_for_it(settings: Settings) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        settings.REDIS_URL = f"redis://127.0.0.1:{listening.getsockname()[1]}/0"
        assert ids(checks.broker(["default"])) == ["allstop.W011"]
        assert checks.broker(None) == []
        listening.listen()
        assert checks.broker(["default"]) == []
    settings.REDIS_URL = ""
    assert checks.broker(["default"]) == []


@pytest.mark.django_db
def test_kinds_that_this_server_can_not_send_are_warned_of(settings: Settings) -> None:
    settings.EMAIL_CONFIGURED, settings.ALLSTOP_CHROMIUM = False, "/nowhere/chromium"
    assert checks.providers(["default"]) == []
    home = a_workspace()
    for name in ("browser", "email", "http"):
        a_kind(home, name, provider=name)
    assert ids(checks.providers(["default"])) == ["allstop.W012", "allstop.W013"]
    assert checks.providers(None) == []


@pytest.mark.parametrize(
    ("file", "found"),
    [("/srv/share/a b/x.sqlite3", 1), ("/srv/share/local/x.sqlite3", 0), ("/home/x.sqlite3", 0)],
)
def test_sqlite_on_a_network_share_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str, found: int
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/sda / ext4 rw 0 0\nhost:/x /srv/share nfs4 rw 0 0\n"
        "/dev/sdb /srv/share/local ext4 rw 0 0\nhost:/y /srv/share/a\\040b cifs rw 0 0\n"
    )
    monkeypatch.setattr(checks, "MOUNTS", mounts)
    assert ids(checks._network(Path(file))) == ["allstop.W010"] * found


@pytest.mark.only("sqlite")
@pytest.mark.django_db
@pytest.mark.parametrize(
    ("sql", "value", "found"),
    [("PRAGMA journal_mode", "delete", "allstop.E015"), ("PRAGMA synchronous", 1, "allstop.E010")],
)
def test_a_setting_of_sqlite_that_can_not_be_relied_on_is_an_error(
    monkeypatch: pytest.MonkeyPatch, sql: str, value: object, found: str
) -> None:
    answer_otherwise(monkeypatch, sql, value)
    assert ids(checks.durability(["default"])) == [found]


@pytest.mark.only("sqlite")
@pytest.mark.django_db
def test_sqlite_whose_writers_start_as_readers_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "transaction_mode", "DEFERRED")
    assert ids(checks.durability(["default"])) == ["allstop.E011"]


@pytest.mark.only("postgresql")
@pytest.mark.django_db
@pytest.mark.parametrize(
    ("sql", "value", "found"),
    [
        ("SHOW synchronous_commit", "off", "allstop.E012"),
        ("SHOW fsync", "off", "allstop.E013"),
        ("SHOW transaction_isolation", "serializable", "allstop.E014"),
        ("SHOW idle_in_transaction_session_timeout", "0", "allstop.E016"),
        ("SHOW transaction_read_only", "on", "allstop.E017"),
    ],
)
def test_a_setting_of_postgresql_that_can_not_be_relied_on_is_an_error(
    monkeypatch: pytest.MonkeyPatch, sql: str, value: object, found: str
) -> None:
    answer_otherwise(monkeypatch, sql, value)
    assert ids(checks.durability(["default"])) == [found]


def answer_otherwise(monkeypatch: pytest.MonkeyPatch, sql: str, value: object) -> None:
    """Have the database answer one question otherwise, for what no session can change."""
    real = checks._value
    monkeypatch.setattr(checks, "_value", lambda on, asked: value if asked == sql else real(on, asked))


@pytest.mark.only("sqlite")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("mode", "found"), [("OFF", 1), ("NORMAL", 1), ("FULL", 0), ("EXTRA", 0)])
def test_sqlite_that_does_not_wait_for_the_disk_is_an_error(mode: str, found: int) -> None:
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"PRAGMA synchronous={mode}")
        assert ids(checks.durability(["default"])) == ["allstop.E010"] * found
    finally:
        connection.close()


@pytest.mark.only("postgresql")
@pytest.mark.django_db
@pytest.mark.parametrize(("mode", "found"), [("off", 1), ("local", 1), ("on", 0), ("remote_apply", 0)])
def test_postgresql_that_acknowledges_early_is_an_error(mode: str, found: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL synchronous_commit = {mode}")
    assert ids(checks.durability(["default"])) == ["allstop.E012"] * found


@pytest.mark.only("postgresql")
@pytest.mark.django_db(transaction=True)
def test_another_isolation_is_an_error() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    try:
        assert ids(checks.durability(["default"])) == ["allstop.E014"]
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED")


@pytest.mark.only("postgresql")
@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("default_transaction_isolation", "read committed"),
        ("idle_in_transaction_session_timeout", "5s"),
        ("statement_timeout", "10s"),
        ("lock_timeout", "3s"),
    ],
)
def test_every_connection_to_postgresql_has_its_limits(name: str, value: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SHOW {name}")
        assert cursor.fetchone() == (value,)


@pytest.mark.only("sqlite")
@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "value"), [("journal_mode", "wal"), ("synchronous", 2), ("foreign_keys", 1)]
)
def test_every_connection_to_sqlite_keeps_what_it_acknowledged(name: str, value: str | int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA {name}")
        assert cursor.fetchone() == (value,)


def test_a_production_setting_passes_the_checks_for_deployment(tmp_path: Any) -> None:
    environ = {
        "SECRET_KEY": "a long random text with many different letters 0123456789 and signs !?",
        "ALLSTOP_DATA": str(tmp_path),
        "ALLSTOP_HOSTS": "stop.example.com",
        "ALLSTOP_ORIGINS": "https://stop.example.com",
        "ALLSTOP_BEHIND_PROXY": "true",
    }
    keyring.prepare(tmp_path)  # as `up` does
    command = [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_page_for_operators_names_every_check() -> None:
    written = set(re.findall(r'id="allstop\.([EW]\d{3})"', (ROOT / "dashboard/checks.py").read_text()))
    assert set(re.findall(r"\b[EW]\d{3}\b", (ROOT / "docs/operating.md").read_text())) == written
