"""New switch: a policy by labels, kinds or classes, and its first stop, in one form."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET

from dashboard import words
from dashboard.pages.match_form import NoMatch, offered, read_match, read_name
from dashboard.pages.scope_press import press_scope, tell_scope
from dashboard.pages.scope_preview import Met, preview_of_scope
from dashboard.pages.shell import actor_of, build_shell, checked, sign_in_url, signed_in, workspace_of
from dashboard.pages.stop import answer_press, form_or_press
from dashboard.pages.stop_form import StopForm
from runs import policies
from runs.access import Actor, demand_workspace
from runs.models import Policy, ScopeKind, Workspace
from runs.policies import Match, PolicyTaken
from runs.scopes import Target
from runs.stops import StopAnswer
from runs.store import database_time


def switch_page(request: HttpRequest) -> HttpResponseBase:
    """/stops/new : GET shows the form, POST creates the policy and presses its stop."""
    return form_or_press(request, show_form, sign_in_first, press)


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
    return _show(request, workspace, request.GET)


@checked
def press(request: HttpRequest) -> HttpResponse:
    """Two verbs: the policy, whose gate is open, and the stop that shuts it. A second press finds both."""
    workspace, sent = workspace_of(request), request.POST
    demand_workspace(actor_of(request), "stop", workspace.pk)
    try:
        name, match = read_name(sent), read_match(sent)
        verb = switched(actor_of(request), workspace, name, match, sent.dict())
    except NoMatch as error:
        return _show(request, workspace, sent, said=str(error), status=422)
    return answer_press(request, verb, tell_scope)


def switched(
    actor: Actor, workspace: Workspace, name: str, match: Match, sent: Mapping[str, str]
) -> Callable[[], StopAnswer]:
    """Create the policy, or find the same one; answers the press on it. Raises NoMatch."""
    try:
        made = policies.create_policy(actor=actor, workspace_id=workspace.pk, name=name, match=match)
    except PolicyTaken as error:
        raise NoMatch(str(PolicyTaken.__doc__)) from error
    target = Target(ScopeKind.POLICY, made.pk)
    return lambda: press_scope(actor, sent, target)


@require_GET
@signed_in
def switch_preview(request: HttpRequest) -> HttpResponse:
    """GET /stops/new/preview : how many runs it matches now, and what a stop of them would meet."""
    workspace = workspace_of(request)
    told = _preview(workspace, request.GET, database_time())
    return render(request, "stops/_match.html", told)


def _preview(workspace: Workspace, sent: QueryDict, now: Any) -> dict[str, Any]:
    try:
        match = read_match(sent)
    except NoMatch as error:
        return {"now": now, "not_yet": str(error)}
    imagined = Policy(workspace=workspace, name="", match=match.kept, reach=match.reach)
    met = Met(policies.matching_runs(imagined), now, match)
    return {"now": now, "match": match, "met": met, "preview": preview_of_scope(met, gated="it")}


def named(sent: QueryDict) -> dict[str, str]:
    """The fields of the stop's form; an empty key is none."""
    return {name: str(value) for name, value in sent.items() if name != "key" or value}


def _show(
    request: HttpRequest, workspace: Workspace, sent: QueryDict, said: str = "", status: int = 200
) -> HttpResponse:
    shell = build_shell(request, "stops", workspace)
    form = StopForm.returned({"key": secrets.token_hex(16)} | named(sent))
    told: dict[str, Any] = {"shell": shell, "now": shell.now, "form": form, "said": said}
    told |= {"modes": form.offer(list(words.MODE))} | offered(workspace, sent)
    told |= _preview(workspace, sent, shell.now)
    return render(request, "stops/new.html", told, status=status)
