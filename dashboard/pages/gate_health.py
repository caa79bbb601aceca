"""Are the workers of a workspace behind a gate, and are they heard? What the overview says of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, Exists, OuterRef, Q

from runs.models import FINAL, Receipt, Run, Worker, Workspace

HEARD = timedelta(minutes=1)
NAMED = 3


@dataclass(frozen=True)
class GateHealth:
    """Of the workers of runs that have not ended: heard within the last minute, ever seen at a gate.

    `silent`: the ones of whom nothing was heard for longest. `tools`: runs with tools that run at a provider.
    """

    workers: int
    heard: int
    at_gate: int
    tools: int
    silent: list[Worker]

    @property
    def more(self) -> int:
        """Those that are silent too, and not named."""
        return self.workers - self.heard - len(self.silent)

    @property
    def never(self) -> int:
        return self.workers - self.at_gate


def health_of(workspace: Workspace, now: datetime) -> GateHealth:
    """Three queries, two where everybody was heard just now."""
    live = Run.objects.filter(workspace=workspace).exclude(status__in=FINAL).order_by()
    workers = Worker.objects.filter(run__in=live.values("pk"))
    at_gate = Exists(Receipt.objects.filter(run=OuterRef("run"), worker=OuterRef("name")))
    told = workers.annotate(gated=at_gate).aggregate(
        workers=Count("pk"),
        heard=Count("pk", filter=Q(last_heard_at__gte=now - HEARD)),
        at_gate=Count("pk", filter=Q(gated=True)),
    )
    behind = told["workers"] > told["heard"]
    oldest = workers.filter(last_heard_at__lt=now - HEARD).order_by("last_heard_at", "name")
    silent = list(oldest.select_related("run")[:NAMED]) if behind else []
    return GateHealth(**told, tools=live.exclude(ungateable=[]).count(), silent=silent)
