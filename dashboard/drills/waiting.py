"""Waiting for something to become true, never longer than said."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LONG_S = 20.0


def until(true: Callable[[], T], within_s: float = LONG_S, every_s: float = 0.03) -> T:
    """What it comes to, once that is true; what it last came to when time is up."""
    end = time.monotonic() + within_s
    while not (found := true()) and time.monotonic() < end:
        time.sleep(every_s)
    return found
