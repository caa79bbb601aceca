"""The list of reports: the newest version of each, filters in the address, a page at a time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import OuterRef, Subquery
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from dashboard import words
from dashboard.pages.needs import COUNTED, at_most
from dashboard.pages.report_filter import FINAL, SIGNED, Filter
from dashboard.pages.shell import build_shell, signed_in, workspace_of
from dashboard.reports.queries import name_actors
from dashboard.words import Term
from effects.models import Report, SignOff
from runs.models import Session, StopRequest, Workspace

SHOWN, SESSIONS, STOPS = 25, 100, 500
SIGNERS = 3  # named in a row; the rest are counted


@dataclass(frozen=True)
class Row:
    """One report: its newest version, who asked for the stop of its run, and who signed that version."""

    report: Report
    term: Term
    stop: int | None
    who: str
    signed: str

    @property
    def final(self) -> str:
        return "final" if self.report.final else "not final"


class ReportList:
    """One page of the list: four queries, whatever the number of reports."""

    def __init__(self, asked: Filter, now: datetime) -> None:
        self.asked, self.now = asked, now
        stops = StopRequest.objects.filter(run=OuterRef("run")).order_by("-number")
        page = asked.rows().select_related("run__session", "run__workspace")
        page = page.annotate(
            stop=Subquery(stops.values("number")[:1]), who=Subquery(stops.values("actor")[:1])
        )
        found: list[Any] = list((page.filter(pk__lt=asked.before) if asked.before else page)[: SHOWN + 1])
        self.rows = _rows(found[:SHOWN])
        self.older = asked.address(before=found[SHOWN - 1].pk) if len(found) > SHOWN else ""
        self.total = asked.rows().values("pk")[: COUNTED + 1].count()

    @property
    def newest(self) -> str:
        """The address of the first page."""
        return self.asked.address(before="")

    @property
    def counted(self) -> str:
        return at_most(self.total)

    @property
    def empty(self) -> str:
        """Why there is no row: none · past · signed · drills · unmatched; "" where there is one."""
        if self.rows:
            return ""
        if self.asked.before:
            return "past"
        if self.asked.only_unsigned and self._any():
            return "signed"
        if self.asked.narrowed:
            return "unmatched"
        return "drills" if self.asked.hides_drills and self._any(drills=True) else "none"

    def _any(self, drills: bool = False) -> bool:
        return Filter(self.asked.workspace, drills=drills).rows().exists()


def _rows(found: list[Any]) -> list[Row]:
    signed: dict[str, list[str]] = {}
    mine = SignOff.objects.filter(report__in=[row.pk for row in found]).order_by("pk")
    for report, person in mine.values_list("report_id", "person_id"):
        signed.setdefault(report, []).append(f"user:{person}")
    shown = {who for people in signed.values() for who in people[:SIGNERS]}
    names = name_actors({*shown, *(row.who for row in found if row.who)})
    return [_row(row, signed.get(row.pk, []), names) for row in found]


def _row(row: Any, signed: list[str], names: dict[str, str]) -> Row:
    people = [words.brief(names.get(who, who)) for who in signed[:SIGNERS]]
    people += [f"{len(signed) - SIGNERS} more"] if len(signed) > SIGNERS else []
    term = words.run_chip(row.run.status, row.outcome)
    term = term if row.outcome == "not ended" else words.OUTCOME.get(row.outcome, term)
    who = words.brief(names.get(row.who, row.who)) if row.who else ""
    return Row(row, term, row.stop, who, words.listed(people))


def choices(workspace: Workspace) -> dict[str, Any]:
    """What the filters offer; those who asked are those of the newest stops."""
    newest = StopRequest.objects.filter(workspace=workspace, run__isnull=False).order_by("-pk")
    named = name_actors(set(newest.values_list("actor", flat=True)[:STOPS]))
    return {
        "sessions": Session.objects.filter(workspace=workspace).order_by("-created_at")[:SESSIONS],
        "people": sorted(named.items(), key=lambda one: one[1].casefold()),
        "outcomes": [(name, term.word) for name, term in words.OUTCOME.items()],
        "finals": FINAL,
        "signs": SIGNED,
    }


@require_GET
@signed_in
def reports_page(request: HttpRequest) -> HttpResponse:
    """GET /reports/ : one page of the list."""
    workspace = workspace_of(request)
    asked = Filter.read(workspace, request.GET)
    shell = build_shell(request, "reports", workspace)
    told = {"shell": shell, "now": shell.now, "list": ReportList(asked, shell.now), "asked": asked}
    return render(request, "reports/page.html", told | choices(workspace))
