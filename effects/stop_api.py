"""The API of stopping. A press is never refused for its form, and never counted as recorded too early."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from django.db import DatabaseError
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse
from ninja import Router

from runs import access, bodies, children, cursors, gates, stops, wishes
from runs.access import Actor, NotAllowed, NotFound
from runs.api import MAY_KEY, READ, WRITE, Cursor, Limit
from runs.children import Reach
from runs.idempotency import HEADER, once, reply, send, unquoted
from runs.models import InFlight, Mode, Press, StopRequest
from runs.problems import Problem, not_allowed
from runs.schemas import (
    ForcedOut,
    Nothing,
    ProblemOut,
    StopIn,
    StopOfKeyIn,
    StopOut,
    StopsOut,
    children_out,
    in_flight_out,
)
from runs.stops import Forced, StopAnswer, Wish
from runs.store import alongside
from runs.tokens import actor_of, home_of, note_use, spaces_of

log = logging.getLogger(__name__)
PRESS = frozenset({401, 403, 404, 503})
MEANS: dict[str, str] = {
    Mode.PAUSE: "New work is held from version {version}; a resume is a decision of its own.",
    Mode.CANCEL: "New work is refused from version {version}.",
    Mode.ABANDON: "New work is refused from version {version}. We no longer wait or act.",
}
router = Router(by_alias=True)


def body_of(schema: type[StopIn]) -> dict[str, Any]:
    """How the schema tells of a press, which is read by `wishes` and refused for nothing."""
    content = {"application/json": {"schema": schema.model_json_schema()}}
    return {**MAY_KEY, "requestBody": {"content": content, "required": schema is StopOfKeyIn}}


@router.post(
    "/runs/{id:run_id}/stops",
    response={200: StopOut, 201: StopOut, PRESS: ProblemOut},
    openapi_extra=body_of(StopIn),
)
def stop_run(request: HttpRequest, run_id: str) -> HttpResponse:
    """Stop a run. 201 a new stop, 200 joined or already finished, 503 NOT recorded. No body is needed."""
    return press(request, wish_in(request), run_id=run_id)


@router.post(
    "/stops",
    response={200: StopOut, 201: StopOut, PRESS | {422}: ProblemOut},
    openapi_extra=body_of(StopOfKeyIn),
)
def stop_key(request: HttpRequest) -> HttpResponse:
    """Stop the run with this key, also before it is registered: the stop then waits for it."""
    run_key = wishes.run_key_of(bodies.take(request), request.headers)
    if not run_key:
        raise Problem("no-run-named", 'Name the run: {"run_key": "…"}, or post to /runs/{id}/stops.')
    actor = actor_of(request)
    _only_its_own(actor, run_key)
    return press(request, wish_in(request), workspace_id=home_of(actor), run_key=run_key)


def _only_its_own(actor: Actor, run_key: str) -> None:
    """A token of one run stops no other, whether that exists or not."""
    bound = actor.token.run if actor.token and actor.token.run_id else None
    if bound is not None and bound.key != run_key:
        raise not_allowed()


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
    _look_after(told.body)
    if actor.token is not None:
        note_use(actor.token)
    is_new = told.body["created"] and not told.body["already_finished"]
    return send(reply(201 if is_new else 200, told.body), replayed=answer.repeated)


def _look_after(body: dict[str, Any]) -> None:
    """The stop is on record; how far it was passed on meanwhile is told as far as the store can say."""
    if (body.get("children") or {}).get("pending"):
        with suppress(DatabaseError):
            told = children_out(children.reach_of(StopRequest.objects.get(pk=body["id"])))
            body["children"] = told.wire() if told else None


class _Told:
    """The answer of a press, read before the commit: once it is there, the commit was at least tried."""

    body: dict[str, Any] | None = None

    def keep(self, result: Any) -> None:
        if isinstance(result, StopAnswer):
            self.body = _after_press(result)


def _after_press(answer: StopAnswer) -> dict[str, Any]:
    stop, press = answer.stop, answer.press
    first = Press.objects.filter(stop=stop).order_by("pk").values_list("pk", flat=True).first() == press.pk
    return stop_out(
        _counted(StopRequest.objects.filter(pk=stop.pk)).get(),
        _in_flight([stop.pk]).get(stop.pk, []),
        created=first,
        joined=not first,
        finished=press.answer == "finished",
        ignored=press.ignored,
        asked=press.mode,
        reach=children.reach_of(stop),
    )


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
    stop = _counted(StopRequest.objects.filter(pk=forced.stop.pk)).get()
    return {
        "forced": forced.forced,
        "stop": stop_out(stop, _in_flight([stop.pk]).get(stop.pk, []), reach=children.reach_of(stop)),
    }


# reading ------------------------------------------------------------------------------------------


@router.get("/stops/{id:stop_id}", response={200: StopOut, READ: ProblemOut})
def read_stop(request: HttpRequest, stop_id: str) -> HttpResponse:
    """One stop request as it stands now."""
    stop = _counted(StopRequest.objects.filter(pk=stop_id)).first()
    if stop is None:
        raise NotFound("stop")
    _demand_reading(actor_of(request), stop)
    return send(
        reply(200, stop_out(stop, _in_flight([stop.pk]).get(stop.pk, []), reach=children.reach_of(stop)))
    )


def stop_by_id(stop_id: str) -> dict[str, Any]:
    """A stop on the wire, without any press."""
    return _alone(_counted(StopRequest.objects.filter(pk=stop_id)).get())


def _alone(stop: Any) -> dict[str, Any]:
    return stop_out(stop, _in_flight([stop.pk]).get(stop.pk, []), reach=children.reach_of(stop))


def _demand_reading(actor: Actor, stop: StopRequest) -> None:
    if stop.run is not None:
        access.demand(actor, "read", stop.run)
        return
    access.demand_workspace(actor, "read", stop.workspace_id)
    if actor.token is not None and actor.token.run_id is not None:
        raise NotFound("stop")


@router.get("/stops", response={200: StopsOut, READ: ProblemOut})
def list_stops(request: HttpRequest, cursor: Cursor = "", limit: Limit = 50) -> HttpResponse:
    """The stop requests that you may see, newest first."""
    actor = actor_of(request)
    rows = StopRequest.objects.filter(workspace_id__in=spaces_of(actor))
    if actor.token is not None and actor.token.run_id is not None:
        rows = rows.filter(run_id=actor.token.run_id)
    found, after = cursors.page(_counted(rows), cursor, limit)
    permits = _in_flight([stop.pk for stop in found])
    return send(reply(200, cursors.listed([stop_out(s, permits.get(s.pk, [])) for s in found], after)))


def _counted(rows: QuerySet[StopRequest]) -> QuerySet[Any, Any]:
    return rows.select_related("run").annotate(presses_n=Count("presses"))


def _in_flight(stop_ids: list[str]) -> dict[str, list[InFlight]]:
    found: dict[str, list[InFlight]] = {}
    rows = InFlight.objects.filter(stop_id__in=stop_ids).select_related("permit").order_by("permit_id")
    for row in rows:
        found.setdefault(row.stop_id, []).append(row)
    return found


def stop_out(
    stop: Any,
    in_flight: list[InFlight],
    *,
    created: bool = False,
    joined: bool = False,
    finished: bool = False,
    ignored: list[str] | None = None,
    asked: str = "",
    reach: Reach | None = None,
) -> dict[str, Any]:
    """A stop (with `presses_n`) on the wire; `created`, `joined`, … `asked` are of one press."""
    waiting = stop.run_id is None and stop.scope != gates.SCOPE and stop.closed_at is None
    finished = finished or stop.finished_before
    derived = {
        "created": created,
        "joined": joined,
        "already_finished": finished,
        "waiting": waiting,
        "presses": stop.presses_n,
        "in_flight": [in_flight_out(row) for row in in_flight],
        "children": children_out(reach),
        "ignored": ignored or [],
        "sentence": sentence(stop, joined=joined, finished=finished, waiting=waiting, asked=asked)
        + of_children(reach),
    }
    told = {name: getattr(stop, name) for name in StopOut.model_fields if name not in derived}
    return StopOut.model_validate(told | derived).wire()


def sentence(stop: StopRequest, *, joined: bool, finished: bool, waiting: bool, asked: str = "") -> str:
    """What a person should know of it, in one line; `asked`: the mode of a press that joined it."""
    name = f"Stop #{stop.number}"
    if stop.scope == gates.SCOPE:
        return of_gate(stop, name, joined=joined)
    if finished:
        done = f"Your request was added to {name.lower()}" if joined else f"{name} is recorded"
        rest = "no work was left to refuse, and no message that is still queued will be handed over"
        return f"The run had already finished. {done}; {rest}."
    if waiting:
        return (
            f"{name} ({stop.mode}) is recorded and waits for its run until {stop.ends_at:%Y-%m-%d %H:%M} UTC."
        )
    if stop.run_id is None:
        return f"{name} has ended: {stop.closed_because}."
    if joined:
        since = f"Already stopping since {stop.recorded_at:%Y-%m-%d %H:%M:%S} UTC, in mode {stop.mode}."
        milder = (
            f" You asked for {asked}; the mode stays {stop.mode}." if asked not in ("", stop.mode) else ""
        )
        return f"{since} Added to {name.lower()}.{milder}"
    return f"{name} is recorded. {MEANS[stop.mode].format(version=stop.version_after)}"


def of_children(reach: Reach | None) -> str:
    """That it goes on to the children, where there are some."""
    if reach is None or not reach.registered:
        return ""
    number = reach.registered
    return f" It is passed on to {number} registered child run{'' if number == 1 else 's'}."


def of_gate(stop: StopRequest, name: str, *, joined: bool) -> str:
    """The same for a stop of a whole workspace, which fences no run of it."""
    if stop.closed_at is not None:
        return f"{name} held the gate until {stop.closed_at:%Y-%m-%d %H:%M:%S} UTC: {stop.closed_because}."
    told = f"{name} is recorded."
    if joined:
        told = f"Already shut since {stop.recorded_at:%Y-%m-%d %H:%M:%S} UTC. Added to {name.lower()}."
    return (
        f"{told} Every gate of the workspace refuses new work until it is released. What was in flight may "
        "still complete; it is not listed here."
    )
