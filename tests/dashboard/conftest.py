"""What several files of this room need."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from runs import keyring


@pytest.fixture
def place(tmp_path: Path, settings: Settings) -> Path:
    """A folder in which the installation has keys of its own, under `keys`."""
    settings.ALLSTOP_KEYS = tmp_path / "keys"
    keyring.prepare(tmp_path / "keys")
    return tmp_path
