"""What `manage.py test` finds or installs, and what it says when it can't; how it adds up its passes."""

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dashboard.management.commands import test
from tests import browsers, servers, tools

PYTHON = sys.executable


def program(path: Path, code: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nexit {code}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any browser or server, and without the right to install one."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "playwright"))
    for name in ("ALLSTOP_CHROMIUM", "ALLSTOP_TEST_SET_UP", "ALLSTOP_TEST_VALKEY", "ALLSTOP_TEST_POSTGRESQL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(servers, "_wheel", lambda package, pattern: [])
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter(()))
    browsers.chromium.cache_clear()
    return tmp_path


def test_a_program_is_taken_only_if_it_starts(tmp_path: Path) -> None:
    broken, good = program(tmp_path / "broken", 1), program(tmp_path / "good")
    assert tools.first_working([None, tmp_path / "absent", broken, good]) == good


def test_the_browser_named_in_the_environment_comes_first(
    nothing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(nothing / "bin" / "chromium")
    assert browsers.find() == nothing / "bin" / "chromium"
    monkeypatch.setenv("ALLSTOP_CHROMIUM", str(program(nothing / "mine")))
    assert browsers.find() == nothing / "mine"


def test_a_missing_browser_is_named_with_the_commands_that_bring_it(nothing: Path) -> None:
    with pytest.raises(tools.Missing, match=r"playwright install chromium, or apt-get install chromium"):
        browsers.chromium()


def test_missing_servers_are_named_with_the_commands_that_bring_them(nothing: Path) -> None:
    with pytest.raises(tools.Missing, match="apt-get install postgresql"):
        servers.postgresql_binaries()
    with pytest.raises(tools.Missing, match="apt-get install valkey-server"):
        servers.valkey_binary()


def test_a_server_on_path_is_found_without_the_wheels(nothing: Path) -> None:
    program(nothing / "bin" / "postgres")
    program(nothing / "bin" / "redis-server")
    assert servers.postgresql_binaries() == nothing / "bin"
    assert servers.valkey_binary() == nothing / "bin" / "redis-server"


def test_what_is_missing_skips_a_test_but_fails_it_on_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception):
        tools.absent("no browser")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception):
        tools.absent("no browser")


# --- Adding up ----------------------------------------------------------------------------------------------


def test_the_last_line_counts_all_passes_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ALLSTOP_TEST_EARLIER", raising=False)
    counts = {"passed": 3, "failed": 0, "skipped": 1}
    for name, units, kills in (("sqlite", 60.0, 30.0), ("postgresql", 90.0, 36.0)):
        took = {"together": {"units": units}, "alone": {"kills": kills}}
        (tmp_path / name).write_text(json.dumps({"seconds": took, "counts": counts}))
    for name, browser in (("browser", 60.0), ("accessible", 48.0)):
        took = {"together": {"browser": browser}}
        (tmp_path / name).write_text(json.dumps({"seconds": took, "counts": counts}))
    test.report({name: test.read(tmp_path / name, 0) for name in test.PASSES})
    said = capsys.readouterr().out.splitlines()
    assert "  units              1.5" in said  # at the same time: the longer one counts
    assert "  kills              1.1" in said  # one after the other
    assert "  browser            1.0" in said  # at the same time, and after the others
    assert "  together           3.6" in said
    assert said[-1] == "12 passed, 0 failed, 4 skipped"


def test_a_pass_that_died_without_a_word_has_failed(tmp_path: Path) -> None:
    assert test.read(tmp_path / "absent", 3).counts["failed"] == 1
    assert test.read(tmp_path / "absent", test.NOTHING_COLLECTED).counts["failed"] == 0


@pytest.mark.parametrize(
    ("codes", "verdict"),
    [([0, 0, 0], 0), ([0, 5, 5], 0), ([5, 5, 5], 5), ([5, 1, 0], 1), ([0, 0, 130], 130)],
)
def test_one_bad_pass_is_a_bad_end(codes: list[int], verdict: int) -> None:
    assert test.verdict(codes) == verdict


def test_time_spent_before_the_tests_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLSTOP_TEST_EARLIER", "set-up=31;lint and types=20")
    assert test.earlier() == {"set-up": 31, "lint and types": 20}


# --- Passes at the same time --------------------------------------------------------------------------------


def passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **programs: str) -> list[test.Pass]:
    """Passes that run these lines of Python instead of pytest."""
    monkeypatch.setattr(sys, "executable", str(program(tmp_path / "bin" / "python")))
    (tmp_path / "bin" / "python").write_text(f'#!/bin/sh\nexec {PYTHON} "$3"\n')
    found = []
    for name, lines in programs.items():
        (tmp_path / f"{name}.py").write_text(lines)
        found.append(test.Pass(name, [str(tmp_path / f"{name}.py")], tmp_path, [*programs]))
    return found


def test_the_second_pass_is_shown_when_the_first_one_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    both = "import pathlib, time\nmine, other = map(pathlib.Path, ('{0}', '{1}'))\nmine.touch()\n" + (
        "while not other.exists(): time.sleep(0.01)\nprint('said by {2}', flush=True)"
    )
    a, b = str(tmp_path / "a"), str(tmp_path / "b")  # each waits for the other one
    made = passes(tmp_path, monkeypatch, sqlite=both.format(a, b, "one"), postgresql=both.format(b, a, "two"))
    assert test.run_together(made, hasty=False) == {"sqlite": 0, "postgresql": 0}
    told = ["--- Pass: sqlite", "said by one", "--- Pass: postgresql", "said by two"]
    assert capfd.readouterr().out.splitlines() == told


@pytest.mark.parametrize("hasty", [True, False])
def test_a_bad_pass_ends_the_other_one_only_when_that_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hasty: bool
) -> None:
    waits = "import time; time.sleep(60)" if hasty else ""
    made = passes(tmp_path, monkeypatch, sqlite=waits, postgresql="raise SystemExit(1)")
    codes = test.run_together(made, hasty=hasty)
    assert codes == ({"postgresql": 1} if hasty else {"sqlite": 0, "postgresql": 1})
    assert all(each.code is not None for each in made)


def test_who_starts_processes_waits_until_nobody_shares_the_machine(tmp_path: Path) -> None:
    lines = (
        "import functools, sys; from tests import turns; say = functools.partial(print, flush=True);"
        " turns.shared(); say('shares'); sys.stdin.readline();"
        " turns.alone(lambda: say('asks'), lambda: say('alone')); sys.stdin.readline()"
    )
    environ = {**os.environ, "ALLSTOP_TEST_TURN": str(tmp_path / "turn")}
    one, two = (
        subprocess.Popen(
            [PYTHON, "-c", lines], cwd=test.ROOT, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(2)
    )
    assert [hear(one), hear(two), tell(one), tell(two)] == ["shares", "shares", "asks", "asks"]
    first = one if one.stdout is ready(one, two) else two
    second = two if first is one else one
    assert hear(first) == "alone"
    assert ready(second, within_s=0.3) is None  # it waits, and the first one has not ended
    first.communicate(b"\n")
    assert hear(second) == "alone"
    second.communicate(b"\n")


def hear(process: "subprocess.Popen[bytes]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode().strip()


def tell(process: "subprocess.Popen[bytes]") -> str:
    """Let it go on; the line that it says then."""
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    return hear(process)


def ready(*processes: "subprocess.Popen[bytes]", within_s: float = 20) -> Any:
    """The output of the first one that has something to say."""
    pipes: list[Any] = [process.stdout for process in processes]
    found, _, _ = select.select(pipes, [], [], within_s)
    return found[0] if found else None
