"""A limit on every test: one that hangs fails with its stack instead of stopping all the others."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

ORDINARY, LONG = 240, 1800  # seconds


@contextmanager
def limited(item: pytest.Item) -> Iterator[None]:
    seconds = LONG if item.get_closest_marker("long") else ORDINARY

    def expired(*_: object) -> None:
        pytest.fail(f"This test took more than {seconds} s.")

    before = signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
