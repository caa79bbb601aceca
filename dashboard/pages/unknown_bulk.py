"""Several unknowns at once: check now and assign; one verdict for all only on one export of the provider."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from dashboard import words
from dashboard.pages.shell import actor_of, build_shell, person_of, signed_in, workspace_of
from dashboard.pages.unknown_desk import Asked
from dashboard.pages.unknown_draft import Draft
from dashboard.pages.unknown_subject import Subject
from dashboard.unknown_words import VERDICT
from effects import resolve, unknowns
from effects.resolve import WHY_NOT, NotResolved, Resolved
from runs import access

MOST = 200
NONE = "Nothing was done: nothing is selected."
NOT_FOUND = "It is not there any more."


def chosen_of(request: HttpRequest) -> list[str]:
    """The ids that were ticked, each once."""
    sent = [one for one in request.POST.getlist("unknown") if "\0" not in one and len(one) <= 40]
    return list(dict.fromkeys(sent))[:MOST]


@never_cache
@require_POST
@signed_in
def bulk(request: HttpRequest) -> HttpResponse:
    """POST /unknowns/together : do=check · assign (person) · resolve (shows the form)."""
    workspace, ids = workspace_of(request), chosen_of(request)
    actor, back = actor_of(request), Asked.read(workspace, person_of(request), request.GET).address()
    access.demand_workspace(actor, "resolve", workspace.pk)
    if not ids:
        messages.error(request, NONE)
        return redirect(back)
    what = request.POST.get("do", "")
    if what == "resolve":
        return form(request, ids)
    if what == "check":
        told = resolve.check_many(actor=actor, subject_ids=ids)
        say(request, told, "will be asked within seconds")
    else:
        told = resolve.assign_many(actor=actor, subject_ids=ids, person_id=_person(request))
        say(request, told, "assigned" if _person(request) else "released")
    return redirect(back)


def _person(request: HttpRequest) -> int | None:
    text = request.POST.get("person", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None


def say(request: HttpRequest, told: Mapping[str, str], done: str) -> None:
    """How many, and why the others not, each reason once."""
    reasons = Counter(told.values())
    parts = [f"{reasons.pop('')} {done}"] if "" in reasons else []
    parts += [f"{number} not: {WHY_NOT.get(why, NOT_FOUND)}" for why, number in reasons.items()]
    if not parts:
        parts = [NONE]
    messages.info(request, ". ".join(part.rstrip(".") for part in parts) + ".")


def form(request: HttpRequest, ids: list[str], draft: Draft | None = None, error: str = "") -> HttpResponse:
    """What would be recorded for all of them, and the export that all of them share."""
    workspace = workspace_of(request)
    shell = build_shell(request, "unknowns", workspace)
    found = unknowns.find_many(workspace.pk, ids)
    told: dict[str, Any] = {"shell": shell, "now": shell.now, "draft": draft or Draft(), "error": error}
    told |= {"rows": [Subject(one, shell.now) for one in found], "verdicts": VERDICT.items()}
    return render(request, "unknowns/together.html", told, status=422 if error else 200)


@never_cache
@require_POST
@signed_in
def record(request: HttpRequest) -> HttpResponse:
    """POST /unknowns/together/resolve : one verdict for each, which a second person agrees to."""
    workspace, ids, draft = workspace_of(request), chosen_of(request), Draft.read(request.POST)
    access.demand_workspace(actor_of(request), "resolve", workspace.pk)
    file = request.FILES.get("file")
    told = resolve.resolve_many(
        actor=actor_of(request),
        subject_ids=ids,
        verdict=draft.verdict,
        evidence=draft.evidence,
        file_name=(file.name or "") if file else "",
        content=file.read(resolve.FILE_MAX + 1) if file else b"",
    )
    done = [one for one in told.values() if isinstance(one, Resolved)]
    missing = [one.sentence for one in told.values() if not isinstance(one, Resolved)]
    if not done:
        return form(request, ids, draft, missing[0] if missing else NONE)
    said = f"{words.count(len(done), 'verdict')} recorded. Each counts once a second person agrees."
    why = f" {len(missing)} not: {missing[0]}" if missing else ""
    messages.info(request, said + why)
    return redirect(Asked.read(workspace, person_of(request), request.GET).address())


@never_cache
@require_POST
@signed_in
def agree(request: HttpRequest) -> HttpResponse:
    """POST /unknowns/together/agree : the second person's yes to each verdict that stands on one export."""
    workspace = workspace_of(request)
    access.demand_workspace(actor_of(request), "approve", workspace.pk)
    sent = [one[:40] for one in request.POST.getlist("resolution") if "\0" not in one][:MOST]
    told = resolve.agree_many(actor=actor_of(request), resolution_ids=sent)
    reasons = {pk: one.reason if isinstance(one, NotResolved) else "" for pk, one in told.items()}
    say(request, reasons, "agreed; they count now, with both names")
    return redirect(Asked.read(workspace, person_of(request), request.GET).address())
