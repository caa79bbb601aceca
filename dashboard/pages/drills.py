"""Drills: what each shows, how it ended last, and who may run it. Everybody reads, admins start."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from dashboard import words
from dashboard.drilling import catalogue, line, room, schedule
from dashboard.drilling.models import Via
from dashboard.pages.drills_facts import title_of
from dashboard.pages.drills_rows import DrillList, DrillPage, named
from dashboard.pages.shell import (
    actor_of,
    address,
    build_shell,
    is_region,
    person_of,
    signed_in,
    workspace_of,
)
from runs import access


def frame(request: HttpRequest) -> dict[str, Any]:
    """What every page of drills knows. `reads`: whether this person can open what drills left."""
    shell = build_shell(request, "drills", shown(request))
    user = person_of(request)
    rooms = [space.slug for space in shell.workspaces]
    told = {"shell": shell, "now": shell.now, "may_start": room.may_start(user), "topic": line.TOPIC}
    return told | {"reads": access.DRILLS in rooms, "all": schedule.ALL, "entries": catalogue.ENTRIES}


def shown(request: HttpRequest) -> Any:
    """The workspace around the page: drills are of the installation, and a stranger to all reads them too."""
    return workspace_of(request) if access.workspaces_of(person_of(request)) else None


@require_GET
@signed_in
def drills_page(request: HttpRequest) -> HttpResponse:
    """GET /drills/ : the fourteen, or the live region of what moves."""
    told = frame(request) | {"list": DrillList(person_of(request))}
    name = "drills/_list.html" if is_region(request) else "drills/page.html"
    return render(request, name, told | {"region": is_region(request)})


@require_GET
@signed_in
def drill_page(request: HttpRequest, name: str) -> HttpResponse:
    """GET /drills/<name>/?at=&before= : one drill and its history, or the live region of it."""
    entry = catalogue.BY_NAME.get(name)
    if entry is None:
        raise Http404
    asked = {field: request.GET.get(field, "").replace("\0", "")[:40] for field in ("at", "before")}
    told = frame(request) | {"drill": DrillPage(entry, person_of(request), **asked), "asked": asked}
    if asked["at"] and told["drill"].row is None:
        raise Http404
    template = "drills/_drill.html" if is_region(request) else "drills/drill.html"
    return render(request, template, told | {"region": is_region(request)})


@require_POST
@signed_in
def run_page(request: HttpRequest) -> HttpResponse:
    """POST /drills/run drill=<name>|all : in line, or already there."""
    which = request.POST.get("drill", "")
    names = list(catalogue.NAMES) if which == schedule.ALL else [which]
    if not set(names) <= set(catalogue.NAMES):
        raise Http404
    asked = line.ask(actor=actor_of(request), names=names, via=Via.PAGE)
    messages.info(request, said(asked))
    if which != schedule.ALL and request.POST.get("back") == "drill":
        return redirect(address_of(which, request))
    return redirect(address("drills", shown(request)))


def said(asked: line.Asked) -> str:
    """What a press came to."""
    one = title_of((asked.new or asked.joined)[0])
    if not asked.new:
        again = f"“{one}” stands" if len(asked.joined) == 1 else f"All {len(asked.joined)} drills stand"
        return f"{again} in line already. Your request joined; nothing is run twice."
    if len(asked.new) == 1 and not asked.joined:
        return f"“{one}” is in line. It starts within seconds, unless another one runs."
    joined = f", {len(asked.joined)} stood there already" if asked.joined else ""
    return f"{words.count(len(asked.new), 'drill')} in line{joined}. They run one after the other."


def address_of(name: str, request: HttpRequest) -> str:
    """A drill's page, in the workspace that is looked at."""
    space = shown(request)
    return reverse("drill", args=[name], query={"workspace": space.slug} if space else None)


@require_POST
@signed_in
def schedule_page(request: HttpRequest) -> HttpResponse:
    """POST /drills/schedule which= every=off|daily|weekly hour=0..23 : UTC."""
    which, every = request.POST.get("which", ""), request.POST.get("every", "")
    hour = request.POST.get("hour", "")
    if which not in (schedule.ALL, *catalogue.NAMES):
        raise Http404
    if not room.may_start(person_of(request)):
        raise PermissionDenied
    try:
        schedule.put(actor=actor_of(request), which=which, every=every, hour=int(hour))
        often = f"{every} at {int(hour):02}:00 UTC" if every != schedule.OFF else "not by itself any more"
        messages.info(request, f"Saved: {named(which)}, {often}.")
    except ValueError:
        messages.error(request, "Nothing was changed: choose off, daily or weekly, and an hour from 0 to 23.")
    return redirect(address("drills", shown(request)))
