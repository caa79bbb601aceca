"""Pages for what went wrong. They touch no table: the store may be what failed."""

from __future__ import annotations

import re
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render

from dashboard import words
from dashboard.front import request_id
from dashboard.pages.shell import wants_json

STOP_PATH = re.compile(r"^/(runs/([^/]+/)?stop|stop/scope|stops/new|stop/everywhere|gate/shut)$")


def failed(request: HttpRequest, status: int, head: str, sentence: str, **more: Any) -> HttpResponse:
    """An error page; when a stop was being asked for, it says loudly that there is none."""
    lost_stop = request.method == "POST" and bool(STOP_PATH.match(request.path)) and status < 500
    if wants_json(request):
        answer: dict[str, Any] = {"detail": sentence}
        if lost_stop:
            answer |= {"recorded": False, "sentence": f"{sentence} {words.MAY_STILL_START}"}
        return JsonResponse(answer, status=status)
    facts = {"head": head, "sentence": sentence, "not_recorded": lost_stop, **more}
    return render(request, "error.html", facts, status=status)


def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """The same page for what is absent and for what is not yours."""
    return failed(
        request,
        404,
        "There is nothing here",
        "This address names nothing that you can see. It may belong to another workspace, or to nobody.",
        say="Absent and not yours look the same, on purpose.",
        href="/",
        link="Go to the overview",
    )


def forbidden(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """A member asked for what the role does not allow."""
    return failed(
        request,
        403,
        "Your role does not allow this",
        "Nothing was changed. Ask an admin of your workspace, or someone who may do it.",
        say="Roles decide who may stop, and who may only look.",
        href="/",
        link="Go to the overview",
    )


def csrf_failed(request: HttpRequest, reason: str = "") -> HttpResponse:
    """The form was older than the sign-in, or came from elsewhere."""
    return failed(
        request,
        403,
        "The page was too old",
        "Nothing was changed. You signed in again since it was loaded; load it and send it once more.",
        say="A form counts only from a page that you opened.",
        href=request.path,
        link="Load it again",
    )


def too_many(request: HttpRequest) -> HttpResponse:
    """Too many sign-ins from one address. Who is signed in, or shows a token, is not held up by it."""
    answer = failed(
        request,
        429,
        "Too many sign-ins from here",
        "Nothing was changed. Wait a minute, then sign in.",
        say="Who is signed in already can stop a run all the while.",
        href=request.get_full_path(),
        link="Sign in",
    )
    answer.headers["Retry-After"] = "60"
    return answer


def server_error(request: HttpRequest) -> HttpResponse:
    """We do not know how far it got: the retry with the same key finds out."""
    return failed(
        request,
        500,
        "We could not answer",
        "We do not know whether what you asked for was recorded. Open the page again to see.",
        say="An answer that was lost says nothing about what happened.",
        href=request.path,
        link="Open it again",
        error_id=request_id(request),
    )
