"""Key files are whole, one for all who start together, for their owner alone, and never in the database."""

import stat
import threading
from pathlib import Path

import pytest
from django.core.checks import CheckMessage
from pytest_django.fixtures import Settings

from dashboard import checks, data
from runs import keyring


@pytest.fixture
def place(tmp_path: Path, settings: Settings) -> Path:
    settings.ALLSTOP_KEYS = tmp_path
    return tmp_path


def found() -> list[CheckMessage]:
    return [message for message in checks.installation(None) if "key file" in message.msg]


def test_up_makes_both_keys_for_their_owner_alone_and_keeps_them(place: Path) -> None:
    data.prepare(place)
    keys = [keyring.read(name) for name in keyring.NAMES]
    data.prepare(place)
    assert [keyring.read(name) for name in keyring.NAMES] == keys
    assert len(set(keys)) == 2
    assert {len(key) for key in keys} == {32}
    assert {stat.S_IMODE((place / name).stat().st_mode) for name in keyring.NAMES} == {0o600}
    assert not [path for path in place.iterdir() if path.name.startswith("seal.key.")]
    assert found() == []


def test_those_who_start_together_agree_on_one_key(place: Path) -> None:
    start = threading.Barrier(8)
    seen: list[str] = []

    def begin() -> None:
        start.wait()
        keyring.make(place / keyring.SEAL)
        seen.append((place / keyring.SEAL).read_text())

    sides = [threading.Thread(target=begin) for _ in range(8)]
    for side in sides:
        side.start()
    for side in sides:
        side.join()
    assert len(seen) == 8
    assert len(set(seen)) == 1


def test_reading_makes_no_key_and_a_key_that_was_replaced_is_read_again(place: Path) -> None:
    with pytest.raises(keyring.KeyUnreadable, match=r"seal\.key can't be read \(No such file"):
        keyring.read(keyring.SEAL)
    assert list(place.iterdir()) == []
    keyring.make(place / keyring.SEAL, b"a" * 32)
    assert keyring.read(keyring.SEAL) == b"a" * 32
    keyring.replace(place / keyring.SEAL, b"b" * 32)
    assert keyring.read(keyring.SEAL) == b"b" * 32


@pytest.mark.parametrize("text", ["", "zz" * 32, "aa" * 31, "aa" * 33])
def test_what_is_no_key_is_named_without_its_content(place: Path, text: str) -> None:
    keyring.prepare(place)
    (place / keyring.SEAL).write_text(text)
    with pytest.raises(keyring.KeyUnreadable, match=r"^seal\.key is no key of 32 bytes in hex$"):
        keyring.read(keyring.SEAL)


def test_a_key_that_is_gone_or_open_to_others_is_a_warning_and_stops_no_server(place: Path) -> None:
    keyring.prepare(place)
    (place / keyring.SEAL).unlink()
    (place / keyring.REDACTION).chmod(0o644)
    told = found()
    assert [message.id for message in told] == ["allstop.W014", "allstop.W015"]
    assert not any(message.is_serious() for message in told)
    assert all(message.hint for message in told)
