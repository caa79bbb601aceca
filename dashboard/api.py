"""The HTTP API v1: mounts the routers of all rooms, and turns whatever goes wrong into a problem.

No page documents it here: the schema is at /api/v1/openapi.json, the words in docs/api.md.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from typing import Annotated, Any

from django.db import InterfaceError, InternalError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.urls import URLPattern, URLResolver, include, path, re_path
from django.views.decorators.csrf import csrf_exempt
from ninja import NinjaAPI
from ninja.errors import HttpError, ValidationError
from ninja.parser import Parser
from pydantic import Field

import effects.account_api
import effects.api
import effects.compensation_api
import effects.coverage_api
import effects.delivery_api
import effects.gate_api
import effects.look_up_api
import effects.policy_api
import effects.retry_api
import effects.review_api
import effects.run_api
import effects.schedule_api
import effects.scope_api
import effects.stop_api
import effects.unknown_api
import runs.api
import runs.rules_api
import runs.turn_api
from runs import access, bodies, problems, throttle
from runs.api import READ, Cursor
from runs.idempotency import reply, send
from runs.models import Result, ScopeKind
from runs.problems import Problem
from runs.schemas import ProblemOut
from runs.tokens import TokenAuth, actor_of, address_of, is_stop

from . import auditing
from .crowd import crowd
from .front import request_id
from .notices import api as notices_api
from .packs import api as packs_api

log = logging.getLogger(__name__)
ERRORS_TOLD = 20
BINARY = {"type": "string", "format": "binary"}


class Strict(Parser):
    """JSON as runs.bodies reads it."""

    def parse_body(self, request: HttpRequest) -> dict[str, Any]:
        return bodies.object_of(request)


class Api(NinjaAPI):
    """Our problems are told as application/problem+json in the schema, too."""

    made: Any = None

    def get_openapi_schema(self, **options: Any) -> Any:
        """Made once: it is the same for everybody, and a second of work for whoever asks."""
        if self.made is None:
            self.made = self._make(**options)
        return self.made

    def _make(self, **options: Any) -> Any:
        schema = super().get_openapi_schema(**options)
        for operations in schema["paths"].values():
            for operation in operations.values():
                operation["responses"] = _told_as_problems(operation["responses"])
        return schema

    def get_openapi_operation_id(self, operation: Any) -> str:
        return str(operation.view_func.__name__)


def _told_as_problems(responses: dict[Any, Any]) -> dict[str, Any]:
    for status, response in responses.items():
        content = response.get("content", {})
        if int(status) >= 400 and "application/json" in content:
            content[problems.MEDIA_TYPE] = content.pop("application/json")
    return {str(status): responses[status] for status in sorted(responses)}


api = Api(
    title="Allstop",
    version="1",
    description="Stop long-running agent work, and learn the truth about what it did.",
    auth=TokenAuth(),
    parser=Strict(),
    docs_url=None,
    urls_namespace="api",
)
for router in (
    effects.run_api.router,
    runs.api.router,
    effects.api.router,
    effects.scope_api.router,
    effects.policy_api.router,
    effects.coverage_api.router,
    effects.schedule_api.router,
    effects.retry_api.router,
    effects.delivery_api.router,
    effects.review_api.router,
    effects.compensation_api.router,
    effects.gate_api.router,
    effects.account_api.router,
    effects.look_up_api.router,
    effects.unknown_api.router,
    runs.rules_api.router,
    runs.turn_api.router,
    notices_api.router,
    packs_api.router,
):
    api.add_router("", router)


@api.get("/runs/{id:run_id}/report", response={200: dict[str, Any], READ: ProblemOut})
def read_report(
    request: HttpRequest, run_id: str, version: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
) -> HttpResponse:
    """The report: an issued version (the newest by default), or the draft when none was issued."""
    from dashboard import reports

    access.find_run(actor_of(request), run_id)
    return send(reply(200, reports.read(run_id, version)))


PDF = {"responses": {200: {"description": "OK", "content": {"application/pdf": {"schema": BINARY}}}}}


@api.get("/runs/{id:run_id}/report.pdf", response={READ: ProblemOut}, openapi_extra=PDF)
def read_report_pdf(
    request: HttpRequest, run_id: str, version: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
) -> HttpResponse:
    """The report as PDF (PDF/UA-1); where none can be made, 503 and why. The JSON is always there."""
    from dashboard.pages.report_pdf import pdf_file
    from dashboard.reports.typesetting import NoPdf

    run = access.find_run(actor_of(request), run_id)
    try:
        return pdf_file(run, version)
    except NoPdf as error:
        raise Problem("no-pdf", str(type(error).__doc__)) from error


@api.get("/stops/{id:stop_id}/report", response={200: dict[str, Any], READ: ProblemOut})
def read_stop_report(
    request: HttpRequest, stop_id: str, cursor: Cursor = "", result: Result | None = None
) -> HttpResponse:
    """The report of a stop of many runs, as of now, with a page of them; of one run, that run's report."""
    from dashboard import reports
    from dashboard.reports import scope

    stop = effects.stop_api.find_stop(actor_of(request), stop_id)
    if stop.scope in (ScopeKind.RUN, ScopeKind.STEP):
        if stop.run_id is None:  # it waits for its run
            raise access.NotFound("report")
        return send(reply(200, reports.read(stop.run_id)))
    return send(reply(200, scope.read(stop, cursor, result or "")))


def schema_text() -> str:
    """The schema as docs/openapi.json holds it."""
    return json.dumps(api.get_openapi_schema(), indent=2, ensure_ascii=False) + "\n"


# what went wrong ----------------------------------------------------------------------------------


def told(request: HttpRequest, error: Exception) -> HttpResponse:
    """Any error as a problem. One that is not ours is logged, and a stop says that it is not confirmed."""
    problem = problem_of(request, error)
    auditing.refused_call(request, problem)
    return problems.respond(problem)


def problem_of(request: HttpRequest, error: Exception) -> Problem:
    known = problems.of(error)
    if known is not None:
        return known
    if isinstance(error, ValidationError):
        return problems.invalid_fields([_field(one) for one in error.errors[:ERRORS_TOLD]])
    if isinstance(error, HttpError) and isinstance(error.__cause__, Problem):
        return error.__cause__
    if isinstance(error, Http404):
        return problems.not_found()
    return _failure(request, error)


def _failure(request: HttpRequest, error: Exception) -> Problem:
    if is_stop(request):
        log.error("a stop was not recorded", exc_info=error)
        return effects.stop_api.not_recorded(request, perhaps=False)
    if isinstance(error, OperationalError | InterfaceError | InternalError):  # the last: a standby
        log.warning("the store did not answer: %s", (str(error).splitlines() or [""])[0])
        detail = "Nothing new may start meanwhile. Send it again with the same Idempotency-Key."
        return Problem("store-unavailable", detail, headers={"Retry-After": "1"})
    log.error("an API call failed", exc_info=error)
    detail = "We do not know how far it got. Send it again with the same Idempotency-Key."
    return Problem("internal-error", detail, error_id=request_id(request))


MESSAGES = {
    "extra_forbidden": "Unknown field; leave it out",
    "missing": "This field is needed",
}


def _field(error: dict[str, Any]) -> dict[str, str]:
    """One field error: its path on the wire and what to do, never the value that was sent."""
    where, *names = error["loc"]
    if where == "body":
        names = names[1:]
    name = ".".join(str(part)[:60] for part in names)
    return {"field": name or f"({where})", "message": MESSAGES.get(error["type"], error["msg"])}


def _told(request: HttpRequest, error: Any) -> HttpResponse:
    return told(request, error)


for kind in (Exception, HttpError, ValidationError, Http404):  # ninja has a handler of its own for each
    api.add_exception_handler(kind, _told)


# the door -----------------------------------------------------------------------------------------

View = Callable[..., HttpResponseBase]


def door(view: View) -> View:
    """Before and after every view: limits, a place in the crowd, one kind of answer.

    A stop goes straight through.
    """

    @csrf_exempt
    @wraps(view)
    def enter(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            if is_stop(request):
                answer = view(request, *args, **kwargs)
            else:
                answer = wait_in_line(request, view, *args, **kwargs)
        except Exception as error:
            answer = told(request, error)
        auditing.left(request, answer)
        return one_kind(answer)

    return enter


def wait_in_line(request: HttpRequest, view: View, *args: Any, **kwargs: Any) -> HttpResponseBase:
    """Anything but a stop: within its limits, with a body that is not too large, when there is a place."""
    counted = throttle.is_counted(request)
    taken = throttle.limits.take(request, address_of(request)) if counted else {}
    take_body(request)
    with nullcontext() if throttle.concerns_a_stop(request) else crowd.place():
        answer = view(request, *args, **kwargs)
    throttle.tell(answer, taken)
    return answer


def take_body(request: HttpRequest) -> None:
    """Read the body once, bounded. Raises Problem when it is too large."""
    data = bodies.take(request)
    if bodies.too_large(data):
        bodies.read(data)
    vars(request)["_body"] = data or b"{}"  # ninja looks there to see whether there is a body


def one_kind(answer: HttpResponseBase) -> HttpResponseBase:
    """Problems also where Django or ninja would answer in words; nothing is kept by caches."""
    if answer.status_code == 405:
        allowed = {"Allow": answer.headers.get("Allow", "")}
        detail = f"It takes {allowed['Allow']}. Nothing was changed."
        answer = problems.respond(Problem("method-not-allowed", detail, headers=allowed))
    answer.headers["Cache-Control"] = "no-store"
    if answer.status_code < 500:  # refusals are rows; a looping worker must not fill the log as well
        vars(answer)["_has_been_logged"] = True
    return answer


def nowhere(request: HttpRequest) -> HttpResponse:
    """An address that the API does not have."""
    return problems.respond(problems.not_found())


def _behind_the_door(pattern: URLPattern | URLResolver) -> URLPattern | URLResolver:
    if isinstance(pattern, URLPattern):
        pattern.callback = door(pattern.callback)
    return pattern


_patterns, _app, _namespace = api.urls
urlpatterns = [
    path("", include(([_behind_the_door(one) for one in _patterns], _app), namespace=_namespace)),
    re_path("", door(nowhere)),
]
