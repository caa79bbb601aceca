"""The stop of a session, workspace or policy: its form as a page, its preview, the press."""

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import urlencode

from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET

from dashboard import scope_words, words
from dashboard.pages.scope_choice import slip_guard
from dashboard.pages.scope_press import press_scope, tell_scope
from dashboard.pages.scope_preview import Met, preview_of_scope
from dashboard.pages.scope_target import Wide, find
from dashboard.pages.shell import actor_of, build_shell, checked, sign_in_url, signed_in, wants_json
from dashboard.pages.stages import clock
from dashboard.pages.stop import answer_press, form_or_press
from dashboard.pages.stop_form import StopForm
from runs.models import StopRequest
from runs.presses import STRENGTH
from runs.scopes import Target
from runs.store import database_time

MODES = tuple(words.MODE)


def scope_page(request: HttpRequest) -> HttpResponseBase:
    """/stop/scope?scope=…&id=… : GET shows the form, POST is the press."""
    return form_or_press(request, show_form, sign_in_first, press)


def target_in(request: HttpRequest) -> Target:
    """What the address names; whoever reads it asks for the right to it."""
    scope_id = request.GET.get("id", "").replace("\0", "")[:40]
    return Target(request.GET.get("scope", "")[:20], scope_id)


@signed_in
def show_form(request: HttpRequest) -> HttpResponse:
    """What the dialog of a run shows, for the scope alone; without scripts it is all there is."""
    actor, target = actor_of(request), target_in(request)
    wide = find(actor, target.kind, target.id)
    form = StopForm.returned(request.GET.dict())
    if form.was_recorded(about(wide), actor):
        return redirect(wide.page)
    return show(request, wide, form)


def show(request: HttpRequest, wide: Wide, form: StopForm) -> HttpResponse:
    shell = build_shell(request, "stops", wide.workspace)
    told: dict[str, Any] = {"shell": shell, "now": shell.now, "wide": wide, "form": form}
    told |= {"preview": preview_of(wide, shell.now), "modes": form.offer(offered(wide))}
    told |= {"guard": slip_guard(wide.name) if wide.guarded else "", "already": already(wide)}
    told |= {"origin": request.build_absolute_uri("/").rstrip("/"), "stands": scope_words.STANDS}
    return render(request, "stop/scope.html", told)


def about(wide: Wide) -> Q:
    """The stops of this scope."""
    mine = {"stop__scope": wide.kind, "stop__workspace": wide.workspace}
    return Q(**mine) if wide.kind == "workspace" else Q(**mine, **{f"stop__{wide.kind}": wide.row})


def offered(wide: Wide) -> list[str]:
    """The modes that would change something; a policy of effects has only one that means anything."""
    if wide.of_effects:
        return [MODES[0]]
    stop = wide.standing
    if stop is None or stop.observes:
        return list(MODES)
    return [mode for mode in MODES if STRENGTH[mode] > STRENGTH[stop.mode]] or [stop.mode]


def already(wide: Wide) -> str:
    """What to say above the form when a stop stands here."""
    stop = wide.standing
    if stop is None:
        return "Its gate is shut, and nobody recorded why." if wide.shut else ""
    does = "observes it" if stop.observes else f"holds it, in mode {stop.mode}"
    said = f"Stop #{stop.number} {does}: recorded {clock(stop.recorded_at)} by {wide.who}."
    return f"{said} {_another(wide, stop)}"


def _another(wide: Wide, stop: StopRequest) -> str:
    """What one more press comes to."""
    if stop.observes:
        return "A press that does not observe enforces it."
    if STRENGTH[offered(wide)[-1]] > STRENGTH[stop.mode]:
        return "A stronger press replaces it."
    return "Another press is kept with it."


def preview_of(wide: Wide, now: Any) -> Any:
    met = Met(wide.runs, now, wide.match)
    return preview_of_scope(met, gated=wide.said, stop=wide.standing, who=wide.who)


def sign_in_first(request: HttpRequest) -> HttpResponse:
    """The session ended under the form: nothing is recorded yet, and the form comes back with its key."""
    named = {name: request.GET[name] for name in ("scope", "id") if name in request.GET}
    return sign_in_to(request, request.path, named)


def sign_in_to(
    request: HttpRequest, path: str, named: dict[str, str], sent: dict[str, str] | None = None
) -> HttpResponse:
    """The sign-in that leads to the form at `path`, as it was `sent`."""
    query = urlencode(named | StopForm.returned(sent or request.POST.dict()).fields)
    url = sign_in_url(f"{path}?{query}")
    if wants_json(request):
        return JsonResponse({"recorded": False, "sign_in": url}, status=401)
    return redirect(url)


@checked
def press(request: HttpRequest) -> HttpResponse:
    """One press of the scope in the address, and its answer in words."""
    verb = partial(press_scope, actor_of(request), request.POST.dict(), target_in(request))
    return answer_press(request, verb, tell_scope)


@require_GET
@signed_in
def scope_preview(request: HttpRequest) -> HttpResponse:
    """GET /stop/scope/preview?scope=…&id=… : what a stop of it would meet now."""
    target = target_in(request)
    wide = find(actor_of(request), target.kind, target.id)
    now = database_time()
    return render(request, "run/_preview.html", {"preview": preview_of(wide, now), "now": now})
