"""What may happen to a message, given to the launcher in place of the function that sends one.

`never` is for good. `as_told` reads before each message how it is to come: the word in the file that
TESTS_MESSAGES names, which a test may change while the processes run.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

Send = Callable[..., object]
# Ticks are no wake-ups: they come as ever.
TICKS = ("effects.tasks.sweep", "effects.tasks.reconcile_due", "runs.tasks.seal", "dashboard.tasks.issue_due")
LATE_S = 3.0


def never(real: Send, *args: object, **kwargs: object) -> None:
    """Nothing is sent, not even a tick."""


def as_told(real: Send, app: object, name: str, *args: object, **kwargs: object) -> None:
    """`lost`, `five times`, `late`; anything else comes as it should."""
    how = "" if name in TICKS else told()
    if how == "late":
        later(real, app, name, *args, **kwargs)
        return
    for _ in range({"lost": 0, "five times": 5}.get(how, 1)):
        real(app, name, *args, **kwargs)


def told() -> str:
    file = Path(os.environ["TESTS_MESSAGES"])
    return file.read_text().strip() if file.exists() else ""


def later(real: Send, *args: object, **kwargs: object) -> None:
    timer = threading.Timer(LATE_S, real, args, kwargs)
    timer.daemon = True
    timer.start()
