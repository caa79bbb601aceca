"""The report as a PDF file; where none can be made, a sentence that says why and the way to print."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from dashboard import reports
from dashboard.pages.report import version_of
from dashboard.pages.shell import actor_of, build_shell, signed_in
from dashboard.reports import Report
from dashboard.reports.pdf import pdf
from dashboard.reports.typesetting import NoPdf
from dashboard.restored import missing_for
from runs import access
from runs.models import Run


@require_GET
@signed_in
def report_pdf(request: HttpRequest, run_id: str) -> HttpResponse:
    """GET /runs/<id>/report.pdf?version=<n> : the document, tagged, as a file."""
    run = access.find_run(actor_of(request), run_id)
    version = version_of(request)
    try:
        return pdf_file(run, version)
    except NoPdf as error:
        shell = build_shell(request, "reports", run.workspace)
        told: dict[str, Any] = {"shell": shell, "now": shell.now, "run": run, "version": version}
        return render(request, "report/no_pdf.html", told | {"why": type(error).__doc__}, status=503)


def pdf_file(run: Run, version: int | None) -> HttpResponse:
    """The answer with the file. Raises NotFound, NoPdf."""
    report: Report = reports.load(run.pk, version)
    body = pdf(report, "" if report.draft else missing_for(report.run.admitted_at))
    answer = HttpResponse(body, content_type="application/pdf")
    name = f"{run.pk}-report-{report.version or 'draft'}.pdf"
    answer["Content-Disposition"] = f'inline; filename="{name}"'
    return answer
