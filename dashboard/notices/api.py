"""The API of endpoints. All of it needs the scope notices:write, reading too: a log says who is told what.

An endpoint is put by its name, so a call whose answer was lost can be repeated. The secret stands in the
answer that made it and is kept nowhere else: not in the answers that are kept for an Idempotency-Key.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse
from ninja import Router
from pydantic import AfterValidator, Field, StrictBool

from effects.deliveries import BadTarget, shown_address
from runs import cursors, problems
from runs.access import Actor, NotFound, demand_workspace
from runs.api import READ, WRITE, Cursor, Limit
from runs.fields import In, Out, ShortKey, sized, visible
from runs.idempotency import reply, send
from runs.problems import invalid
from runs.schemas import Nothing, Page, ProblemOut
from runs.tokens import actor_of, home_of, spaces_of

from . import endpoints
from .models import Attempt, Endpoint, Posting

problems.NAMES.update({endpoints.TooMany: "too-many-endpoints", endpoints.IsOff: "endpoint-is-off"})
router = Router(by_alias=True)
TRIES_TOLD = 8


class EndpointIn(In):
    """Where notices go, and about what."""

    url: Annotated[str, sized(2000, 1), AfterValidator(visible)]
    events: list[
        Literal["stop.recorded", "stop.timed_out", "stop.closed", "unknown.past_due", "review.waiting"]
    ] = Field(min_length=1, max_length=20)


class TurnIn(In):
    """On or off."""

    on: StrictBool


class EndpointOut(Out):
    """An endpoint. `url` is its origin and a mark for the rest; `off_because`: why it is told nothing.

    `failures`: tries in a row that failed.
    """

    id: str
    name: str
    url: str
    events: list[str]
    created_at: datetime
    secrets_in_force: int
    failures: int
    failing_since: datetime | None
    off_at: datetime | None
    off_because: str


class EndpointAnswer(Out):
    """The endpoint; `secret` only where this very call made one."""

    endpoint: EndpointOut
    secret: str | None


class EndpointsOut(Page):
    """A page of endpoints."""

    items: list[EndpointOut]


class TryOut(Out):
    """One try, and what came of it."""

    at: datetime
    took_ms: int
    taken: bool
    status: int | None
    detail: str


class PostingOut(Out):
    """One notice at one endpoint. `notice_id` is the webhook-id."""

    id: str
    notice_id: str
    event: str
    happened_at: datetime
    state: str
    next_at: datetime | None
    tries: list[TryOut]


class PostingsOut(Page):
    """A page of the log."""

    items: list[PostingOut]


def endpoint_out(endpoint: Endpoint) -> dict[str, Any]:
    """An endpoint on the wire, without its secrets: what follows its origin is often one."""
    ours: dict[str, Any] = {"secrets_in_force": endpoints.live(endpoint), "url": shown_address(endpoint.url)}
    told = {name: getattr(endpoint, name) for name in EndpointOut.model_fields if name not in ours}
    return EndpointOut.model_validate({**told, **ours}).wire()


def posting_out(posting: Posting) -> dict[str, Any]:
    """A line of the log on the wire."""
    attempts = Attempt.objects.filter(posting=posting).order_by("-pk")[:TRIES_TOLD]
    return PostingOut(
        id=posting.pk,
        notice_id=posting.notice_id,
        event=posting.notice.event,
        happened_at=posting.notice.at,
        state=posting.state,
        next_at=posting.next_at,
        tries=[TryOut.model_validate(attempt, from_attributes=True) for attempt in attempts],
    ).wire()


def _workspace(actor: Actor) -> str:
    """The workspace whose endpoints the caller may manage: a token's own, a person's first such one."""
    spaces = [home_of(actor)] if actor.token else spaces_of(actor)
    for workspace_id in spaces:
        demand_workspace(actor, "notices", workspace_id)
        return workspace_id
    raise NotFound("workspace")


def _named(actor: Actor, name: str) -> Endpoint:
    endpoint: Endpoint | None = Endpoint.objects.filter(workspace_id=_workspace(actor), name=name).first()
    if endpoint is None:
        raise NotFound("endpoint")
    return endpoint


def _ids(endpoint: Endpoint) -> dict[str, str]:
    return {"workspace_id": endpoint.workspace_id, "endpoint_id": endpoint.pk}


def _answer(put: endpoints.Put) -> HttpResponse:
    told = {"endpoint": endpoint_out(put.endpoint), "secret": put.secret or None}
    return send(reply(201 if put.created else 200, told))


@router.put("/endpoints/{name}", response={200: EndpointAnswer, 201: EndpointAnswer, WRITE: ProblemOut})
def put_endpoint(request: HttpRequest, name: ShortKey, body: EndpointIn) -> HttpResponse:
    """Add an endpoint, or change its address and events. The first answer alone holds its secret."""
    actor = actor_of(request)
    asked: dict[str, Any] = {"name": name, "url": body.url, "events": list(body.events)}
    try:
        return _answer(endpoints.put(actor=actor, workspace_id=_workspace(actor), **asked))
    except BadTarget as error:
        raise invalid("url", error.why) from error


@router.get("/endpoints", response={200: EndpointsOut, READ: ProblemOut})
def list_endpoints(request: HttpRequest, cursor: Cursor = "", limit: Limit = 50) -> HttpResponse:
    """The endpoints of the workspace, newest first."""
    rows = Endpoint.objects.filter(workspace_id=_workspace(actor_of(request)))
    found, after = cursors.page(rows, cursor, limit)
    return send(reply(200, cursors.listed([endpoint_out(one) for one in found], after)))


@router.get("/endpoints/{name}", response={200: EndpointOut, READ: ProblemOut})
def read_endpoint(request: HttpRequest, name: ShortKey) -> HttpResponse:
    """One endpoint, without its secrets."""
    return send(reply(200, endpoint_out(_named(actor_of(request), name))))


@router.post("/endpoints/{name}/rotate", response={200: EndpointAnswer, WRITE: ProblemOut})
def rotate_secret(request: HttpRequest, name: ShortKey, body: Nothing) -> HttpResponse:
    """A new secret, in this answer only. Those before sign too for 24 hours."""
    actor = actor_of(request)
    return _answer(endpoints.rotate(actor=actor, **_ids(_named(actor, name))))


@router.post("/endpoints/{name}/end-old-secrets", response={200: EndpointOut, WRITE: ProblemOut})
def end_old_secrets(request: HttpRequest, name: ShortKey, body: Nothing) -> HttpResponse:
    """Only the newest secret signs from now on."""
    actor = actor_of(request)
    done = endpoints.end_old_secrets(actor=actor, **_ids(_named(actor, name)))
    return send(reply(200, endpoint_out(done)))


@router.post("/endpoints/{name}/turn", response={200: EndpointOut, WRITE: ProblemOut})
def turn_endpoint(request: HttpRequest, name: ShortKey, body: TurnIn) -> HttpResponse:
    """Turn it on, with a clean count, or off."""
    actor = actor_of(request)
    done = endpoints.turn(actor=actor, on=body.on, **_ids(_named(actor, name)))
    return send(reply(200, endpoint_out(done)))


@router.post("/endpoints/{name}/test", response={200: PostingOut, WRITE: ProblemOut})
def test_endpoint(request: HttpRequest, name: ShortKey, body: Nothing) -> HttpResponse:
    """Send it a notice that says it is a test; the log holds the answer."""
    actor = actor_of(request)
    return send(reply(200, posting_out(endpoints.test(actor=actor, **_ids(_named(actor, name))))))


@router.delete("/endpoints/{name}", response={204: None, WRITE: ProblemOut})
def remove_endpoint(request: HttpRequest, name: ShortKey) -> HttpResponse:
    """Remove it, with its secrets and its log."""
    actor = actor_of(request)
    endpoints.remove(actor=actor, **_ids(_named(actor, name)))
    return HttpResponse(status=204)


@router.get("/endpoints/{name}/log", response={200: PostingsOut, READ: ProblemOut})
def read_log(request: HttpRequest, name: ShortKey, cursor: Cursor = "", limit: Limit = 50) -> HttpResponse:
    """What it was told, newest first, with the tries."""
    rows = Posting.objects.filter(endpoint=_named(actor_of(request), name)).select_related("notice")
    found, after = cursors.page(rows, cursor, limit)
    return send(reply(200, cursors.listed([posting_out(one) for one in found], after)))


@router.post("/postings/{id:posting_id}/redeliver", response={200: PostingOut, WRITE: ProblemOut})
def redeliver(request: HttpRequest, posting_id: str, body: Nothing) -> HttpResponse:
    """Send a notice to its endpoint once more, under the same id."""
    actor = actor_of(request)
    done = endpoints.send_again(actor=actor, workspace_id=_workspace(actor), posting_id=posting_id)
    return send(reply(200, posting_out(done)))
