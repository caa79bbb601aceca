"""What may happen to a message, given to the launcher in place of the functions that send one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

Send = Callable[..., Any]
TICKS = ("effects.tasks.sweep", "effects.tasks.reconcile_due", "runs.tasks.seal", "dashboard.tasks.issue_due")
LATE_S = 4.0


def never(real: Send, *args: object, **kwargs: object) -> None:
    """Nothing is sent, not even a tick."""


def lost(real: Send, app: object, name: str, *args: object, **kwargs: object) -> object:
    """Ticks come; every wake-up is lost."""
    return real(app, name, *args, **kwargs) if name in TICKS else None


def five_times(real: Send, app: object, name: str, *args: object, **kwargs: object) -> None:
    """Everything comes five times."""
    for _ in range(5):
        real(app, name, *args, **kwargs)


def late(real: Send, app: object, name: str, *args: object, **kwargs: object) -> None:
    """Wake-ups come seconds later; the ticks do not come at all."""
    if name not in TICKS:
        timer = threading.Timer(LATE_S, real, (app, name, *args), kwargs)
        timer.daemon = True
        timer.start()
