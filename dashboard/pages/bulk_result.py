"""What a bulk stop came to so far, above the list that it was pressed from."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from django.db.models import Count

from dashboard import scope_words
from runs.models import Result, ScopeKind, StopPart, StopRequest, Workspace

KEPT = 1000


@dataclass(frozen=True)
class BulkResult:
    """A bulk stop by its parts; `kept`: runs that it did not stop, which stay selected."""

    stop: StopRequest
    results: Counter[str]
    kept: frozenset[str] = field(default_factory=frozenset)

    @property
    def total(self) -> int:
        return self.results.total()

    @property
    def done(self) -> int:
        return self.total - self.results[Result.PENDING]

    @property
    def over(self) -> bool:
        """Whether every run had its turn."""
        return not self.results[Result.PENDING]

    @property
    def says(self) -> str:
        return scope_words.tally(self.results)

    @property
    def refused(self) -> int:
        return self.results[Result.NOT_PERMITTED]


def results_of(stop: StopRequest) -> Counter[str]:
    """Its parts by result: one query, whatever their number."""
    rows = StopPart.objects.filter(stop=stop).order_by().values_list("result").annotate(n=Count("pk"))
    return Counter(dict(rows))


def result_of(workspace: Workspace, stop_id: str) -> BulkResult | None:
    """None when the workspace has no such bulk stop."""
    if not stop_id:
        return None
    stop = StopRequest.objects.filter(pk=stop_id, workspace=workspace, scope=ScopeKind.BULK).first()
    if stop is None:
        return None
    results = results_of(stop)
    left = StopPart.objects.filter(stop=stop, result=Result.NOT_PERMITTED)
    kept = left.values_list("run", flat=True)[:KEPT] if results[Result.NOT_PERMITTED] else []
    return BulkResult(stop, results, frozenset(kept))
