"""The addresses that a workspace's gate had of its own: they lead to its stop now."""

from __future__ import annotations

from functools import partial
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse

from dashboard.pages.scope_press import press_scope, tell_scope
from dashboard.pages.scope_stop import sign_in_to
from dashboard.pages.scope_target import Wide
from dashboard.pages.shell import actor_of, checked, signed_in, workspace_of
from dashboard.pages.stop import answer_press, form_or_press
from dashboard.pages.stop_form import StopForm
from runs.models import Mode, ScopeKind
from runs.scopes import Target


@signed_in
def gate_page(request: HttpRequest) -> HttpResponse:
    """GET /gate : the stop that holds the workspace, or the form that stops it."""
    workspace = workspace_of(request)
    wide = Wide(ScopeKind.WORKSPACE, workspace, workspace)
    form = StopForm.returned(request.GET.dict())
    if form.came_back and wide.standing is None:
        return redirect(f"{wide.href}&{urlencode(form.fields)}")
    return redirect(wide.page)


@signed_in
def release_page(request: HttpRequest) -> HttpResponse:
    """/gate/release : the form of that decision."""
    workspace = workspace_of(request)
    wide = Wide(ScopeKind.WORKSPACE, workspace, workspace)
    return redirect("release-stop", wide.standing.pk) if wide.standing else redirect(wide.href)


def shut_page(request: HttpRequest) -> HttpResponseBase:
    """POST /gate/shut : a press on the workspace. A form that was open for long must not be lost."""
    return form_or_press(request, gate_page, sign_in_first, press)


def sign_in_first(request: HttpRequest) -> HttpResponse:
    """The session ended under the form: it comes back, as it was sent."""
    named = {"workspace": request.GET["workspace"]} if "workspace" in request.GET else {}
    return sign_in_to(request, reverse("gate"), named, pause_unless_said(request))


def pause_unless_said(request: HttpRequest) -> dict[str, str]:
    """That form asked for a pause, and had no field that said so."""
    return {"mode": Mode.PAUSE, **request.POST.dict()}


@checked
def press(request: HttpRequest) -> HttpResponse:
    """The press that it meant."""
    sent = pause_unless_said(request)
    target = Target(ScopeKind.WORKSPACE, workspace_of(request).pk)
    return answer_press(request, partial(press_scope, actor_of(request), sent, target), tell_scope)
