"""Builds that break a promise, given to the launcher in place of ours: the drills have to notice.

Each takes the real function as its first argument, as `tests.kills.launcher --instead` gives it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

Real = Callable[..., Any]


def ignore_the_version(real: Real, run: Any, seen_version: int, is_open: bool) -> str | None:
    """The gate looks at the scopes above, and at neither version nor status of the run."""
    return None if is_open else "stopped"


def look_no_more(real: Real, permit_id: str, token: str) -> Any:
    """The second look says "open", whatever happened since the permit was given."""
    return replace(real(permit_id, token), answer="open")


def call_it_settled(real: Real, run: Any) -> bool:
    """What timed out is called cancelled: an unknown effect holds no run back from its end."""
    return False


def resume_anyway(real: Real, run: Any, *rest: Any) -> str | None:
    """A resume asks nobody what became of the run's effects."""
    return real(run, *rest) if run.status != "PAUSED" else None
