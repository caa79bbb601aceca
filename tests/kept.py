"""Rows that several tests look at: made once, in a transaction around the transactions of these tests.

What a test writes is undone at its end, as always; what was made before all of them stays until the last one.
Never beside a test with `transaction=True`: that one would commit them.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from django.db import connection, transaction

Made = TypeVar("Made")


def kept(blocker: Any, make: Callable[[], Made]) -> Iterator[Callable[[], Made]]:
    """The body of a fixture of a wider scope: yields a function that gives a copy of what was made.

    `blocker` is pytest-django's django_db_blocker; the fixture asks for django_db_setup as well.
    """
    around = transaction.atomic()
    # Verbs are durable: they begin in a transaction of a test and in no other one.
    around._from_testcase = True  # type: ignore[attr-defined]
    with blocker.unblock():
        around.__enter__()
    try:
        with blocker.unblock():
            made = make()
        yield lambda: copy.deepcopy(made)
    finally:
        with blocker.unblock():
            transaction.set_rollback(True)
            around.__exit__(None, None, None)
            assert not connection.in_atomic_block
