"""Coverage: which workers were seen at a gate, what they confirmed, and what no gate of ours can see."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from dashboard.pages.gate_health import health_of
from dashboard.pages.shell import build_shell, is_region, signed_in, workspace_of


@require_GET
@signed_in
def coverage_page(request: HttpRequest) -> HttpResponse:
    """GET /coverage : the whole of a workspace, or its live region."""
    workspace = workspace_of(request)
    shell = build_shell(request, "stops", workspace)
    told = {"shell": shell, "now": shell.now, "health": health_of(workspace, shell.now)}
    told |= {"topic": f"workspace:{workspace.pk}:runs", "region": is_region(request)}
    return render(request, "coverage/_fragment.html" if is_region(request) else "coverage/page.html", told)
