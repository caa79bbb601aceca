"""A restore that is killed leaves the database as it was: without a table, or with all that it had."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.databases import Database
from tests.processes import ROOT, Processes

pytestmark = [pytest.mark.kill, pytest.mark.long]
DUMP = min((ROOT / "tests" / "dumps").glob("*.jsonl.gz"))
BEFORE_COMMIT = "dashboard.restore.restore:commit"
STATE = (
    "SELECT 'workspace', id, gate, epoch FROM runs_workspace UNION ALL"
    " SELECT 'run', id, status, cancel_version FROM runs_run UNION ALL"
    " SELECT 'lines', stream, '', COUNT(*) FROM runs_evidence GROUP BY stream"
)


@pytest.fixture
def processes(empty: Database, tmp_path: Path) -> Iterator[Processes]:
    made = Processes(tmp_path, empty.url)
    (tmp_path / "data").mkdir()
    yield made
    made.end()


def tables(database: Database) -> int:
    return len(
        database.rows("SELECT name FROM sqlite_master")
        if database.kind == "sqlite"
        else database.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    )


def restore(processes: Processes, *words: str, at: str = "", answer: str = "") -> tuple[int, str]:
    """The exit code, and what was said. `at`: killed there, and the mark says that it was reached."""
    mark = processes.folder / "mark"
    launcher = ["-m", "tests.kills.launcher", "--at", at, "--mark", str(mark), "--"] if at else []
    ended = subprocess.run(
        [sys.executable, *launcher, "manage.py", "restore", str(DUMP), *words],
        cwd=ROOT,
        env=processes.environment(),
        input=answer,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert not at or at in mark.read_text()
    return ended.returncode, ended.stdout + ended.stderr


@pytest.mark.invariant("I3")
def test_a_restore_that_is_killed_before_its_commit_leaves_no_table(
    empty: Database, processes: Processes
) -> None:
    assert restore(processes, at=BEFORE_COMMIT)[0] == -9
    assert tables(empty) == 0


@pytest.mark.parametrize(
    "at", [BEFORE_COMMIT, "dashboard.restore.load:after", "effects.restore.put_to_rest:after"]
)
def test_a_replacement_that_is_killed_leaves_what_was_there(
    empty: Database, processes: Processes, at: str
) -> None:
    code, said = restore(processes)
    assert (code, "A STOP THAT WAS ACKNOWLEDGED IN THAT TIME IS LOST" in said) == (0, True), said
    before = empty.rows(STATE)
    assert len(before) > 5
    code, said = restore(processes)
    assert (code, "holds an installation already" in said) == (1, True)
    assert restore(processes, "--replace", at=at, answer="replace\n")[0] == -9
    assert sorted(empty.rows(STATE)) == sorted(before)
    code, said = restore(processes, "--replace", answer="replace\n")
    assert code == 0, said
    assert empty.value("SELECT COUNT(*) FROM runs_restore") == 1
    assert {row[3] for row in empty.rows(STATE) if row[0] == "workspace"} == {3}, "no epoch a second time"
