"""Shapes that break a promise, given to the launcher in place of ours: the checker has to notice each.

Those of the server do it to one run alone, named by its order.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

Real = Callable[..., Any]

UNLISTED, FORGOTTEN, GATELESS, GUESSED = "unlisted", "forgotten", "gateless", "sent-plain"


def no_look(real: Real, permit: object) -> None:
    """The client sends without a second look."""


def guess(real: Real, effect: Any, why: str) -> None:
    """A lost lease is taken for proof that nothing happened."""
    if effect.key == GUESSED:
        type(effect).deny(effect, "reported")
    else:
        real(effect, why)


def forget(real: Any, actor: object, wish: object, key: str, run_id: str) -> Any:
    """A stop is acknowledged before it is committed, and then it never is."""
    from django.db import transaction

    from runs import store

    if FORGOTTEN not in key:
        return real(actor, wish, key, run_id)
    with transaction.atomic():
        answer = real.__wrapped__(actor, wish, key, run_id)
        tell = store._alongside.get()
        assert tell is not None
        tell(answer)
        transaction.set_rollback(True)
    return answer


def let_pass(real: Real, run: Any, *rest: object) -> Any:
    """The gate does not look at the run."""
    return None if run.key == GATELESS else real(run, *rest)


def list_nothing(real: Real, rows: object, made: Any, *rest: object, **more: object) -> Any:
    """The stop's list of what was in flight is left empty."""
    made = list(made)
    stop = getattr(made[0], "stop", None) if made else None
    return [] if stop is not None and stop.run_key == UNLISTED else real(rows, made, *rest, **more)


def everybody(real: Real, crowd: object) -> AbstractContextManager[None]:
    """No call waits for a place: all connections are for whoever comes first."""
    return nullcontext()
