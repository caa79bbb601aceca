"""The report's page."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse


def report_page(request: HttpRequest, run_id: str) -> HttpResponse:
    """GET /runs/<id>/report"""
    raise Http404
