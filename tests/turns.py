"""Two passes at the same time, as long as their tests leave each other room; then one after the other.

The file named by ALLSTOP_TEST_TURN is locked: shared at first, by a pass that needs the machine for itself.
A lock ends with its holder, however that ends.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

_held: list[int] = []


def shared() -> bool:
    """Take the file together with other passes. False when nobody shares anything here."""
    name = os.environ.get("ALLSTOP_TEST_TURN", "")
    if not name:
        return False
    _held.append(os.open(Path(name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC))
    fcntl.flock(_held[0], fcntl.LOCK_SH)
    return True


def alone(before: Callable[[], None], after: Callable[[], None]) -> None:
    """Wait, the first time, until no other pass shares the file; from then on all the others wait."""
    if not _held:
        return
    before()
    fcntl.flock(_held[0], fcntl.LOCK_UN)
    fcntl.flock(_held.pop(), fcntl.LOCK_EX)  # kept by the open file until this process ends
    after()
