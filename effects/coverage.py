"""Coverage of a workspace: what its gates see (runs/coverage.py), and the kinds of its effects."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import BooleanField, Count, ExpressionWrapper, Max, Q, QuerySet

from runs import coverage
from runs.coverage import DAYS, Seen

from .models import Effect, Kind, Settlement

KINDS = 200  # at most so many of each are told


@dataclass(frozen=True)
class KindUse:
    """A kind of effect and how often it was declared. An unregistered one is `opaque`: nobody looks it up,
    nobody compensates it, and it is unknown when its answer is lost. `unknown`: so many are that now.
    """

    name: str
    registered: bool
    op_class: str
    provider: str
    can_look_up: bool
    effects: int
    unknown: int
    last_at: datetime | None


@dataclass(frozen=True)
class Coverage:
    """What is seen, the registered kinds by name, and the opaque ones, those of most effects first."""

    seen: Seen
    registered: list[KindUse]
    opaque: list[KindUse]
    more: bool

    @property
    def effects(self) -> int:
        """Effects of the kinds that are told."""
        return sum(kind.effects for kind in (*self.registered, *self.opaque))

    @property
    def opaque_effects(self) -> int:
        """Of those, how many have no registered kind."""
        return sum(kind.effects for kind in self.opaque)


def of_workspace(workspace_id: str, days: int = DAYS) -> Coverage:
    """The coverage of a workspace: six queries, whatever its size."""
    seen = coverage.seen(workspace_id, days)
    used = _used(workspace_id, seen.since)
    rows = Kind.objects.filter(workspace_id=workspace_id).order_by("name")
    kinds: QuerySet[Any, Any] = rows.values("name", "op_class", "provider", "lookup")[: KINDS + 1]
    known = [_registered(kind, used.pop((kind["name"], True), {})) for kind in kinds]
    opaque = [_opaque(name, use) for (name, registered), use in used.items() if not registered]
    opaque.sort(key=lambda kind: (-kind.effects, kind.name))
    more = len(known) > KINDS or len(opaque) > KINDS
    return Coverage(seen, known[:KINDS], opaque[:KINDS], more)


def _used(workspace_id: str, since: datetime) -> dict[tuple[str, bool], dict[str, Any]]:
    """By name, and whether it was registered when it was declared: how many effects there are of it."""
    known = ExpressionWrapper(Q(kind__isnull=False), BooleanField())
    rows = Effect.objects.filter(coverage.recent(since, "run__"), run__workspace_id=workspace_id)
    told = (
        rows.order_by()
        .annotate(known=known)
        .values("kind_name", "known")
        .annotate(
            effects=Count("pk"),
            unknown=Count("pk", filter=Q(settlement=Settlement.UNKNOWN)),
            last_at=Max("declared_at"),
        )
    )
    return {(row.pop("kind_name"), row.pop("known")): row for row in told}


def _registered(kind: dict[str, Any], use: dict[str, Any]) -> KindUse:
    looks_up = bool(kind.pop("lookup"))
    return KindUse(**kind, registered=True, can_look_up=looks_up, **(use or NO_USE))


def _opaque(name: str, use: dict[str, Any]) -> KindUse:
    return KindUse(name, registered=False, op_class="", provider="", can_look_up=False, **use)


NO_USE: dict[str, Any] = {"effects": 0, "unknown": 0, "last_at": None}
