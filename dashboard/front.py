"""The first thing that a request meets: its id, in and out, and the address that it came from."""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django.utils.decorators import sync_and_async_middleware
from structlog.contextvars import bound_contextvars

HEADER = "X-Request-Id"
USABLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{7,63}")
KEPT = "allstop.request_id"


def request_id(request: HttpRequest) -> str:
    """The id under which a request stands in the log, in its answer's header and on an error page."""
    found: str = request.META.setdefault(KEPT, secrets.token_hex(8))
    return found


def receive(request: HttpRequest) -> str:
    """Take the caller's id when it can be used. Behind a proxy, the address is the one that it met."""
    shown = request.headers.get(HEADER, "")
    if USABLE.fullmatch(shown):
        request.META[KEPT] = shown
    if settings.ALLSTOP_BEHIND_PROXY:
        nearest = request.headers.get("X-Forwarded-For", "").rpartition(",")[2].strip()
        request.META["REMOTE_ADDR"] = nearest or request.META.get("REMOTE_ADDR", "")
    return request_id(request)


@sync_and_async_middleware
def front(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Every event that is logged on the way carries the request's id."""
    if iscoroutinefunction(get_response):
        answer: Callable[[HttpRequest], Awaitable[HttpResponseBase]] = get_response

        async def meet(request: HttpRequest) -> HttpResponseBase:
            with bound_contextvars(request_id=receive(request)):
                return stamped(request, await answer(request))

        return meet

    def meet_here(request: HttpRequest) -> HttpResponseBase:
        with bound_contextvars(request_id=receive(request)):
            return stamped(request, get_response(request))

    return meet_here


def stamped(request: HttpRequest, answer: HttpResponseBase) -> HttpResponseBase:
    answer.headers[HEADER] = request_id(request)
    return answer
