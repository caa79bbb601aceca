"""A backup: one file of one moment, whole or refused, that replaces nothing and keeps nobody waiting."""

from __future__ import annotations

import gzip
import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib.sessions.models import Session

from dashboard import backup
from dashboard.backup import BadBackup
from runs.models import Run
from tests.races.sides import sides
from tests.worlds import World

database = pytest.mark.django_db(transaction=True)
DUMP = min((Path(__file__).parents[1] / "dumps").glob("*.jsonl.gz"))


def lines_of(file: Path) -> list[Any]:
    return [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]


@database
def test_a_backup_holds_every_table_but_sessions_and_is_for_its_owner_alone(tmp_path: Path) -> None:
    world = World()
    world.stop(world.run("nightly-42"))
    Session.objects.create(session_key="of somebody", session_data="x", expire_date="2100-01-01T00:00Z")
    taken = backup.take(tmp_path / "one", "1.0")
    assert stat.S_IMODE(taken.file.stat().st_mode) == 0o600
    assert backup.check(taken.file) == taken
    assert (taken.rows["runs.run"], taken.rows["runs.user"], taken.rows["runs.stoprequest"]) == (1, 5, 1)
    everything = {model._meta.label_lower for model in apps.get_models(include_auto_created=True)}
    assert everything - set(taken.rows) == {"sessions.session", "account.emailconfirmation"}
    assert b"of somebody" not in gzip.decompress(taken.file.read_bytes())
    with pytest.raises(FileExistsError):
        backup.take(taken.file, "1.0")
    assert [file.name for file in tmp_path.iterdir()] == ["one"]


@database
def test_a_stop_is_recorded_while_a_backup_reads_and_the_backup_shows_one_moment(tmp_path: Path) -> None:
    """The reader stands in the middle of its tables; a stop comes and goes; the file knows nothing of it."""
    world = World()
    run = world.run("nightly-42")
    with sides() as make:
        taking = make("backup", lambda: backup.take(tmp_path / "one", "1.0"), hold='SELECT "runs_evidence"')
        hold_on_postgresql(taking)
        stopper = make("stop", lambda: world.stop(run))
        assert stopper.result().answer == "recorded"
        assert Run.objects.get().status == "CANCELLING"
        taken = taking.result()
    rows = [line for line in lines_of(taken.file) if isinstance(line, list) and run.pk in line]
    assert taken.rows["runs.stoprequest"] == taken.rows["runs.press"] == 0
    assert any("ACTIVE" in row for row in rows)
    assert not any("CANCELLING" in row for row in rows)


def hold_on_postgresql(taking: Any) -> None:
    taking.stands()


Harm = Callable[[list[bytes]], list[bytes]]
HARMS: dict[str, tuple[Harm, str]] = {
    "cut off": (lambda lines: lines[:-1], "ends in the middle"),
    "cut off in its header": (lambda lines: lines[:1], "ends in the middle"),
    "empty": (lambda lines: [], "ends in the middle"),
    "a row less": (lambda lines: [*lines[:-3], *lines[-2:]], "digest does not fit"),
    "a row changed": (lambda lines: [line.replace(b"CANCELLING", b"ACTIVE") for line in lines], "digest"),
    "a line more": (lambda lines: [*lines, lines[-1]], "lines behind its last one"),
    "of another format": (
        lambda lines: [b'{"format":"allstop.backup/2"}\n', *lines[1:]],
        "of the format",
    ),
    "of another program": (lambda lines: [b"[1,2]\n", *lines[1:]], "no backup of Allstop"),
    "no JSON": (lambda lines: [b"PGDMP\n"], "no JSON"),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_file_that_is_not_as_it_was_written_is_refused(tmp_path: Path, harm: str) -> None:
    change, says = HARMS[harm]
    lines = gzip.decompress(DUMP.read_bytes()).splitlines(keepends=True)
    assert any(b"CANCELLING" in line for line in lines)
    file = tmp_path / "harmed"
    file.write_bytes(gzip.compress(b"".join(change(lines)), 1))
    with pytest.raises(BadBackup, match=says):
        backup.check(file)
    assert sum(backup.check(DUMP).rows.values()) > 100


@pytest.mark.parametrize("cut", [0, 30, 2000])
def test_a_file_that_can_not_be_unpacked_is_refused(tmp_path: Path, cut: int) -> None:
    file = tmp_path / "cut"
    file.write_bytes(DUMP.read_bytes()[:cut] if cut else b"SQLite format 3\0")
    with pytest.raises(BadBackup, match=r"can't be unpacked"):
        backup.check(file)
