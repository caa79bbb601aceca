"""What a stop of all workspaces came to, workspace by workspace; for those who run the installation.

It says how far each is and no more: what the runs of a workspace did is told to its members, by the report
of the stop that it has in there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from dashboard import words
from dashboard.pages.everywhere import demand
from dashboard.pages.shell import build_shell, signed_in
from dashboard.pages.stop_rows import who_said
from dashboard.reports.scope_rows import WITHOUT_A_STOP
from effects.models import Effect, Settlement
from runs import everywhere
from runs.access import NotFound
from runs.models import StopPart, StopRequest, WideStop, Workspace

SHOWN = 200


@dataclass(frozen=True)
class Place:
    """One workspace under it: `closed` of `runs`, nothing of the stop is open there."""

    stop: StopRequest
    runs: int
    closed: int


class WideReport:
    """All workspaces of one such stop: six queries, whatever the number of runs."""

    def __init__(self, wide: WideStop) -> None:
        self.wide, self.who = wide, who_said([wide.actor])[wide.actor]
        self.stops = StopRequest.objects.filter(wide=wide)
        self.workspaces = Workspace.objects.count()
        over = Q(run_stop__closed_at__isnull=False) | Q(result__in=WITHOUT_A_STOP)
        rows = StopPart.objects.filter(stop__in=self.stops).order_by().values_list("stop")
        told = {pk: (n, closed) for pk, n, closed in rows.annotate(n=Count("pk"), c=Count("pk", filter=over))}
        found = self.stops.select_related("workspace").order_by("workspace__name", "pk")
        self.shut = self.stops.count()
        self.places = [Place(stop, *told.get(stop.pk, (0, 0))) for stop in found[:SHOWN]]
        self.runs = sum(n for n, _ in told.values())
        self.closed = sum(closed for _, closed in told.values())

    @cached_property
    def fenced(self) -> int:
        return self.stops.filter(fenced_at__isnull=False).count()

    @cached_property
    def held(self) -> int:
        """Workspaces that its stop holds."""
        return everywhere.scopes_of([self.wide]).count()

    @cached_property
    def unknown(self) -> int:
        runs = StopPart.objects.filter(stop__in=self.stops).values("run")
        return Effect.objects.filter(run__in=runs, settlement=Settlement.UNKNOWN).count()

    @property
    def final(self) -> bool:
        return bool(self.wide.released_at) and not self.held and self.closed == self.runs and not self.unknown

    @property
    def says(self) -> Iterator[str]:
        """How far it is, and what is open."""
        yield f"{self.shut} of {words.count(self.workspaces, 'gate')} shut by it."
        yield f"In {self.fenced} of {words.count(self.shut, 'workspace')} each run had its turn."
        yield f"{self.closed} of {words.count(self.runs, 'run')} closed."
        unknown = words.count(self.unknown, "effect is", "effects are")
        yield f"{unknown} unknown." if self.unknown else "No effect of these runs is unknown."
        if self.wide.released_at:
            yield f"It was released at {words.moment_utc(self.wide.released_at)}. That started nothing."
            if self.held:
                still = words.count(self.held, "workspace is still shut", "workspaces are still shut")
                yield f"{still} by its stop: a second person has to grant that release."
        else:
            yield "It stands: each gate stays shut, and a workspace that is made meanwhile is born shut."


@require_GET
@signed_in
def wide_report_page(request: HttpRequest, wide_id: str) -> HttpResponse:
    """GET /stop/everywhere/<id>/report : nobody else learns that there are other workspaces."""
    demand(request)
    wide = WideStop.objects.filter(pk=wide_id).first()
    if wide is None:
        raise NotFound("stop")
    shell = build_shell(request, "stops", None)
    told = {"shell": shell, "now": shell.now, "page": WideReport(wide), "shown": SHOWN}
    told |= {"reason": dict(words.REASONS).get(wide.reason, words.clean(wide.reason))}
    return render(request, "scope_report/wide.html", told)
