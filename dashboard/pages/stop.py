"""Stop: the form (a dialog, or a page of its own), the preview, and the press."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
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
from dashboard.pages.shell import actor_of, build_shell, checked, sign_in_url, signed_in, wants_json
from effects.ends import abandoned
from runs import access, stops
from runs.models import Permit, PermitState, Run, RunStatus, StepStatus
from runs.store import database_time

DEADLINES = ((60, "60 seconds"), (300, "5 minutes"), (1800, "30 minutes"))
NOTE_MAX, KEY_MAX = 2000, 200
SILENT_S = 30


@dataclass(frozen=True)
class StopForm:
    """What the form holds; `came_back`: it was sent before, and nothing was recorded then."""

    key: str
    reason: str = "other"
    note: str = ""
    deadline_s: int = stops.DEADLINE_S
    came_back: bool = False

    reasons = words.REASONS
    deadlines = DEADLINES

    @classmethod
    def fresh(cls) -> StopForm:
        return cls(key=secrets.token_hex(16))

    @classmethod
    def returned(cls, sent: Mapping[str, str]) -> StopForm:
        """The same form after a sign-in, with the same key; a first visit gets a fresh one."""
        if not sent.get("key"):
            return cls.fresh()
        wish = wish_of(sent)
        return cls(wish.key, wish.reason, wish.note, wish.deadline_s, came_back=True)


def wish_of(sent: Mapping[str, str]) -> stops.Wish:
    """A press, made harmless: what can't be read is left out and named, never refused."""
    ignored = []
    reason = sent.get("reason", "other")
    if reason not in dict(words.REASONS):
        ignored, reason = ["reason"], "other"
    deadline = sent.get("deadline_s", str(stops.DEADLINE_S))
    if deadline not in {str(seconds) for seconds, _ in DEADLINES}:
        ignored, deadline = [*ignored, "deadline_s"], str(stops.DEADLINE_S)
    note, key = sent.get("note", ""), sent.get("key", "")
    if len(note) > NOTE_MAX:
        ignored = [*ignored, f"note after {NOTE_MAX} characters"]
    return stops.Wish(
        reason=reason,
        note=note[:NOTE_MAX].replace("\0", ""),
        key=key[:KEY_MAX].replace("\0", ""),
        deadline_s=int(deadline),
        ignored=ignored,
    )


@dataclass(frozen=True)
class Told:
    """One line of the preview."""

    icon: str
    text: str
    bold: bool = False
    tone: str = ""


@dataclass(frozen=True)
class Preview:
    """What a stop would meet now; things may change before the press."""

    lines: list[Told]
    queued: int
    now: datetime


def preview_of(facts: Facts) -> Preview:
    """From rows that were already read."""
    return Preview(list(_consequences(facts)), facts.queued, facts.now)


def _consequences(facts: Facts) -> Iterable[Told]:
    waiting = [words.count(facts.queued, "queued step")] if facts.queued else []
    retries = facts.step_counts[StepStatus.RETRY_WAIT]
    waiting += [words.count(retries, "retry", "retries")] if retries else []
    yield Told("st-refused", f"{words.listed(waiting) or 'Any new work'} will be refused.")
    yield _in_flight([permit for permit in facts.permits if permit.state == PermitState.OPEN], facts)
    happened = facts.settlements["CONFIRMED"] + facts.settlements["PARTIAL"]
    if happened:
        done, them = words.count(happened, "effect"), "it" if happened == 1 else "them"
        yield Told("st-confirmed", f"{done} already happened; stopping does not undo {them}.", tone="c-known")
    if facts.unknown:
        yield Told("st-unknown", f"{words.count(facts.unknown, 'effect')} still unknown.", tone="c-unknown")
    for worker in facts.workers:
        if (facts.now - worker.last_heard_at).total_seconds() > SILENT_S:
            since = clock(worker.last_heard_at)
            yield Told("clock", f"{words.clean(worker.name)} not heard since {since}. {words.SILENCE}")
    if facts.run.ungateable:
        tools = words.count(len(facts.run.ungateable), "tool runs", "tools run")
        yield Told("lock", f"{tools} at the provider and cannot be refused by us.")


def _in_flight(open_permits: list[Permit], facts: Facts) -> Told:
    if not open_permits:
        return Told("st-flight", "Nothing is in flight at this moment.")
    last = open_permits[-1]
    titles = {effect.key: effect.title for effect in facts.effects}
    steps = {step.pk: step.name for step in facts.steps}
    name = words.clean(titles.get(last.effect_key) or steps.get(last.step_id, ""))
    many = len(open_permits) > 1
    acts = words.count(len(open_permits), "action is", "actions are")
    which = f"the latest: {name}" if many else name
    end = "They may still complete." if many else "It may still complete."
    text = f"{acts} in flight, {which}, since {clock(last.opened_at)}. {end}"
    return Told("st-flight", text, bold=True, tone="c-flight")


def clock(moment: datetime) -> str:
    """15:02:13, UTC."""
    return moment.astimezone(UTC).strftime("%H:%M:%S")


def stop_page(request: HttpRequest, run_id: str) -> HttpResponseBase:
    """/runs/<id>/stop : GET shows the form as a page, POST is the press."""
    try:
        if request.method != "POST":
            return show_form(request, run_id)
        if not request.user.is_authenticated:
            return sign_in_first(request)
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
    shell = build_shell(request, "runs", run.workspace)
    facts = Facts(run, shell.now)
    form = StopForm.returned(request.GET.dict())
    told = {"shell": shell, "now": shell.now, "run": run, "preview": preview_of(facts), "form": form}
    told |= {"already": already(run, facts), "origin": request.build_absolute_uri("/").rstrip("/")}
    return render(request, "run/stop.html", told)


def already(run: Run, facts: Facts) -> str:
    """What to say above the form when the run can't start work anyway."""
    if run.status == RunStatus.ACTIVE or facts.stop is None:
        return ""
    who = words.clean(facts.names.get(facts.stop.actor, facts.stop.actor))
    return f"Stop #{facts.stop.number} was recorded {clock(facts.stop.recorded_at)} by {who}."


def sign_in_first(request: HttpRequest) -> HttpResponse:
    """The session ended under the dialog: sign in, and the same form comes back with the same key."""
    form = asdict(StopForm.returned(request.POST.dict()))
    form.pop("came_back")
    url = sign_in_url(f"{request.path}?{urlencode(form)}")
    if wants_json(request):
        return JsonResponse({"recorded": False, "sign_in": url}, status=401)
    return redirect(url)


@checked
def press(request: HttpRequest, run_id: str) -> HttpResponse:
    """One verb, and its answer in words."""
    wish = wish_of(request.POST.dict())
    answer = stops.request_stop(actor=actor_of(request), wish=wish, run_id=run_id, ends=abandoned)
    said = tell(answer)
    if wants_json(request):
        created = answer.answer == "recorded" and not answer.repeated
        return JsonResponse({"recorded": True, **said}, status=201 if created else 200)
    messages.info(request, said["sentence"])
    return redirect(said["href"])


def tell(answer: stops.StopAnswer) -> dict[str, Any]:
    """The sentence for the person who pressed."""
    stop = answer.stop
    who = words.clean(name_actors([stop.actor]).get(stop.actor, stop.actor))
    said = {
        "recorded": words.STOP_RECORDED,
        "joined": words.STOP_JOINED,
        "finished": words.STOP_FINISHED,
    }.get(answer.answer, words.STOP_RECORDED)
    moment = stop.recorded_at.astimezone(UTC).strftime("%H:%M:%S.%f")[:12]
    at = f"{moment} UTC" if answer.answer == "recorded" else moment[:8]
    run = stop.run
    word = words.RUN[run.status].word.lower() if run else ""
    sentence = said.format(number=stop.number, at=at, version=stop.version_after, who=who, word=word)
    if answer.press.ignored:
        sentence += f" Left out, because it could not be read: {words.listed(answer.press.ignored)}."
    return {"sentence": sentence, "href": reverse("run", args=[stop.run_id])}


def not_recorded(request: HttpRequest) -> HttpResponse:
    """The store gave no answer. Said as loudly as a page can."""
    sentence = f"The store did not answer. {words.MAY_STILL_START} Try again; the same key is used."
    if wants_json(request):
        return JsonResponse({"recorded": False, "sentence": sentence}, status=503)
    facts = {"head": "The store did not answer", "sentence": "New work fails closed meanwhile."}
    facts |= {"say": "A stop counts when it is written down.", "href": request.path, "link": "Try again"}
    return render(request, "error.html", facts | {"not_recorded": request.method == "POST"}, status=503)


@require_GET
@signed_in
def stop_preview(request: HttpRequest, run_id: str) -> HttpResponse:
    """GET /runs/<id>/stop/preview : what the dialog says a stop would meet now."""
    run = access.find_run(actor_of(request), run_id)
    facts = Facts(run, database_time())
    return render(request, "run/_preview.html", {"preview": preview_of(facts), "now": facts.now})
