"""Notices: each member's own e-mail; for admins the endpoints, their secrets, and the log of their tries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods, require_POST

from dashboard import words
from dashboard.models import Attempt, Endpoint, NoMail, Posting, Subscription
from dashboard.notices import endpoints
from dashboard.notices.endpoints import EVENTS, CantBeDone
from dashboard.notices.models import Event
from dashboard.notices.postings import TRIES
from dashboard.pages.shell import actor_of, address, build_shell, person_of, signed_in, workspace_of
from effects import signing
from effects.deliveries import BadTarget, shown_address
from runs import access
from runs.models import User, Workspace

SHOWN = 100
POSTING = {"WAITING": "waiting", "SENT": "taken", "GIVEN_UP": "given up"}
CHOICES = [(str(event), event.label) for event in Event if event != Event.TEST]


@dataclass(frozen=True)
class EndpointRow:
    """An endpoint as members see it."""

    endpoint: Endpoint
    origin: str
    state: str
    events: str


def row_of(endpoint: Endpoint) -> EndpointRow:
    """`in use`, `failing` or `off`."""
    state = "off" if endpoint.off_at else "failing" if endpoint.failures else "in use"
    told = [Event(event).label.lower() for event in endpoint.events if event in EVENTS]
    return EndpointRow(endpoint, shown_address(endpoint.url), state, words.listed(told))


@dataclass(frozen=True)
class Typed:
    """What the form of a new endpoint held when it could not be done, and why."""

    name: str = ""
    url: str = ""
    events: tuple[str, ...] = ("stop.recorded", "stop.timed_out", "unknown.past_due")
    error: str = ""


def read(sent: QueryDict) -> Typed:
    """The form as it was sent; `error` when it can't be done."""
    name, url = words.clean(sent.get("name", ""))[:120], sent.get("url", "").strip()[:2000]
    events = tuple(event for event in sent.getlist("events") if event in EVENTS)
    error = "" if name else "Give the endpoint a name: it is how you will know it again."
    error = error or ("" if events else "Choose at least one event.")
    return Typed(name, url, events, error)


# the list, and a new endpoint -------------------------------------------------------------------------------


@never_cache
@require_http_methods(["GET", "POST"])
@signed_in
@sensitive_variables()
def notices_page(request: HttpRequest) -> HttpResponse:
    """GET /notices : my e-mail, and the endpoints. POST: a new one; its secret stands in this answer only."""
    workspace = workspace_of(request)
    told: dict[str, Any] = {"typed": Typed()}
    status = 200
    if request.method == "POST":
        access.demand_workspace(actor_of(request), "notices", workspace.pk)
        told, status = add(request, workspace)
    shell = build_shell(request, "notices", workspace)
    rows = Endpoint.objects.filter(workspace=workspace).order_by("name")
    told |= {
        "shell": shell,
        "now": shell.now,
        "choices": CHOICES,
        "mine": mine(person_of(request), workspace),
    }
    told["rows"] = [row_of(endpoint) for endpoint in rows]
    told["mail_is_set_up"] = settings.EMAIL_CONFIGURED
    return render(request, "notices/page.html", told, status=status)


def add(request: HttpRequest, workspace: Workspace) -> tuple[dict[str, Any], int]:
    """What the page tells of a new endpoint, or of why there is none."""
    typed = read(request.POST)
    if not typed.error and Endpoint.objects.filter(workspace=workspace, name=typed.name).exists():
        typed = Typed(typed.name, typed.url, typed.events, "An endpoint of this name is there already.")
    if typed.error:
        return {"typed": typed}, 422
    asked: dict[str, Any] = {"name": typed.name, "url": typed.url, "events": list(typed.events)}
    try:
        put = endpoints.put(actor=actor_of(request), workspace_id=workspace.pk, **asked)
    except (BadTarget, CantBeDone) as error:
        return {"typed": Typed(typed.name, typed.url, typed.events, f"{error}.".replace("..", "."))}, 422
    return {"typed": Typed(), "secret": put.secret, "added": put.endpoint}, 201


def mine(user: User, workspace: Workspace) -> dict[str, Any]:
    """What a member asked for by e-mail."""
    asked = Subscription.objects.filter(user=user, workspace=workspace).values_list("events", flat=True)
    return {
        "events": asked.first() or [],
        "off": NoMail.objects.filter(user=user).exists(),
        "address": user.email,
    }


@require_POST
@signed_in
def mail_page(request: HttpRequest) -> HttpResponse:
    """POST /notices/mail : what I want by e-mail, and my own switch for all of it."""
    workspace = workspace_of(request)
    events = [event for event in request.POST.getlist("events") if event in EVENTS]
    endpoints.subscribe(actor=actor_of(request), workspace_id=workspace.pk, events=events)
    endpoints.switch_mail(user=person_of(request), on="off" not in request.POST)
    messages.info(request, "Saved. It holds from the next notice on.")
    return redirect(address("notices", workspace))


# one endpoint -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LogRow:
    """One notice at this endpoint, and its newest tries."""

    posting: Posting
    event: str
    state: str
    attempts: list[Attempt]


def log_of(endpoint: Endpoint) -> list[LogRow]:
    """The newest notices of an endpoint with their tries: two queries."""
    rows = Posting.objects.filter(endpoint=endpoint).select_related("notice").order_by("-pk")[:SHOWN]
    found = rows.prefetch_related("attempts")
    return [
        LogRow(
            posting,
            Event(posting.notice.event).label,
            POSTING[posting.state],
            sorted(posting.attempts.all(), key=lambda attempt: attempt.pk, reverse=True)[:TRIES],
        )
        for posting in found
    ]


def secrets_in_force(endpoint: Endpoint, now: datetime) -> list[str | None]:
    """The end of each secret in force, newest first; None for the one without an end."""
    live = [one["until"] for one in signing.live(endpoint.secrets, now)]
    return [until and f"{until[:16].replace('T', ' ')}" for until in reversed(live)]


Done = tuple[dict[str, Any], str]
Ids = dict[str, str]


def _rotate(actor: access.Actor, ids: Ids) -> Done:
    put = endpoints.rotate(actor=actor, workspace_id=ids["workspace_id"], endpoint_id=ids["endpoint_id"])
    return {"secret": put.secret}, ""


def _end_old(actor: access.Actor, ids: Ids) -> Done:
    endpoints.end_old_secrets(actor=actor, **ids)
    return {}, "Only the newest secret signs from now on."


def _on(actor: access.Actor, ids: Ids) -> Done:
    endpoints.turn(actor=actor, on=True, **ids)
    return {}, "It is on. What it missed can be sent again from the log."


def _off(actor: access.Actor, ids: Ids) -> Done:
    endpoints.turn(actor=actor, on=False, **ids)
    return {}, "It is off, and is told nothing."


def _test(actor: access.Actor, ids: Ids) -> Done:
    endpoints.test(actor=actor, **ids)
    return {}, "A test is on its way; the log shows the receiver’s answer within seconds."


DO: dict[str, Callable[[access.Actor, Ids], Done]] = {
    "rotate": _rotate,
    "end-old": _end_old,
    "on": _on,
    "off": _off,
    "test": _test,
}


@never_cache
@require_http_methods(["GET", "POST"])
@signed_in
@sensitive_variables()
def endpoint_page(request: HttpRequest, endpoint_id: str) -> HttpResponse:
    """/notices/<id> : GET shows log and secrets' ends; POST does one of DO; for admins."""
    workspace = workspace_of(request)
    access.demand_workspace(actor_of(request), "notices", workspace.pk)
    find(workspace, endpoint_id)
    told: dict[str, Any] = {}
    if request.method == "POST":
        do = DO.get(request.POST.get("do", ""))
        if do is None:
            raise Http404
        try:
            ids = {"workspace_id": workspace.pk, "endpoint_id": endpoint_id}
            told, said = do(actor_of(request), ids)
        except CantBeDone as error:
            said = str(error)
        if not told:
            messages.info(request, said)
            return redirect(_address(workspace, endpoint_id))
    endpoint = find(workspace, endpoint_id)
    shell = build_shell(request, "notices", workspace)
    told |= {"shell": shell, "now": shell.now, "row": row_of(endpoint), "log": log_of(endpoint)}
    told |= {"ends": secrets_in_force(endpoint, shell.now), "shown": SHOWN}
    return render(request, "notices/endpoint.html", told)


def find(workspace: Workspace, endpoint_id: str) -> Endpoint:
    endpoint: Endpoint | None = Endpoint.objects.filter(pk=endpoint_id, workspace=workspace).first()
    if endpoint is None:
        raise Http404
    return endpoint


def _address(workspace: Workspace, endpoint_id: str) -> str:
    return reverse("endpoint", args=[endpoint_id], query={"workspace": workspace.slug})


@require_http_methods(["GET", "POST"])
@signed_in
def remove_page(request: HttpRequest, endpoint_id: str) -> HttpResponse:
    """/notices/<id>/remove : GET says what it would mean, POST removes; for admins."""
    workspace = workspace_of(request)
    actor = actor_of(request)
    access.demand_workspace(actor, "notices", workspace.pk)
    endpoint = find(workspace, endpoint_id)
    if request.method == "POST":
        endpoints.remove(actor=actor, workspace_id=workspace.pk, endpoint_id=endpoint_id)
        messages.info(
            request, f"Endpoint “{words.clean(endpoint.name)}” is removed, with its secrets and its log."
        )
        return redirect(address("notices", workspace))
    shell = build_shell(request, "notices", workspace)
    return render(request, "notices/remove.html", {"shell": shell, "now": shell.now, "row": row_of(endpoint)})


@require_POST
@signed_in
def redeliver_page(request: HttpRequest, posting_id: str) -> HttpResponse:
    """POST /notices/log/<id>/redeliver : the same notice, under the same id, once more; for admins."""
    workspace = workspace_of(request)
    actor = actor_of(request)
    access.demand_workspace(actor, "notices", workspace.pk)
    posting = Posting.objects.filter(pk=posting_id, endpoint__workspace=workspace).first()
    if posting is None:
        raise Http404
    try:
        endpoints.send_again(actor=actor, workspace_id=workspace.pk, posting_id=posting_id)
        messages.info(request, "It is sent again under the same id; the log shows the answer.")
    except CantBeDone as error:
        messages.error(request, str(error))
    return redirect(_address(workspace, str(posting.endpoint_id)))
