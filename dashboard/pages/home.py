"""The theme and the help."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_GET, require_POST

from dashboard.pages.shell import page, signed_in

YEAR_S = 31_536_000
NEXT_THEME = {"": "dark", "dark": "light", "light": ""}


@require_POST
def theme(request: HttpRequest) -> HttpResponse:
    """POST /theme : the system's choice, dark, light, and around again; kept in a cookie."""
    chosen = NEXT_THEME.get(request.COOKIES.get("theme", ""), "")
    answer = redirect(_back(request))
    answer.set_cookie("theme", chosen, max_age=YEAR_S, samesite="Lax", secure=request.is_secure())
    return answer


def _back(request: HttpRequest) -> str:
    came_from = request.headers.get("Referer", "")
    safe = url_has_allowed_host_and_scheme(came_from, {request.get_host()}, request.is_secure())
    return came_from if safe else "/"


@require_GET
@signed_in
def help_page(request: HttpRequest) -> HttpResponse:
    """GET /help : what Stop can and cannot do, and the keys."""
    return page(request, "help.html", current="help")
