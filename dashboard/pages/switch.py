"""New switch: a policy by labels, kinds or classes, and its first stop, in one form."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET
from pydantic import ValidationError

from dashboard import words
from dashboard.pages.scope_press import press_scope, tell_scope
from dashboard.pages.scope_preview import Met, preview_of_scope
from dashboard.pages.shell import actor_of, build_shell, checked, sign_in_url, signed_in, workspace_of
from dashboard.pages.stop import answer_press, not_recorded
from dashboard.pages.stop_form import StopForm
from effects.models import Kind
from runs import policies
from runs.access import Actor, demand_workspace
from runs.fields import Class
from runs.models import Policy, ScopeKind, Workspace
from runs.policies import Match, PolicyTaken
from runs.scopes import Target
from runs.stops import StopAnswer
from runs.store import database_time

NAME_MAX, KINDS = 120, 50
CLASSES = [(name, words.CLASS[name]) for name in get_args(Class) if name != "approval_wait"]


class NoSwitch(ValueError):
    """Why these fields make no policy. Nothing was changed."""


def switch_page(request: HttpRequest) -> HttpResponseBase:
    """/stops/new : GET shows the form, POST creates the policy and presses its stop."""
    try:
        if request.method != "POST":
            return show_form(request)
        if not request.user.is_authenticated:
            return sign_in_first(request)
        return press(request)
    except (DatabaseError, InterfaceError):
        return not_recorded(request)


def sign_in_first(request: HttpRequest) -> HttpResponse:
    """The session ended under the form: nothing is recorded, and the form comes back as it was."""
    sent = request.POST.copy()
    sent.pop("csrfmiddlewaretoken", None)
    if "workspace" in request.GET:
        sent["workspace"] = request.GET["workspace"]
    return redirect(sign_in_url(f"{request.path}?{sent.urlencode()}"))


@signed_in
def show_form(request: HttpRequest) -> HttpResponse:
    workspace = workspace_of(request)
    demand_workspace(actor_of(request), "stop", workspace.pk)
    return _show(request, workspace, request.GET.dict(), request.GET.getlist("class"))


@checked
def press(request: HttpRequest) -> HttpResponse:
    """Two verbs: the policy, whose gate is open, and the stop that shuts it. A second press finds both."""
    workspace, sent = workspace_of(request), request.POST.dict()
    demand_workspace(actor_of(request), "stop", workspace.pk)
    try:
        match, name = match_in(sent, request.POST.getlist("class")), name_in(sent)
        verb = switched(actor_of(request), workspace, name, match, sent)
    except NoSwitch as error:
        return _show(request, workspace, sent, request.POST.getlist("class"), said=str(error), status=422)
    return answer_press(request, verb, tell_scope)


def switched(
    actor: Actor, workspace: Workspace, name: str, match: Match, sent: Mapping[str, str]
) -> Callable[[], StopAnswer]:
    """Create the policy, or find the same one; answers the press on it. Raises NoSwitch."""
    try:
        made = policies.create_policy(actor=actor, workspace_id=workspace.pk, name=name, match=match)
    except PolicyTaken as error:
        raise NoSwitch(str(PolicyTaken.__doc__)) from error
    target = Target(ScopeKind.POLICY, made.pk)
    return lambda: press_scope(actor, sent, target)


def name_in(sent: Mapping[str, str]) -> str:
    """The policy's name. Raises NoSwitch."""
    name = words.clean(sent.get("name", ""))[:NAME_MAX]
    if not name:
        raise NoSwitch("Give it a name.")
    return name


def match_in(sent: Mapping[str, str], classes: Iterable[str]) -> Match:
    """Labels `name=value` a line, kinds a line, classes by their boxes. Raises NoSwitch, saying which."""
    labels: dict[str, str] = {}
    for line in _lines(sent.get("labels", "")):
        name, sign, value = line.partition("=")
        if not sign:
            raise NoSwitch(f"Write a label as name=value, not “{words.brief(line)}”.")
        labels[name.strip()] = value.strip()
    told = {"labels": labels, "kinds": _lines(sent.get("kinds", "")), "classes": list(classes)}
    try:
        return Match.model_validate(told)
    except ValidationError as error:
        raise NoSwitch(". ".join(_said(one) for one in error.errors()[:3])) from error


def _lines(text: str) -> list[str]:
    found = (part.strip() for part in re.split(r"[\n,]", text.replace("\0", "")[:8000]))
    return [part for part in found if part][:KINDS]


def _said(error: Any) -> str:
    where = " ".join(str(part) for part in error["loc"][:1])
    return f"{where.capitalize()}: {error['msg']}" if where else str(error["msg"])


@require_GET
@signed_in
def switch_preview(request: HttpRequest) -> HttpResponse:
    """GET /stops/new/preview : how many runs it matches now, and what a stop of them would meet."""
    workspace = workspace_of(request)
    told = _preview(workspace, request.GET.dict(), request.GET.getlist("class"), database_time())
    return render(request, "stops/_match.html", told)


def _preview(
    workspace: Workspace, sent: Mapping[str, str], classes: Iterable[str], now: Any
) -> dict[str, Any]:
    try:
        match = match_in(sent, classes)
    except NoSwitch as error:
        return {"now": now, "not_yet": str(error)}
    imagined = Policy(workspace=workspace, name="", match=match.kept, reach=match.reach)
    met = Met(policies.matching_runs(imagined), now, match)
    return {"now": now, "match": match, "met": met, "preview": preview_of_scope(met, gated="it")}


def _show(
    request: HttpRequest,
    workspace: Workspace,
    sent: dict[str, str],
    classes: list[str],
    said: str = "",
    status: int = 200,
) -> HttpResponse:
    shell = build_shell(request, "stops", workspace)
    form = StopForm.returned(sent | {"key": sent.get("key") or secrets.token_hex(16)})
    told: dict[str, Any] = {"shell": shell, "now": shell.now, "form": form, "sent": sent, "said": said}
    told |= {"classes": [(name, word, name in classes) for name, word in CLASSES]}
    told |= {"kinds": Kind.objects.filter(workspace=workspace).order_by("name")[:KINDS]}
    told |= {"modes": form.offer(list(words.MODE)), "name_max": NAME_MAX}
    told |= _preview(workspace, sent, classes, shell.now)
    return render(request, "stops/new.html", told, status=status)
