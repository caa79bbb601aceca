"""All drills, in the order in which they are carried out."""

from __future__ import annotations

from . import failures
from .engine import Drill

DRILLS: list[Drill] = [*failures.ALL]
BY_NAME = {drill.name: drill for drill in DRILLS}
