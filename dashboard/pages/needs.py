"""What needs a person, of one workspace: the overview shows all of it, the list of runs those it holds."""

from __future__ import annotations

from dataclasses import dataclass

from dashboard.pages.run_filter import Filter
from runs import receipts
from runs.models import Run, Workspace

SILENT_SHOWN, COUNTED = 5, 1000


def at_most(total: int) -> str:
    """The number, or that it is more than was counted."""
    return f"more than {COUNTED}" if total > COUNTED else str(total)


@dataclass(frozen=True)
class Silent:
    """Runs in motion of whose workers nothing is heard, the longest silence first: they need a person."""

    runs: list[Run]
    total: int
    everything: str

    @property
    def counted(self) -> str:
        return at_most(self.total)

    @property
    def left_out(self) -> int:
        return self.total - len(self.runs)


def silent_in(workspace: Workspace) -> Silent:
    """Of the whole workspace: two queries, one when there is none."""
    rows = Run.objects.filter(receipts.is_silent(), workspace=workspace)
    first = list(rows.order_by("silent_at", "pk")[:SILENT_SHOWN])
    total = rows[: COUNTED + 1].count() if len(first) == SILENT_SHOWN else len(first)
    return Silent(first, total, Filter(workspace, status="silent").address())
