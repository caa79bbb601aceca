"""The report: a document that answers five questions, each claim with its evidence."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from dashboard import reports, words
from dashboard.pages.shell import actor_of, build_shell, is_region, signed_in
from dashboard.reports import RepairRow, Report
from dashboard.reports.sentences import effect_term
from dashboard.reports.signed import SignRow
from dashboard.reports.versions import EVERYTHING
from dashboard.reports.window import Wanted
from dashboard.restored import missing_for
from dashboard.words import Term
from runs import access
from runs.evidence import topics_of

SHOWN = 200
PAGES = 10_000
# Those in doubt first; a page names the groups in this order.
STATES = (
    *("UNKNOWN", "DISPATCHED", "ACCEPTED_UNKNOWN", "CONFIRMED"),
    *("PARTIAL", "NOT_APPLIED", "NOT_STARTED", "DECLARED"),
)


def version_of(request: HttpRequest) -> int | None:
    """The version that the address names; None for the newest. Anything unreadable does not exist."""
    text = request.GET.get("version")
    return None if text is None else number_of(text)


def number_of(text: str) -> int:
    """A version's number; anything unreadable does not exist."""
    if not (text.isascii() and text.isdigit() and len(text) < 8):
        raise Http404
    return int(text)


class ReportPage:
    """A report and what came after it; an issued version never changes under its reader."""

    def __init__(
        self,
        run_id: str,
        version: int | None,
        reader: str = "",
        may_sign: bool = False,
        wanted: Wanted = EVERYTHING,
    ) -> None:
        self.report: Report = reports.load(run_id, version, SHOWN, wanted)
        self.reader, self.may_sign, self.wanted = reader, may_sign, wanted
        issued = not self.report.draft
        self.since = reports.since(run_id, self.report.upto_seq) if issued else []
        self.missing = missing_for(self.report.run.admitted_at) if issued else ""
        if self.missing in self.report.method:  # issued after the restore, it says so itself
            self.missing = ""

    @property
    def unknown(self) -> int:
        return int(self.report.manifest.counts.get("UNKNOWN", 0))

    @property
    def unknown_term(self) -> Term:
        """What an unknown effect is called in this version."""
        return effect_term("UNKNOWN", self.report.status)

    @property
    def title(self) -> str:
        open_ones = f"({self.unknown}?) " if self.unknown else ""
        return f"{open_ones}Shutdown report · {self.report.run.name}"

    @property
    def is_long(self) -> bool:
        """Whether the manifest has more rows than one page shows, and is frozen: then it can be searched."""
        return not self.report.draft and self.report.manifest.total > SHOWN

    @property
    def groups(self) -> list[tuple[str, str, int, str]]:
        """Each settlement that occurs: value, word, number, address; those in doubt first."""
        counts = self.report.manifest.counts
        found = [state for state in STATES if counts.get(state)]
        word = {state: effect_term(state, self.report.status).word for state in found}
        return [
            (state, word[state], counts[state], self._at(Wanted(state, self.wanted.q))) for state in found
        ]

    @property
    def every(self) -> str:
        return self._at(EVERYTHING)

    @property
    def before(self) -> str:
        return self._at(self.wanted.at(self.wanted.page - 1)) if self.wanted.page > 1 else ""

    @property
    def after(self) -> str:
        more = self.report.matching > self.wanted.page * SHOWN
        return self._at(self.wanted.at(self.wanted.page + 1)) if more else ""

    def _at(self, wanted: Wanted) -> str:
        told = {"version": self.report.version, "state": wanted.state, "q": wanted.q}
        told |= {"page": wanted.page if wanted.page > 1 else ""}
        query = urlencode({name: value for name, value in told.items() if value})
        return f"?{query}#s-manifest"

    @property
    def favicon(self) -> str:
        return "unknown" if self.unknown else "normal"

    @property
    def who(self) -> str:
        """The name of the person or token that asked for the stop."""
        stop = self.report.stop
        return words.clean(self.report.names.get(stop.actor, stop.actor)) if stop else ""

    @property
    def repairs(self) -> list[tuple[RepairRow, str]]:
        """Each compensation with the names of those who approved it."""
        rows, names = self.report.repairs.rows, self.report.names
        people = [[words.clean(names.get(who, who)) for who in row.approved_by] for row in rows]
        return list(zip(rows, map(words.listed, people), strict=True))

    @property
    def reason(self) -> str:
        stop = self.report.stop
        return dict(words.REASONS).get(stop.reason, words.clean(stop.reason)) if stop else ""

    @property
    def signatures(self) -> list[tuple[SignRow, str]]:
        """Each sign-off of this version with its person's name."""
        names = self.report.names
        return [(row, words.clean(names.get(row.actor, row.actor))) for row in self.report.signatures]

    @property
    def asks_to_sign(self) -> bool:
        """Whether this reader may sign this version and has not."""
        signed = any(row.actor == self.reader for row in self.report.signatures)
        return self.may_sign and not self.report.draft and not signed

    @property
    def summary(self) -> str:
        """Said to those who listen when a newer version or new evidence is there."""
        newest = f". New evidence: version {self.report.newest} is available" if self.report.replaced else ""
        return f"{self.report.stamp}{newest}"


def _wanted(request: HttpRequest) -> Wanted:
    """What the reader looks for in a long manifest; anything unreadable is as if it were not there."""
    state, page = request.GET.get("state", ""), request.GET.get("page", "")
    number = int(page) if page.isascii() and page.isdigit() and len(page) < 6 else 1
    q = request.GET.get("q", "").replace("\0", "").strip()[:200]
    return Wanted(state if state in STATES else "", q, min(max(number, 1), PAGES))


def _shown(request: HttpRequest, run_id: str) -> int | None:
    """The version to show. Who reads a draft gets the first one when it is issued, and stays with it."""
    if request.GET.get("draft") == "1" and reports.newest(run_id):
        return 1
    return version_of(request)


@require_GET
@signed_in
def report_page(request: HttpRequest, run_id: str) -> HttpResponse:
    """GET /runs/<id>/report?version=<n> : the document, or its live region."""
    run = access.find_run(actor_of(request), run_id)
    shell = build_shell(request, "reports", run.workspace)
    page = ReportPage(
        run.pk, _shown(request, run.pk), actor_of(request).id, "sign" in shell.may, _wanted(request)
    )
    told: dict[str, Any] = {"shell": shell, "now": shell.now, "run": run, "page": page}
    told |= {"report": page.report, "topic": topics_of(run)[0]}
    if is_region(request):
        whole = request.GET.get("draft") == "1" or page.report.draft
        return render(request, "report/_fragment.html", told | {"region": True, "whole": whole})
    return render(request, "report/page.html", told)


@require_GET
@signed_in
def report_json(request: HttpRequest, run_id: str) -> HttpResponse:
    """GET /runs/<id>/report.json?version=<n> : the same document, complete, as a file."""
    run = access.find_run(actor_of(request), run_id)
    version = version_of(request)
    body = json.dumps(reports.read(run.pk, version), ensure_ascii=False, indent=2)
    answer = HttpResponse(body, content_type="application/json; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{run.pk}-report-{version or "newest"}.json"'
    return answer
