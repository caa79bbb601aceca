"""What the runs of one client share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from allstop.outbox import Outbox
from allstop.talk import Answer, Ask

Send = Callable[[Ask], Answer]


@dataclass(frozen=True)
class Pace:
    """How often and how long, in seconds; see Client."""

    heartbeat_s: float
    report_for_s: float
    lease_s: float


@dataclass(frozen=True)
class Link:
    """worker: the name that it goes by · give_up_s: all tries of one call · outbox: facts not yet heard."""

    worker: str
    pace: Pace
    give_up_s: float
    outbox: Outbox
