"""The stops of a workspace: those that are open, those that stand, and those that are over."""

from __future__ import annotations

from django.db import DatabaseError, InterfaceError
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_GET

from dashboard import scope_words
from dashboard.pages.everywhere import standing_for
from dashboard.pages.planned_rows import planned_in, planned_rows
from dashboard.pages.shell import Shell, build_shell, is_region, signed_in, workspace_of
from dashboard.pages.stop_rows import StopRow, in_force, rows_of
from runs.access import DRILLS
from runs.models import STANDING, StopRequest, Workspace

SHOWN, STANDING_SHOWN, COUNTED, PLANNED = 25, 50, 1000, 3


class StopList:
    """One look at the stops of a workspace, as of now; bounded, and the rest counted."""

    def __init__(self, workspace: Workspace, shell: Shell, before: str) -> None:
        self.workspace, self.now, self.before = workspace, shell.now, before
        open_ones = in_force(workspace.pk).filter(self._shown).order_by("-number")
        standing, acting = open_ones.filter(scope__in=STANDING), open_ones.exclude(scope__in=STANDING)
        found = rows_of(_any_of(standing[: STANDING_SHOWN + 1], acting[: SHOWN + 1]), shell.now)
        self.standing = [row for row in found if row.stop.scope in STANDING][:STANDING_SHOWN]
        self.acting = [row for row in found if row.stop.scope not in STANDING][:SHOWN]
        self.planned = planned_rows(
            planned_in(workspace.pk)[:PLANNED], shell.now, user_id=None, may_stop=shell.may_stop
        )
        self.total = open_ones.order_by()[: COUNTED + 1].count()
        over = self._over()
        self.history = rows_of(over[: SHOWN + 1], shell.now)
        self.older = self._older()
        self.history = self.history[:SHOWN]

    @property
    def _shown(self) -> Q:
        """Stops of runs of drills stand in no list but that of their own workspace."""
        return Q() if self.workspace.slug == DRILLS else ~Q(run__drill=True)

    def _over(self) -> QuerySet[StopRequest]:
        ended = Q(closed_at__isnull=False) | Q(released_at__isnull=False) | Q(superseded_by__isnull=False)
        rows = StopRequest.objects.filter(
            ended, self._shown, workspace=self.workspace, scope_stop__isnull=True
        )
        if self.before.isascii() and self.before.isdigit() and len(self.before) < 18:
            rows = rows.filter(number__lt=int(self.before))
        return rows.order_by("-number")

    def _older(self) -> str:
        if len(self.history) <= SHOWN:
            return ""
        last = self.history[SHOWN - 1].stop.number
        return reverse("stops", query={"workspace": self.workspace.slug, "before": last})

    @property
    def left_out(self) -> int:
        """Open ones that are not listed."""
        return self.total - len(self.standing) - len(self.acting)

    @property
    def counted(self) -> str:
        return f"more than {COUNTED}" if self.total > COUNTED else str(self.total)

    @property
    def overdue(self) -> list[StopRow]:
        """Standing stops that nobody looked at again in time."""
        return [row for row in self.standing if row.overdue]

    @property
    def summary(self) -> str:
        return f"{len(self.standing)} standing, {len(self.acting)} more open"

    @property
    def region(self) -> str:
        asked = {"workspace": self.workspace.slug, "before": self.before}
        return reverse("stops", query={name: value for name, value in asked.items() if value})


def _any_of(*lists: QuerySet[StopRequest]) -> QuerySet[StopRequest]:
    """The rows of bounded lists, read in one statement, newest first."""
    chosen = [number for rows in lists for number in rows.values_list("pk", flat=True)]
    return StopRequest.objects.filter(pk__in=chosen).order_by("-number")


@require_GET
def stops_page(request: HttpRequest) -> HttpResponseBase:
    """GET /stops/ : the page, or its live region. Where the store does not answer, it says so."""
    try:
        return show(request)
    except (DatabaseError, InterfaceError):
        told = {"head": "The store did not answer", "say": "What is in force stays in force."}
        told |= {"sentence": scope_words.UNREACHABLE, "href": request.get_full_path(), "link": "Try again"}
        return render(request, "error.html", told, status=503)


@signed_in
def show(request: HttpRequest) -> HttpResponse:
    workspace = workspace_of(request)
    shell = build_shell(request, "stops", workspace)
    before = request.GET.get("before", "")[:20]
    told = {"shell": shell, "now": shell.now, "list": StopList(workspace, shell, before)}
    told |= {"topic": f"workspace:{workspace.pk}:runs", "wide": standing_for(request)}
    told |= {"empty": scope_words.NO_STOP, "overdue": scope_words.OVERDUE}
    if is_region(request):
        return render(request, "stops/_fragment.html", told | {"region": True})
    return render(request, "stops/page.html", told)
