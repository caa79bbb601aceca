"""Plan a stop: a form, its moment in UTC as a second look, and then it is kept. Works without scripts."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse

from dashboard import plan_words, words
from dashboard.pages import zones
from dashboard.pages.plan_form import FIELDS, NoPlan, Plan, read_plan
from dashboard.pages.planned import why_not
from dashboard.pages.planned_rows import imagined
from dashboard.pages.shell import (
    actor_of,
    build_shell,
    sign_in_url,
    signed_in,
    workspace_of,
)
from dashboard.pages.stop import not_recorded
from dashboard.pages.stop_form import DEADLINES, StopForm
from runs import schedules
from runs.models import Policy, Workspace
from runs.schedules import NotAhead
from runs.store import database_time

POLICIES = 100


def plan_page(request: HttpRequest) -> HttpResponseBase:
    """/stops/planned/new : GET the form; POST shows the moment in UTC and, pressed again, keeps it."""
    posted = request.method == "POST"
    try:
        if not posted:
            return show_form(request)
        if not request.user.is_authenticated:
            return sign_in_first(request)
        return answer(request)
    except (DatabaseError, InterfaceError):
        return not_recorded(request, perhaps=posted and _sent(request, "go") == "keep")


def sign_in_first(request: HttpRequest) -> HttpResponse:
    """The session ended under the form: nothing is kept, and the form comes back as it was."""
    sent = request.POST.copy()
    for name in ("csrfmiddlewaretoken", "go", "at"):
        sent.pop(name, None)
    if "workspace" in request.GET:
        sent["workspace"] = request.GET["workspace"]
    return redirect(sign_in_url(f"{request.path}?{sent.urlencode()}"))


@signed_in
def show_form(request: HttpRequest) -> HttpResponse:
    return _show(request, workspace_of(request), request.GET.dict())


@signed_in
def answer(request: HttpRequest) -> HttpResponse:
    """The form as sent: shown again, shown with its moment, or kept."""
    workspace, sent = workspace_of(request), request.POST.dict()
    if sent.get("go") == "change":
        return _show(request, workspace, sent)
    now = database_time()
    try:
        plan = read_plan(workspace, sent, now)
        schedules.demand(actor_of(request), workspace.pk, plan.what)
        if sent.get("go") == "keep" and sent.get("at") == plan.when.at.isoformat():
            return keep(request, workspace, plan, now)
    except NoPlan as error:
        return _show(request, workspace, sent, str(error), 422)
    except NotAhead:
        return _show(request, workspace, sent, "That moment is over.", 422)
    return _show_moment(request, workspace, sent, plan, now)


def keep(request: HttpRequest, workspace: Workspace, plan: Plan, now: datetime) -> HttpResponse:
    """The second press; the same form pressed again finds what is there."""
    actor = actor_of(request)
    made = schedules.schedule(
        actor=actor, workspace_id=workspace.pk, what=plan.what, wish=plan.wish, when=plan.when
    )
    said = plan_words.KEPT if made.created_at >= now else plan_words.KEPT_BEFORE
    said = plan_words.OVER if made.pressed_at else said
    messages.info(request, said.format(at=words.moment_utc(made.at)))
    return redirect(f"{reverse('planned', query={'workspace': workspace.slug})}#{made.pk}")


def _sent(request: HttpRequest, name: str) -> str:
    return str(request.POST.get(name, ""))


def _show(
    request: HttpRequest, workspace: Workspace, sent: Mapping[str, str], said: str = "", status: int = 200
) -> HttpResponse:
    shell = build_shell(request, "stops", workspace)
    form = StopForm.returned({**sent, "key": "not used yet"})
    told: dict[str, Any] = {"shell": shell, "now": shell.now, "sent": sent, "said": said, "form": form}
    told |= {"modes": form.offer(list(words.MODE)), "why_not": why_not(request, shell, workspace)}
    told |= {"no_right": plan_words.NO_RIGHT}
    told |= {"policies": Policy.objects.filter(workspace=workspace).order_by("name", "pk")[:POLICIES]}
    told |= {"usual": zones.usual(workspace.pk, actor_of(request).id), "regions": zones.by_region()}
    told |= {"zone": sent.get("zone") or told["usual"][0], "what": sent.get("what") or "run"}
    return render(request, "stops/plan.html", told, status=status)


def _show_moment(
    request: HttpRequest, workspace: Workspace, sent: Mapping[str, str], plan: Plan, now: datetime
) -> HttpResponse:
    shell = build_shell(request, "stops", workspace)
    row = imagined(workspace, plan, actor_of(request), now)
    fields = {name: sent.get(name, "") for name in FIELDS}
    fields |= {"key": secrets.token_hex(16), "at": plan.when.at.isoformat()}
    told = {"shell": shell, "now": now, "row": row, "fields": fields}
    told |= {"ahead": words.span((plan.when.at - now).total_seconds()), "mode": words.MODE[plan.wish.mode]}
    told |= {"deadline": dict(DEADLINES)[plan.wish.deadline_s]}
    return render(request, "stops/plan_moment.html", told)
