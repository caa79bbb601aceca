"""What a stop refused since, and what one that only observes would have refused; both are only counted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, F, Max, Q, QuerySet, Sum

from .models import Refusal, Run, StopRequest, WouldRefuse
from .store import Now

AT_MOST = 20_000  # rows that one count looks at: each is one run at one boundary, so many are a lot


@dataclass(frozen=True)
class Refused:
    """How often, and when last; `more`: there are further rows that were not counted."""

    count: int
    last_at: datetime | None
    more: bool = False


def refused_since(stop: StopRequest) -> Refused:
    """What this stop refused: at its own gate, and in the runs that it stopped."""
    mine = StopRequest.objects.filter(Q(pk=stop.pk) | Q(scope_stop=stop)).values("pk")
    return _summed(Refusal.objects.filter(stop__in=mine))


def would_have_refused(stop: StopRequest) -> Refused:
    """What this stop, which only observes, would have refused."""
    return _summed(WouldRefuse.objects.filter(stop=stop))


def _summed(rows: QuerySet[Any]) -> Refused:
    some = rows.model._default_manager.filter(pk__in=rows.order_by("-pk").values("pk")[:AT_MOST])
    found = some.aggregate(n=Sum("count"), last=Max("last_at"), rows=Count("pk"))
    return Refused(found["n"] or 0, found["last"], more=found["rows"] == AT_MOST)


def would_refuse(stop: StopRequest, boundary: str, run: Run | None = None) -> None:
    """Count it, under the lock of the run; of admissions, under that of the workspace."""
    rows = WouldRefuse.objects.filter(stop=stop, run=run, boundary=boundary)
    if not rows.update(count=F("count") + 1, last_at=Now()):
        WouldRefuse.objects.create(stop=stop, run=run, boundary=boundary)
