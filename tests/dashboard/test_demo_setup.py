"""Setting up the demo: once, again, and where it can't."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_django import Settings

from dashboard.demo import setup, start
from dashboard.demo.setup import PasswordFile, password_in, prepare
from dashboard.demo.start import World
from effects.models import Kind
from runs.access import token_of
from runs.models import Membership, User, Workspace

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def worlds(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Iterator[list[World]]:
    """Every world that a test prepares; all are ended afterwards."""
    settings.ALLSTOP_OUTBOUND_ORIGINS = []
    made: list[World] = []
    monkeypatch.setattr(start, "WORLDS", {})
    monkeypatch.setattr(setup, "WORLDS", start.WORLDS)
    yield made
    for world in made:
        world.stop()


def test_the_demo_has_people_kinds_and_an_outside_world(
    worlds: list[World], tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: Settings
) -> None:
    worlds.append(prepare(url="http://127.0.0.1:1", data=tmp_path))
    workspace = Workspace.objects.get(name="Finance demo")
    roles = {m.user.email: m.role for m in Membership.objects.filter(workspace=workspace)}
    assert roles == {"alice@demo.example": "admin", "bob@demo.example": "reviewer"}
    kind = Kind.objects.get(workspace=workspace, name="bank.charge")
    assert kind.lookup["url"] == f"{worlds[0].bank}/charges?key={{key}}"
    assert [worlds[0].bank, worlds[0].mailer] == settings.ALLSTOP_OUTBOUND_ORIGINS
    password = capsys.readouterr().out.rpartition("password: ")[2].strip()
    assert all(User.objects.get(email=email).check_password(password) for email in roles)
    assert {workspace.pk: worlds[0]} == start.WORLDS
    assert (tmp_path / "demo").stat().st_mode & 0o077 == 0


def test_a_second_start_keeps_the_people_and_prints_no_password(
    worlds: list[World], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        worlds.append(prepare(url="http://127.0.0.1:1", data=tmp_path))
        worlds[-1].stop()
    first, second = capsys.readouterr().out.splitlines()
    assert "password: " in first
    assert "printed the first time" in second
    assert (User.objects.count(), Workspace.objects.count(), Kind.objects.count()) == (2, 1, 3)
    worlds.clear()


def test_a_password_file_is_made_for_its_owner_alone_and_obeyed_the_next_time(
    worlds: list[World], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "password"
    worlds.append(prepare(url="http://127.0.0.1:1", data=tmp_path, password_file=file))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    password = file.read_text().strip()
    assert password not in capsys.readouterr().out
    assert User.objects.get(email="alice@demo.example").check_password(password)
    file.write_text("another one\n")
    worlds.append(prepare(url="http://127.0.0.1:1", data=tmp_path, password_file=file))
    assert User.objects.get(email="alice@demo.example").check_password("another one")


def test_a_password_file_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(PasswordFile, match="can't be used"):
        password_in(tmp_path / "no" / "password")


def test_an_agent_gets_a_token_of_its_own_that_may_not_stop(worlds: list[World], tmp_path: Path) -> None:
    worlds.append(prepare(url="http://127.0.0.1:1", data=tmp_path))
    first, second = worlds[0].new_token(), worlds[0].new_token()
    assert first != second
    token = token_of(first)
    assert token is not None
    assert token.scopes == ["runs:read", "runs:write"]
    assert token.expires_at is not None
