"""The API of stops beyond one run: of a step, a session, a workspace, a policy, of chosen runs.

They are pressed as any stop is: never refused for their form. Only what to stop must be understood: else the
answer is 422, with what to send instead, since anything stopped in its place would not be what was meant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse

from runs import bodies, bulk, cursors, policies, redaction, releases, scopes, step_stops, wishes
from runs.access import Actor, NotFound, demand_workspace
from runs.api import MAY_KEY, READ, WRITE, Cursor, Limit
from runs.fields import In
from runs.idempotency import Reply, once, reply, send
from runs.models import Result, ScopeKind, Session, StopPart
from runs.problems import NAMES, Problem, invalid, not_allowed
from runs.releases import Asked, InThePast, NotStanding, Released, SamePerson
from runs.schemas import ProblemOut
from runs.scopes import Target
from runs.stop_schemas import (
    AnyStopIn,
    PartOut,
    PartsOut,
    ReleasedOut,
    ReleaseOut,
    ReviewAtIn,
    StopIn,
    StopOfScopeIn,
    StopOut,
)
from runs.tokens import actor_of, home_of

from . import stop_out
from .schemas import Reason
from .stop_api import PRESS, body_of, find_stop, press, releasing, router, wish_in

__all__ = ["router"]  # that of stop_api.py, with these beside it: one address has one router
NAMES.update({NotStanding: "not-standing", SamePerson: "same-person"})
MOST_RUNS = 5_000  # so many ids fit into a body
SEND: dict[str, str] = {
    "session": '{"scope": "session", "session": "its key"}',
    "policy": '{"scope": "policy", "policy": "its id or name"}',
    "step": '{"scope": "step", "step": "ste_…"}',
    "runs": f'{{"scope": "runs", "run_ids": ["run_…"]}}, with at most {MOST_RUNS:,} ids',
}
WHATS = "run (with run_key), step, session, workspace, policy or runs"
ALL = "An admin of this installation stops all workspaces, signed in, on the page Stop. No token may."


@router.post(
    "/steps/{id:step_id}/stops",
    response={200: StopOut, 201: StopOut, PRESS: ProblemOut},
    openapi_extra=body_of(StopIn),
)
def stop_step(request: HttpRequest, step_id: str) -> HttpResponse:
    """Stop one step, while its run goes on. 201 a new stop, 200 joined or already ended, 503 NOT recorded."""
    return press(request, wish_in(request), step_stops.request_step_stop, step_id=step_id)


@router.post(
    "/policies/{id:policy_id}/stops",
    response={200: StopOut, 201: StopOut, PRESS: ProblemOut},
    openapi_extra=body_of(StopOfScopeIn),
)
def stop_policy(request: HttpRequest, policy_id: str) -> HttpResponse:
    """Stop what a policy is about, until it is released. 201 a new stop, 200 joined, 503 NOT recorded."""
    target = Target(ScopeKind.POLICY, policy_id)
    return press(request, wish_in(request), scopes.request_scope_stop, target=target)


@router.post(
    "/stops",
    response={200: StopOut, 201: StopOut, PRESS | {422}: ProblemOut},
    openapi_extra=body_of(AnyStopIn, needed=True),
)
def stop_any(request: HttpRequest) -> HttpResponse:
    """Stop what `scope` says. Without one: the run with this key, also before it is registered."""
    data = bodies.take(request)
    if bodies.too_large(data):
        raise _not_named("body", f"It is larger than {bodies.LIMIT} bytes. Send at most {MOST_RUNS:,} runs")
    what = wishes.what_of(data, request.headers)
    scope = what.get("scope") or ScopeKind.RUN
    find = WAYS.get(scope) if isinstance(scope, str) else None
    if find is None:
        raise _not_named("scope", f'There is no such scope. Send "scope": {WHATS}')
    actor = actor_of(request)
    if scope not in (ScopeKind.RUN, ScopeKind.STEP) and actor.token and actor.token.run_id:
        raise not_allowed()
    verb, target = find(actor, what)
    return press(request, wish_in(request), verb, **target)


def _not_named(field: str, said: str) -> Problem:
    return Problem("no-scope-named", f"{said}. Your stop was NOT recorded.", field=field)


# what is to be stopped ----------------------------------------------------------------------------

Found = tuple[Callable[..., Any], dict[str, Any]]  # the verb, and what it is called with


def _run(actor: Actor, what: Mapping[str, Any]) -> Found:
    from runs.stops import request_stop

    run_key = wishes.key_in(what, "run_key")
    if not run_key:
        raise Problem("no-run-named", 'Name the run: {"run_key": "…"}, or post to /runs/{id}/stops.')
    bound = actor.token.run if actor.token and actor.token.run_id else None
    if bound is not None and bound.key != run_key:  # whether that exists or not
        raise not_allowed()
    return request_stop, {"workspace_id": home_of(actor), "run_key": run_key}


def _step(actor: Actor, what: Mapping[str, Any]) -> Found:
    return step_stops.request_step_stop, {"step_id": _named(what, "step")}


def _session(actor: Actor, what: Mapping[str, Any]) -> Found:
    """A session that no run has named yet is kept with its stop: its first run is refused by it."""
    key = wishes.key_in(what, "session")
    if not key:
        raise _not_named("session", f"Which session? Send {SEND['session']}")
    home = home_of(actor)
    demand_workspace(actor, "stop", home)
    if not Session.objects.filter(workspace_id=home, key=key).exists():
        key = redaction.text(key)[:200]  # no session may have another; no stop is refused for it
    session, _ = Session.objects.get_or_create(workspace_id=home, key=key)
    return _scope(ScopeKind.SESSION, session.pk)


def _workspace(actor: Actor, what: Mapping[str, Any]) -> Found:
    return _scope(ScopeKind.WORKSPACE, home_of(actor))


def _policy(actor: Actor, what: Mapping[str, Any]) -> Found:
    found = policies.named(home_of(actor), _named(what, "policy"))
    if found is None:
        raise NotFound("policy")
    return _scope(ScopeKind.POLICY, found.pk)


def _runs(actor: Actor, what: Mapping[str, Any]) -> Found:
    asked = what.get("run_ids")
    asked = asked if isinstance(asked, list) else []
    ids = [one for one in asked if isinstance(one, str) and _is_text(one)]
    if not ids or len(ids) > MOST_RUNS:
        raise _not_named("run_ids", f"Which runs? Send {SEND['runs']}")
    selection = what.get("selection")
    told = selection if isinstance(selection, dict) else {}
    named = {"run_ids": ids, "no_ids": len(asked) - len(ids), "selection": told}
    return bulk.request_bulk_stop, {"workspace_id": home_of(actor), **named}


def _all(actor: Actor, what: Mapping[str, Any]) -> Found:
    raise Problem("people-only", f"{ALL} Your stop was NOT recorded.")


def _named(what: Mapping[str, Any], name: str) -> str:
    found = what.get(name)
    if not isinstance(found, str) or not _is_text(found):
        raise _not_named(name, f"Which {name}? Send {SEND[name]}")
    return found


def _is_text(found: str) -> bool:
    """Whether a database can be asked for it."""
    return 0 < len(found) <= 200 and found.isprintable()


def _scope(kind: str, pk: str) -> Found:
    return scopes.request_scope_stop, {"target": Target(kind, pk)}


WAYS: dict[str, Callable[[Actor, Mapping[str, Any]], Found]] = {
    ScopeKind.RUN: _run,
    ScopeKind.STEP: _step,
    ScopeKind.SESSION: _session,
    ScopeKind.WORKSPACE: _workspace,
    ScopeKind.POLICY: _policy,
    "runs": _runs,
    "all": _all,
}


# a standing stop ----------------------------------------------------------------------------------


class ReleaseIn(In):
    """A decision to release a standing stop, with its reason."""

    reason: Reason


@router.post(
    "/stops/{id:stop_id}/release",
    response={200: ReleasedOut, 202: ReleasedOut, WRITE: ProblemOut},
    openapi_extra=MAY_KEY,
)
def release_stop(request: HttpRequest, stop_id: str, body: ReleaseIn) -> HttpResponse:
    """Release a standing stop. This starts nothing. 202: a second person has to grant it."""
    actor = actor_of(request)

    def release() -> Released | Asked:
        find_stop(actor, stop_id)
        with releasing():
            return releases.release(actor=actor, stop_id=stop_id, reason=body.reason)

    return once(request, release, _released, required=False)


def _released(answer: Released | Asked) -> Reply:
    given = isinstance(answer, Released)
    release = ReleaseOut.model_validate(answer.release, from_attributes=True).wire()
    told = {"released": given, "release": release, "stop": stop_out.one(answer.stop.pk)}
    return reply(200 if given else 202, told)


@router.post("/stops/{id:stop_id}/review", response={200: StopOut, WRITE: ProblemOut}, openapi_extra=MAY_KEY)
def review_stop(request: HttpRequest, stop_id: str, body: ReviewAtIn) -> HttpResponse:
    """Look at a standing stop again at another moment."""
    actor = actor_of(request)

    def extend() -> Any:
        find_stop(actor, stop_id)
        try:
            return releases.extend(actor=actor, stop_id=stop_id, review_at=body.review_at)
        except InThePast as error:
            raise invalid("review_at", "That moment is over") from error

    return once(request, extend, lambda stop: reply(200, stop_out.one(stop.pk)), required=False)


# its runs -----------------------------------------------------------------------------------------


@router.get("/stops/{id:stop_id}/runs", response={200: PartsOut, READ: ProblemOut})
def list_stop_runs(
    request: HttpRequest, stop_id: str, result: Result | None = None, cursor: Cursor = "", limit: Limit = 50
) -> HttpResponse:
    """The runs that a stop of a scope, or of chosen runs, is about, newest first, and what it came to."""
    stop = find_stop(actor_of(request), stop_id)
    rows = StopPart.objects.filter(stop=stop).select_related("run", "run_stop")
    if result is not None:
        rows = rows.filter(result=result)
    found, after = cursors.page(rows, cursor, limit, by="run_id")
    return send(reply(200, cursors.listed([_part_out(part) for part in found], after)))


def _part_out(part: StopPart) -> dict[str, Any]:
    return PartOut(
        run_id=part.run_id,
        run_key=part.run.key,
        run_name=part.run.name,
        run_status=part.run.status,
        result=part.result,
        stop_id=part.run_stop_id,
        stop_closed_at=part.run_stop.closed_at if part.run_stop else None,
        at=part.at,
    ).wire()
