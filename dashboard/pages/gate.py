"""The gate of a workspace: who holds it shut and since when; shutting it, and the decision to release it."""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from dashboard import words
from dashboard.pages.facts import name_actors
from dashboard.pages.shell import (
    Shell,
    actor_of,
    address,
    build_shell,
    checked,
    sign_in_url,
    signed_in,
    workspace_of,
)
from dashboard.pages.stop import not_recorded, wish_of
from runs import access, gates, stops
from runs.gates import NoReason, NotShut, OtherStop
from runs.models import Permit, PermitState, Restore, Run, RunStatus, StopRequest, Workspace
from runs.store import alongside

log = logging.getLogger(__name__)
EARLIER = 10
REASON_MAX = 2000


@dataclass(frozen=True)
class Held:
    """A stop of the gate, and who asked for it."""

    stop: StopRequest
    who: str

    @property
    def by_restore(self) -> bool:
        return self.stop.via == gates.RESTORED

    @property
    def why(self) -> str:
        known = dict(words.REASONS) | {gates.RESTORED: "After a restore"}
        return known.get(self.stop.reason, words.clean(self.stop.reason))


class GatePage:
    """The gate as of now, what a shut or a release would meet, and the stops that held it before."""

    reasons = words.REASONS

    def __init__(self, workspace: Workspace, shell: Shell, key: str) -> None:
        self.standing = gates.standing(workspace.pk)
        rows = StopRequest.objects.filter(workspace=workspace, scope=gates.SCOPE).order_by("-number")
        found = list(rows[: EARLIER + 1])
        named = name_actors(stop.actor for stop in found)
        told = [Held(stop, words.clean(named[stop.actor])) for stop in found]
        current = self.standing.stop
        self.held = next((one for one in told if current and one.stop.pk == current.pk), None)
        self.earlier = [one for one in told if one is not self.held][:EARLIER]
        self.may_shut = shell.may_stop
        self.may_release = ("admin" if self.held and self.held.by_restore else "release") in shell.may
        self.key = key or secrets.token_hex(16)
        mine = Run.objects.filter(workspace=workspace)
        self.active = mine.filter(status=RunStatus.ACTIVE).count()
        self.flying = Permit.objects.filter(run__in=mine, state=PermitState.OPEN).count()
        self.restore = Restore.objects.order_by("-pk").first()
        self.slip_guard = slip_guard(workspace.name)

    @property
    def releasing(self) -> str:
        """What a release does, and what it leaves as it is."""
        paused, stale = self.standing.paused, self.standing.stale
        said = ["Releasing starts nothing."]
        if paused:
            runs = "run stays" if paused == 1 else "runs stay"
            said.append(f"{paused} paused {runs} paused until resumed one by one.")
        said.append("New runs may be admitted.")
        if stale == 1:
            said.append(
                "1 run was active when it shut and stays refused: pause and resume it to let it go on."
            )
        elif stale:
            said.append(f"{stale} runs were active when it shut and stay refused: pause and resume each.")
        return " ".join(said)


def slip_guard(name: str) -> str:
    """The name as a pattern of an input: browsers check it, the verb never does."""
    return "".join(f"\\{sign}" if sign in "^$\\.*+?()[]{}|/" else sign for sign in words.clean(name))


@require_GET
@signed_in
def gate_page(request: HttpRequest) -> HttpResponse:
    """GET /gate : the gate of the workspace, with the form that fits how it stands."""
    workspace = workspace_of(request)
    return show(request, workspace)


def show(request: HttpRequest, workspace: Workspace, *, status: int = 200, **told: Any) -> HttpResponse:
    shell = build_shell(request, "people", workspace)
    told |= {
        "shell": shell,
        "now": shell.now,
        "page": GatePage(workspace, shell, request.GET.get("key", "")[:200]),
    }
    return render(request, "gate/page.html", told, status=status)


# shut ---------------------------------------------------------------------------------------------------


def shut_page(request: HttpRequest) -> HttpResponseBase:
    """POST /gate/shut : a press, for whoever may stop here. GET shows the gate and its form."""
    try:
        if request.method != "POST":
            return gate_page(request)
        if not request.user.is_authenticated:
            return sign_in_first(request)
        return press(request)
    except (DatabaseError, InterfaceError):
        return not_recorded(request)


def sign_in_first(request: HttpRequest) -> HttpResponse:
    """The session ended under the form: it is said that nothing is recorded yet, and the form comes back."""
    named = {"key": wish_of(request.POST.dict()).key or secrets.token_hex(16)}
    named |= {"workspace": request.GET["workspace"]} if "workspace" in request.GET else {}
    return redirect(sign_in_url(f"{reverse('gate')}?{urlencode(named)}"))


class Said:
    """The answer, read before the commit: once it is there, the commit was at least tried."""

    answer: stops.StopAnswer | None = None

    def keep(self, answer: Any) -> None:
        self.answer = answer


@checked
def press(request: HttpRequest) -> HttpResponse:
    """One verb, and its answer in words."""
    workspace, said = workspace_of(request), Said()
    wish = replace(wish_of(request.POST.dict()), requested_mode="")
    try:
        with alongside(said.keep):
            answer = gates.shut(actor=actor_of(request), workspace_id=workspace.pk, wish=wish)
    except (access.NotFound, access.NotAllowed):
        raise
    except Exception:
        log.exception("a stop was not confirmed")
        return not_recorded(request, perhaps=said.answer is not None)
    messages.info(request, told_of(answer, workspace))
    return redirect(address("gate", workspace))


def told_of(answer: stops.StopAnswer, workspace: Workspace) -> str:
    """The sentence for the person who pressed."""
    stop, name = answer.stop, words.clean(workspace.name)
    if stop.closed_at:
        return f"This press was recorded before, with stop #{stop.number}, which was released since."
    if answer.answer == "joined":
        return f"The gate is shut already, by stop #{stop.number}. Your request was added to it."
    return f"Stop #{stop.number} recorded. No run of {name} may start new work until the gate is released."


# release ------------------------------------------------------------------------------------------------


@require_POST
@signed_in
def release_page(request: HttpRequest) -> HttpResponse:
    """POST /gate/release : a decision with its reason. It opens the gate and starts nothing."""
    workspace = workspace_of(request)
    reason = request.POST.get("reason", "").replace("\0", "")[:REASON_MAX]
    stop_id = request.POST.get("stop", "")[:40]
    try:
        gates.release(actor=actor_of(request), workspace_id=workspace.pk, reason=reason, stop_id=stop_id)
    except NoReason:
        return show(request, workspace, status=422, no_reason=True)
    except (NotShut, OtherStop) as error:
        messages.error(request, str(type(error).__doc__))
    else:
        messages.info(request, "The gate is open. Nothing was started by this; new runs may be admitted.")
    return redirect(address("gate", workspace))
