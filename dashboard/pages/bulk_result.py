"""What a bulk stop came to so far, above the list that it was pressed from."""

from __future__ import annotations

from dataclasses import dataclass, field

from dashboard import scope_words
from runs import fanout
from runs.fanout import Progress
from runs.models import Result, ScopeKind, StopPart, StopRequest, Workspace

KEPT = 1000


@dataclass(frozen=True)
class BulkResult:
    """A bulk stop by its parts; `kept`: runs that it did not stop, which stay selected."""

    stop: StopRequest
    progress: Progress
    kept: frozenset[str] = field(default_factory=frozenset)

    @property
    def over(self) -> bool:
        """Whether every run had its turn."""
        return self.progress.done == self.progress.total

    @property
    def says(self) -> str:
        return scope_words.tally(self.progress.results)

    @property
    def refused(self) -> int:
        return self.progress.results[Result.NOT_PERMITTED]


def result_of(workspace: Workspace, stop_id: str) -> BulkResult | None:
    """None when the workspace has no such bulk stop."""
    if not stop_id:
        return None
    stop = StopRequest.objects.filter(pk=stop_id, workspace=workspace, scope=ScopeKind.BULK).first()
    if stop is None:
        return None
    progress = fanout.progress(stop)
    left = StopPart.objects.filter(stop=stop, result=Result.NOT_PERMITTED)
    kept = left.values_list("run", flat=True)[:KEPT] if progress.results[Result.NOT_PERMITTED] else []
    return BulkResult(stop, progress, frozenset(kept))
