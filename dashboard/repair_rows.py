"""Compensations as pages and reports count them: by state, and those that failed and wait for a decision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet

from effects.close import Repair
from effects.models import Compensation, CompensationState

FAILED = CompensationState.FAILED


def unanswered(rows: QuerySet[Compensation]) -> QuerySet[Any, Any]:
    """Those that failed, with neither a decision nor a later one for the same effect."""
    later = Compensation.objects.filter(effect=OuterRef("effect"), number__gt=OuterRef("number"))
    found: QuerySet[Any, Any] = rows.filter(~Exists(later), state=FAILED)
    return found


def repairs(counts: Mapping[str, int], open_failures: int) -> list[Repair]:
    """What the outcome function is told: each state that there is, and whether a failure is open."""
    found = [Repair(str(state)) for state, number in counts.items() if number]
    return [*found, Repair(str(FAILED), open=True)] if open_failures else found


def needs(counts: Mapping[str, int]) -> list[str]:
    """What the open ones need: approval, execution, verification, a decision about what failed."""
    wanted = {"PROPOSED": "approval", "APPROVED": "execution", "DISPATCHED": "verification"}
    found = [word for state, word in wanted.items() if counts.get(state)]
    return found or (["a decision about what failed"] if counts.get(FAILED) else [])
