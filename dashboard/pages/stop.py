"""Stop: the form (a dialog, or a page of its own), and the press."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC
from functools import partial
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET

from dashboard import words
from dashboard.pages.facts import Facts, name_actors
from dashboard.pages.scope_choice import preview_for, what_to_stop
from dashboard.pages.scope_press import tell_scope, verb_of
from dashboard.pages.shell import actor_of, build_shell, checked, sign_in_url, signed_in, wants_json
from dashboard.pages.stages import clock
from dashboard.pages.stop_form import StopForm, wish_of
from runs import access, stops
from runs.models import FINAL, Run, RunStatus, ScopeKind, StopRequest
from runs.store import alongside, database_time

__all__ = [
    "StopForm",
    "answer_press",
    "form_of",
    "form_or_press",
    "not_recorded",
    "stop_page",
    "stop_preview",
    "tell",
    "wish_of",
]
log = logging.getLogger(__name__)


def stop_page(request: HttpRequest, run_id: str) -> HttpResponseBase:
    """/runs/<id>/stop : GET shows the form as a page, POST is the press."""
    return form_or_press(
        request, *(partial(each, run_id=run_id) for each in (show_form, sign_in_first, press))
    )


Page = Callable[[HttpRequest], HttpResponseBase]


def form_or_press(request: HttpRequest, show: Page, sign_in: Page, press: Page) -> HttpResponseBase:
    """The page of any stop: GET shows its form, POST is the press, of somebody who is signed in.

    A store that does not answer is said to have recorded nothing, as far as that is known.
    """
    try:
        if request.method != "POST":
            return show(request)
        return press(request) if request.user.is_authenticated else sign_in(request)
    except (DatabaseError, InterfaceError):
        return not_recorded(request)


@signed_in
def show_form(request: HttpRequest, run_id: str) -> HttpResponse:
    """The form as a page of its own: what the dialog shows, without scripts."""
    actor = actor_of(request)
    run = access.find_run(actor, run_id)
    if not access.may(actor, "stop", run):
        raise PermissionDenied
    form = StopForm.returned(request.GET.dict())
    if form.was_pressed(run, actor):
        return redirect("run", run_id)
    shell = build_shell(request, "runs", run.workspace)
    facts = Facts(run, shell.now)
    told = {"shell": shell, "now": shell.now, "run": run, "form": form}
    told |= form_of(facts, form, shell.may, actor) | {"origin": request.build_absolute_uri("/").rstrip("/")}
    told |= {"already": already(run, facts)}
    told |= {"escalates": bool(told["already"]) and run.status not in FINAL}
    return render(request, "run/stop.html", told)


def form_of(facts: Facts, form: StopForm, may: frozenset[str], actor: access.Actor) -> dict[str, Any]:
    """What the form's template needs to know of a run: what a press may be about, how, and what it meets."""
    what = what_to_stop(facts, form, may)
    chosen = replace(form, what=what.chosen)
    return {"what": what, "preview": preview_for(facts, chosen, actor), "modes": form.modes(facts.run)}


def already(run: Run, facts: Facts) -> str:
    """What to say above the form when the run can't start work anyway."""
    if run.status == RunStatus.ACTIVE:
        return ""
    if facts.stop is None:
        return "This run has already finished." if run.status in FINAL else ""
    stop, ended = facts.stop, " The run has ended since." if run.status in FINAL else ""
    at = f"{clock(stop.recorded_at)} by {facts.who(stop)}"
    return f"Stop #{stop.number} was recorded {at}, in mode {stop.mode}.{ended}"


def sign_in_first(request: HttpRequest, run_id: str) -> HttpResponse:
    """The session ended under the dialog: sign in, and the same form comes back with the same key.

    A script gets the run with its dialog open, everybody else the form as a page.
    """
    query = urlencode(StopForm.returned(request.POST.dict()).fields)
    if wants_json(request):
        url = sign_in_url(f"{reverse('run', args=[run_id])}?{query}")
        return JsonResponse({"recorded": False, "sign_in": url}, status=401)
    return redirect(sign_in_url(f"{request.path}?{query}"))


class Said:
    """The answer in words, read before the commit: once it is there, the commit was at least tried."""

    words: dict[str, Any] | None = None
    created = False

    def __init__(self, tell: Callable[[Any], tuple[str, str]], kind: type) -> None:
        self.tell, self.kind = tell, kind

    def keep(self, answer: Any) -> None:
        if not isinstance(answer, self.kind):
            return
        self.words = dict(zip(("sentence", "href"), self.tell(answer), strict=True))
        self.created = getattr(answer, "answer", "recorded") == "recorded"
        self.created = self.created and not getattr(answer, "repeated", False)


@checked
def press(request: HttpRequest, run_id: str) -> HttpResponse:
    """One press: of this run, or of what the form names instead of it."""
    return answer_press(request, verb_of(actor_of(request), request.POST.dict(), run_id))


def answer_press(
    request: HttpRequest,
    verb: Callable[[], object],
    tell: Callable[[Any], tuple[str, str]] | None = None,
    kind: type = stops.StopAnswer,
) -> HttpResponse:
    """One verb, and its answer in words; nothing is asked of the store after the commit.

    `tell`: the sentence of an answer of this `kind` and where it leads to, read before the commit.
    """
    said = Said(tell or tell_any, kind)
    try:
        with alongside(said.keep):
            verb()
    except (access.NotFound, access.NotAllowed):
        raise
    except Exception:
        log.exception("a stop was not confirmed")
        return not_recorded(request, perhaps=said.words is not None)
    assert said.words is not None
    if wants_json(request):
        return JsonResponse({"recorded": True, **said.words}, status=201 if said.created else 200)
    messages.info(request, said.words["sentence"])
    return redirect(said.words["href"])


def tell_any(answer: stops.StopAnswer) -> tuple[str, str]:
    """The sentence for the person who pressed, and the page that says more."""
    if answer.stop.scope != ScopeKind.RUN:
        return tell_scope(answer)
    return tell(answer), reverse("run", args=[answer.stop.run_id])


def tell(answer: stops.StopAnswer) -> str:
    """The sentence for a press on a run."""
    said = _sentence(answer)
    if answer.weaker is not None:
        was = answer.weaker
        said += words.STOP_SUPERSEDES.format(number=was.number, mode=was.mode, who=_who(was))
    if answer.answer == "joined" and answer.milder:
        said += words.STOP_MILDER.format(asked=answer.press.mode, mode=answer.stop.mode)
    if answer.press.ignored:
        said += f" Left out, because it could not be read: {words.listed(answer.press.ignored)}."
    return said


def _sentence(answer: stops.StopAnswer) -> str:
    stop, run = answer.stop, answer.stop.run
    joins = {"joined": words.STOP_JOINED, "finished": words.STOP_FINISHED}
    moment = stop.recorded_at.astimezone(UTC).strftime("%H:%M:%S.%f")[:12]
    return joins.get(answer.answer, words.STOP_RECORDED[stop.mode]).format(
        number=stop.number,
        at=moment[:8] if answer.answer in joins else f"{moment} UTC",
        version=stop.version_after,
        who=_who(stop),
        word=words.RUN[run.status].word.lower() if run else "",
    )


def _who(stop: StopRequest) -> str:
    return words.clean(name_actors([stop.actor]).get(stop.actor, stop.actor))


def not_recorded(request: HttpRequest, *, perhaps: bool = False) -> HttpResponse:
    """Nobody confirms this stop, and it is said as loudly as a page can; `perhaps`: its commit was tried.

    The button sends the same form again, with the same key.
    """
    pressed = request.method == "POST"
    if wants_json(request):
        told = words.PERHAPS_RECORDED if perhaps else f"The store did not answer. {words.MAY_STILL_START}"
        answer = {"recorded": None if perhaps else False, "sentence": f"{told} {words.SAME_KEY}"}
        return JsonResponse(answer, status=503)
    facts: dict[str, Any] = {
        "head": "The store did not answer",
        "say": "A stop counts when it is written down.",
    }
    facts |= {"sentence": "New work fails closed meanwhile.", "href": request.get_full_path()}
    facts |= {"link": "Try again", "not_recorded": pressed and not perhaps, "perhaps": pressed and perhaps}
    facts |= {"again": again(request) if pressed else []}
    return render(request, "error.html", facts, status=503)


def again(request: HttpRequest) -> list[tuple[str, Any]]:
    """The same form once more, with the same key: whatever else it names, each tick of it, comes along."""
    form = StopForm.returned(request.POST.dict()).fields
    sent = [(name, value) for name, values in request.POST.lists() for value in values]
    return [*form.items(), *((n, v) for n, v in sent if n not in form and n != "csrfmiddlewaretoken")]


@require_GET
@signed_in
def stop_preview(request: HttpRequest, run_id: str) -> HttpResponse:
    """GET /runs/<id>/stop/preview : what the dialog says a stop of what is chosen would meet now."""
    actor = actor_of(request)
    run = access.find_run(actor, run_id)
    form = StopForm(key="", what=request.GET.get("what", ""), step=request.GET.get("step", ""))
    now = database_time()
    told = preview_for(Facts(run, now), form, actor)
    return render(request, "run/_preview.html", {"preview": told, "now": now})
