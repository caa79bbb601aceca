"""Evidence lines that a report reads by their kind: the run's moments, and what came late."""

from __future__ import annotations

from typing import Any

from django.db.models import Q, QuerySet

from effects.models import Ground
from runs.models import Evidence

from .queries import newest

LATE_ROWS = 200
EFFECTIVE = ("stop.acknowledged", "stop.bound")
MOMENTS = (
    *EFFECTIVE,
    "run.admitted",
    "run.completed",
    "run.failed",
    "run.cancelled",
    "run.unknown",
    "run.abandoned",
    "run.paused",
    "run.restored",
    "run.resumed",
    "step.stopped",
    "stop.superseded",
    "stop.deadline_forced",
    "stop.has_children",
    "stop.passed_on",
    "stop.fenced",
    "stop.quiet",
    "stop.timed_out",
    "stop.closed",
)
LATE = ("permit.reported_late", "permit.not_sent_late")
ENDS = ("run.completed", "run.failed", "run.cancelled", "run.abandoned")
CONTRADICTED = ("effect.unknown", "delivery.unknown")
# On these grounds nothing becomes unknown but by contradiction; that of a late report has its own line.
BY_OTHERS = (Ground.LOOKED_UP, Ground.WEBHOOK, Ground.INSPECTED, Ground.DECIDED)


def late_lines(lines: QuerySet[Evidence]) -> QuerySet[Evidence]:
    """Of a run's lines: what holders reported late, and what contradicted it after its end."""
    end = newest(lines.filter(kind__in=ENDS).order_by("-seq"))
    against = Q(kind__in=CONTRADICTED, ground__in=BY_OTHERS, seq__gt=end)
    return lines.filter(Q(kind__in=LATE) | against)


def is_late(line: Any, end: int) -> bool:
    """The same of a line that was read, of a run that ended with line `end` (0: it has not)."""
    against = line.kind in CONTRADICTED and line.ground in BY_OTHERS
    return line.kind in LATE or (against and 0 < end < line.seq)
