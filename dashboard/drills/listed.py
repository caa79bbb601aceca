"""All drills, in the order in which they are carried out."""

from __future__ import annotations

from . import failures, failures_outside, scenarios_begun, scenarios_held
from .engine import Drill

DRILLS: list[Drill] = [
    *failures.ALL,
    *failures_outside.ALL,
    *scenarios_begun.ALL,
    *scenarios_held.ALL,
]
BY_NAME = {drill.name: drill for drill in DRILLS}
