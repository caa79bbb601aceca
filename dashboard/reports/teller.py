"""Who tells: the rows, the clock, and how a claim is made."""

from __future__ import annotations

from typing import Any

from .model import Claim
from .rows import Rows
from .sentences import clock_of

ENDS = ("run.completed", "run.failed", "run.cancelled", "run.abandoned")


class Teller:
    """The rows of one report and its clock; `stop` is the one in force, None before one."""

    def __init__(self, rows: Rows) -> None:
        self.rows, self.clock = rows, clock_of(rows)
        self.run, self.stop = rows.run, rows.in_force

    def at(self, moment: Any) -> str:
        return self.clock.at(moment)


def say(text: str, *lines: int | None, lead: str = "", stress: str = "", effect: str = "") -> Claim:
    """A claim; the anchor is given later, lines that do not exist are left away."""
    return Claim("", text, sorted({line for line in lines if line}), lead, stress, effect)
