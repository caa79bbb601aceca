"""What `manage.py test` finds or installs, and what it says when it can't; how it adds up its passes."""

import json
from pathlib import Path

import pytest

from dashboard.management.commands import test
from tests import browsers, servers, tools


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


def test_the_last_line_counts_all_passes_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts = {"passed": 3, "failed": 0, "skipped": 1}
    (tmp_path / "sqlite").write_text(json.dumps({"seconds": {"units": 60.0}, "counts": counts}))
    (tmp_path / "postgresql").write_text(json.dumps({"seconds": {"units": 30.0}, "counts": counts}))
    test.report([test.read(tmp_path / name, 0) for name in ("sqlite", "postgresql")])
    said = capsys.readouterr().out.splitlines()
    assert "  units              1.5" in said
    assert said[-1] == "6 passed, 0 failed, 2 skipped"


def test_a_pass_that_died_without_a_word_has_failed(tmp_path: Path) -> None:
    assert test.read(tmp_path / "absent", 3)[1]["failed"] == 1
    assert test.read(tmp_path / "absent", test.NOTHING_COLLECTED)[1]["failed"] == 0


@pytest.mark.parametrize(
    ("codes", "verdict"),
    [([0, 0, 0], 0), ([0, 5, 5], 0), ([5, 5, 5], 5), ([5, 1, 0], 1), ([0, 0, 130], 130)],
)
def test_one_bad_pass_is_a_bad_end(codes: list[int], verdict: int) -> None:
    assert test.verdict(codes) == verdict


def test_time_spent_before_the_tests_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLSTOP_TEST_EARLIER", "set-up=31;lint and types=20")
    assert test.earlier() == {"set-up": 31, "lint and types": 20}
