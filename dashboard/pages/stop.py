"""Stop: the form (a dialog, or a page of its own), and the press."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC
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
from dashboard.pages.preview import preview_of
from dashboard.pages.shell import actor_of, build_shell, checked, sign_in_url, signed_in, wants_json
from dashboard.pages.stages import clock
from runs import access, stops
from runs.models import FINAL, Mode, Press, Run, RunStatus, StopRequest
from runs.presses import LET_GO
from runs.store import alongside, database_time

log = logging.getLogger(__name__)
DEADLINES = ((60, "60 seconds"), (300, "5 minutes"), (1800, "30 minutes"))
NOTE_MAX, KEY_MAX = 2000, 200


@dataclass(frozen=True)
class StopForm:
    """What the form holds; `came_back`: it was sent before, and nothing was recorded then."""

    key: str
    mode: str = Mode.CANCEL
    reason: str = "other"
    note: str = ""
    deadline_s: int = stops.DEADLINE_S
    came_back: bool = False

    reasons = words.REASONS
    deadlines = DEADLINES
    decides = tuple(words.DEADLINE.items())

    @classmethod
    def fresh(cls) -> StopForm:
        return cls(key=secrets.token_hex(16))

    @classmethod
    def returned(cls, sent: Mapping[str, str]) -> StopForm:
        """The same form after a sign-in, with the same key; a first visit gets a fresh one."""
        if not sent.get("key"):
            return cls.fresh()
        wish = wish_of(sent)
        return cls(wish.key, wish.mode, wish.reason, wish.note, wish.deadline_s, came_back=True)

    @property
    def fields(self) -> dict[str, Any]:
        """What is sent: in a form, or in an address that brings the form back."""
        return {name: value for name, value in asdict(self).items() if name != "came_back"}

    def was_pressed(self, run: Run, actor: access.Actor) -> bool:
        """Whether this very form was recorded before: its answer had been lost."""
        mine = Press.objects.filter(stop__run=run, actor=actor.id, key=self.key, mode=self.mode)
        return self.came_back and mine.exclude(stop__closed_because__in=LET_GO).exists()

    def modes(self, run: Run) -> list[Choice]:
        """The modes that this form offers: those that would move the run on, and the one that was asked for.

        Nothing stronger than what was asked for is ever chosen beforehand.
        """
        offered = [mode for mode in words.MODE if mode in stops.STRONGER[run.status]]
        asked = self.mode if self.came_back or not offered or self.mode in offered else offered[0]
        shown = [mode for mode in words.MODE if mode in offered or mode == asked]
        return [Choice(mode, mode.capitalize(), words.MODE[mode], mode == asked) for mode in shown]


@dataclass(frozen=True)
class Choice:
    """One radio of the form."""

    value: str
    word: str
    sentence: str
    chosen: bool


def wish_of(sent: Mapping[str, str]) -> stops.Wish:
    """A press, made harmless: what can't be read is left out and named, never refused.

    Without a mode it is a cancel; a mode that nobody knows is taken as the mildest.
    """
    ignored = []
    mode = sent.get("mode", Mode.CANCEL)
    if mode not in words.MODE:
        ignored, mode = ["mode"], Mode.PAUSE
    reason = sent.get("reason", "other")
    if reason not in dict(words.REASONS):
        ignored, reason = [*ignored, "reason"], "other"
    deadline = sent.get("deadline_s", str(stops.DEADLINE_S))
    if deadline not in {str(seconds) for seconds, _ in DEADLINES}:
        ignored, deadline = [*ignored, "deadline_s"], str(stops.DEADLINE_S)
    note, key = sent.get("note", ""), sent.get("key", "")
    if len(note) > NOTE_MAX:
        ignored = [*ignored, f"note after {NOTE_MAX} characters"]
    return stops.Wish(
        mode=mode,
        reason=reason,
        note=note[:NOTE_MAX].replace("\0", ""),
        key=key[:KEY_MAX].replace("\0", ""),
        deadline_s=int(deadline),
        ignored=ignored,
    )


def stop_page(request: HttpRequest, run_id: str) -> HttpResponseBase:
    """/runs/<id>/stop : GET shows the form as a page, POST is the press."""
    try:
        if request.method != "POST":
            return show_form(request, run_id)
        if not request.user.is_authenticated:
            return sign_in_first(request, run_id)
        return press(request, run_id)
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
    told = {"shell": shell, "now": shell.now, "run": run, "preview": preview_of(facts), "form": form}
    told |= {"already": already(run, facts), "origin": request.build_absolute_uri("/").rstrip("/")}
    told |= {"modes": form.modes(run), "escalates": bool(told["already"]) and run.status not in FINAL}
    return render(request, "run/stop.html", told)


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

    def keep(self, answer: Any) -> None:
        if isinstance(answer, stops.StopAnswer):
            self.words = tell(answer)
            self.created = answer.answer == "recorded" and not answer.repeated


@checked
def press(request: HttpRequest, run_id: str) -> HttpResponse:
    """One verb, and its answer in words; nothing is asked of the store after the commit."""
    wish, said = wish_of(request.POST.dict()), Said()
    try:
        with alongside(said.keep):
            stops.request_stop(actor=actor_of(request), wish=wish, run_id=run_id)
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


def tell(answer: stops.StopAnswer) -> dict[str, Any]:
    """The sentence for the person who pressed."""
    said = _sentence(answer)
    if answer.weaker is not None:
        was = answer.weaker
        said += words.STOP_SUPERSEDES.format(number=was.number, mode=was.mode, who=_who(was))
    if answer.answer == "joined" and answer.milder:
        said += words.STOP_MILDER.format(asked=answer.press.mode, mode=answer.stop.mode)
    if answer.press.ignored:
        said += f" Left out, because it could not be read: {words.listed(answer.press.ignored)}."
    return {"sentence": said, "href": reverse("run", args=[answer.stop.run_id])}


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
    facts |= {"again": StopForm.returned(request.POST.dict()).fields if pressed else {}}
    return render(request, "error.html", facts, status=503)


@require_GET
@signed_in
def stop_preview(request: HttpRequest, run_id: str) -> HttpResponse:
    """GET /runs/<id>/stop/preview : what the dialog says a stop would meet now."""
    run = access.find_run(actor_of(request), run_id)
    facts = Facts(run, database_time())
    return render(request, "run/_preview.html", {"preview": preview_of(facts), "now": facts.now})
