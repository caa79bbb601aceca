"""The API of stopping. A press is never refused for its form, and never counted as recorded too early."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from ninja import Router

from runs import access, bodies, cursors, scopes, stops, wishes
from runs.access import Actor, NotAllowed, NotFound
from runs.api import MAY_KEY, READ, WRITE, Cursor, Limit
from runs.idempotency import HEADER, once, reply, send, unquoted
from runs.models import Press, StopRequest
from runs.problems import Problem
from runs.releases import NotFenced, TwoPeople
from runs.schemas import Nothing, ProblemOut
from runs.stop_schemas import ForcedOut, Scope, StopIn, StopOut, StopsOut
from runs.stops import Forced, StopAnswer, Wish
from runs.store import alongside
from runs.tokens import actor_of, note_use, spaces_of

from . import stop_out
from .stop_words import Pressed

log = logging.getLogger(__name__)
PRESS = frozenset({401, 403, 404, 503})
router = Router(by_alias=True)


def body_of(schema: type[StopIn], *, needed: bool = False) -> dict[str, Any]:
    """How the schema tells of a press, which is read by `wishes` and refused for nothing."""
    content = {"application/json": {"schema": schema.model_json_schema()}}
    return {**MAY_KEY, "requestBody": {"content": content, "required": needed}}


@router.post(
    "/runs/{id:run_id}/stops",
    response={200: StopOut, 201: StopOut, PRESS: ProblemOut},
    openapi_extra=body_of(StopIn),
)
def stop_run(request: HttpRequest, run_id: str) -> HttpResponse:
    """Stop a run. 201 a new stop, 200 joined or already finished, 503 NOT recorded. No body is needed."""
    return press(request, wish_in(request), run_id=run_id)


def wish_in(request: HttpRequest) -> Wish:
    """The press in a request. Never raises."""
    try:
        data = bodies.take(request)
    except OSError:  # the rest of the body never came; the wish to stop did
        data = b""
    return wishes.read_wish(data, request.headers)


Verb = Callable[..., StopAnswer]


def press(request: HttpRequest, wish: Wish, verb: Verb = stops.request_stop, **target: Any) -> HttpResponse:
    """One press, and the answer that its own transaction held at its commit."""
    actor, told = actor_of(request), _Told()
    try:
        with alongside(told.keep):
            answer = verb(actor=actor, wish=wish, **target)
    except (NotFound, NotAllowed):
        raise
    except Exception as error:
        log.exception("a stop was not confirmed")
        raise not_recorded(request, perhaps=told.body is not None) from error
    assert told.body is not None
    told.look_after()
    if actor.token is not None:
        note_use(actor.token)
    is_new = told.body["created"] and not told.body["already_finished"]
    return send(reply(201 if is_new else 200, told.body), replayed=answer.repeated)


class _Told:
    """The answer of a press, read before the commit: once it is there, the commit was at least tried."""

    body: dict[str, Any] | None = None
    answer: StopAnswer | None = None

    def keep(self, result: Any) -> None:
        if isinstance(result, StopAnswer):
            many = result.stop.scope in stop_out.OF_RUNS
            self.answer, self.body = result, _after_press(result, counted=not many)

    def look_after(self) -> None:
        """The stop is on record; how far it went on meanwhile is told as far as the store can say."""
        if self.answer is not None and self._goes_on(self.body or {}):
            with suppress(DatabaseError):
                self.body = _after_press(self.answer)

    @staticmethod
    def _goes_on(body: dict[str, Any]) -> bool:
        """To children of a run, or to the runs of a scope, of which nothing was counted yet."""
        return bool((body.get("children") or {}).get("pending") or body.get("scope") in stop_out.OF_RUNS)


def _after_press(answer: StopAnswer, *, counted: bool = True) -> dict[str, Any]:
    """`counted`: with how many runs were reached, which no commit waits for."""
    stop, press = answer.stop, answer.press
    first = Press.objects.filter(stop=stop).order_by("pk").values_list("pk", flat=True).first() == press.pk
    pressed = Pressed(
        created=first,
        joined=not first,
        finished=press.answer == "finished",
        asked=press.mode,
        ignored=press.ignored,
    )
    return stop_out.one(stop.pk, pressed, counted=counted)


def not_recorded(request: HttpRequest, *, perhaps: bool) -> Problem:
    """Nobody confirms this stop. `perhaps`: its commit was tried, and the answer to that was lost."""
    key = unquoted(request.headers.get(HEADER) or "")
    again = "Try again with the same Idempotency-Key" if key else "Try again"
    if perhaps:
        detail = f"We do not know whether your stop was recorded. {again}: there will be one stop."
    else:
        detail = f"Your stop was NOT recorded. The run may still start work. {again}."
    return Problem(
        "not-recorded",
        detail,
        headers={"Retry-After": "1"},
        recorded=None if perhaps else False,
        idempotency_key=key or None,
    )


@router.post(
    "/stops/{id:stop_id}/deadline", response={200: ForcedOut, WRITE: ProblemOut}, openapi_extra=MAY_KEY
)
def force_deadline(request: HttpRequest, stop_id: str, body: Nothing) -> HttpResponse:
    """Let the deadline of a stop pass now. Asked again, or where nothing waits for it, it changes nothing."""

    def force() -> Forced:
        return stops.force_deadline(actor=actor_of(request), stop_id=stop_id)

    return once(request, force, lambda forced: reply(200, forced_out(forced)), required=False)


def forced_out(forced: Forced) -> dict[str, Any]:
    """The stop on the wire, and whether this call let its deadline pass."""
    return {"forced": forced.forced, "stop": stop_out.one(forced.stop.pk)}


@contextmanager
def releasing() -> Iterator[None]:
    """What keeps a release from being decided, as a problem."""
    try:
        yield
    except NotFenced as error:
        told = f"Its runs are still being stopped: {error.done} of {error.total}. Release it after that."
        raise Problem("still-fencing", told, done=error.done, total=error.total) from error
    except TwoPeople as error:
        raise Problem("people-only", str(TwoPeople.__doc__)) from error


# reading ------------------------------------------------------------------------------------------


@router.get("/stops/{id:stop_id}", response={200: StopOut, READ: ProblemOut})
def read_stop(request: HttpRequest, stop_id: str) -> HttpResponse:
    """One stop request as it stands now."""
    return send(reply(200, stop_out.one(find_stop(actor_of(request), stop_id).pk)))


def find_stop(actor: Actor, stop_id: str) -> StopRequest:
    """The stop, for those who may read it. Raises NotFound."""
    stop = StopRequest.objects.select_related("run").filter(pk=stop_id).first()
    if stop is None:
        raise NotFound("stop")
    _demand_reading(actor, stop)
    return stop


def _demand_reading(actor: Actor, stop: StopRequest) -> None:
    if stop.run is not None:
        access.demand(actor, "read", stop.run)
        return
    access.demand_workspace(actor, "read", stop.workspace_id)
    if actor.token is not None and actor.token.run_id is not None:
        raise NotFound("stop")


@router.get("/stops", response={200: StopsOut, READ: ProblemOut})
def list_stops(
    request: HttpRequest,
    scope: Scope | None = None,
    standing: bool | None = None,
    cursor: Cursor = "",
    limit: Limit = 50,
) -> HttpResponse:
    """The stop requests that you may see, newest first. `standing`: those of scopes that hold or observe."""
    actor = actor_of(request)
    rows = StopRequest.objects.filter(workspace_id__in=spaces_of(actor))
    if actor.token is not None and actor.token.run_id is not None:
        rows = rows.filter(run_id=actor.token.run_id)
    if scope is not None:
        rows = rows.filter(scope=scope)
    if standing is not None:
        rows = rows.filter(scopes.in_force()) if standing else rows.exclude(scopes.in_force())
    found, after = cursors.page(stop_out.rows(rows), cursor, limit)
    return send(reply(200, cursors.listed(stop_out.many(found), after)))
