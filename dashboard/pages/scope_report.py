"""The report of a stop of many runs, as a page and as JSON."""

from __future__ import annotations

import json
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET

from dashboard import words
from dashboard.pages.scope_target import find_stop
from dashboard.pages.shell import actor_of, build_shell, is_region, signed_in
from dashboard.reports import scope
from dashboard.scope_words import RESULT
from runs import access, cursors
from runs.models import ScopeKind, StopRequest

OF_A_RUN = (ScopeKind.RUN, ScopeKind.STEP)


def found(request: HttpRequest, stop_id: str) -> StopRequest:
    return find_stop(actor_of(request), stop_id)


def asked(request: HttpRequest) -> tuple[str, str]:
    """The cursor and the result that the address names; anything unreadable is as if it were not there."""
    result, cursor = request.GET.get("result", ""), request.GET.get("cursor", "")[:120]
    return cursor if cursors.is_one(cursor) else "", result if result in RESULT else ""


def of_a_run(stop: StopRequest, name: str) -> HttpResponse:
    """The stop of one run, or of a step of it: its run's report tells of it."""
    if stop.run_id is None:
        raise access.NotFound("report")
    return redirect(name, stop.run_id)


@require_GET
@signed_in
def scope_report_page(request: HttpRequest, stop_id: str) -> HttpResponse:
    """GET /stops/<id>/report?cursor=&result= : the five answers and a page of runs, or the live region."""
    stop = found(request, stop_id)
    if stop.scope in OF_A_RUN:
        return of_a_run(stop, "report")
    shell = build_shell(request, "stops", stop.workspace)
    cursor, result = asked(request)
    report = scope.build(stop, cursor, result)
    told: dict[str, Any] = {"shell": shell, "now": shell.now, "stop": stop, "report": report}
    told |= {"result": result, "cursor": cursor, "results": RESULT, "region": is_region(request)}
    told |= {"reason": dict(words.REASONS).get(stop.reason, words.clean(stop.reason))}
    told |= {"topic": f"workspace:{stop.workspace_id}:runs", "address": request.get_full_path()}
    template = "scope_report/_fragment.html" if is_region(request) else "scope_report/page.html"
    return render(request, template, told)


@require_GET
@signed_in
def scope_report_json(request: HttpRequest, stop_id: str) -> HttpResponse:
    """GET /stops/<id>/report.json?cursor=&result= : the same, as a file; its runs a page at a time."""
    stop = found(request, stop_id)
    if stop.scope in OF_A_RUN:
        return of_a_run(stop, "report-json")
    body = json.dumps(scope.read(stop, *asked(request)), ensure_ascii=False, indent=2)
    answer = HttpResponse(body, content_type="application/json; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{stop.pk}-report.json"'
    return answer
