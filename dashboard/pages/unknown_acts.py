"""What people do to one item of the unknowns desk: a form is read, one verb called, and what came is said."""

from __future__ import annotations

from dataclasses import replace

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from dashboard import words
from dashboard.pages.shell import actor_of, is_region, signed_in
from dashboard.pages.unknown_draft import Draft, keep_draft
from dashboard.pages.unknowns import show
from dashboard.unknown_words import FIELD, MEANWHILE, VERDICT, checked_says
from effects import resolve, unknowns
from effects.models import Attachment
from effects.resolve import Checked, NotResolved, Resolved

NOTHING = "Nothing was recorded."


@never_cache
@require_POST
@signed_in
def check(request: HttpRequest, subject_id: str) -> HttpResponse:
    """POST /unknowns/<id>/check : ask the provider at once, and say what it answered."""
    told = resolve.check_now(actor=actor_of(request), subject_id=subject_id)
    said = checked_says(told.answer, told.detail, told.means) if isinstance(told, Checked) else told.sentence
    return say(request, subject_id, said)


@never_cache
@require_POST
@signed_in
def take(request: HttpRequest, subject_id: str) -> HttpResponse:
    """POST /unknowns/<id>/take : look after it from now on."""
    told = resolve.take(actor=actor_of(request), subject_id=subject_id)
    return say(
        request, subject_id, told.sentence if isinstance(told, NotResolved) else "You look after it now."
    )


@never_cache
@require_POST
@signed_in
def release(request: HttpRequest, subject_id: str) -> HttpResponse:
    """POST /unknowns/<id>/release : look after it no more."""
    told = resolve.give_back(actor=actor_of(request), subject_id=subject_id)
    said = told.sentence if isinstance(told, NotResolved) else "Released. Nobody looks after it now."
    return say(request, subject_id, said)


def say(request: HttpRequest, subject_id: str, said: str) -> HttpResponse:
    """The result inline where a script asked; else above the page. The item's region fetches itself again."""
    if not is_region(request):
        messages.info(request, said)
        return redirect("unknown", subject_id)
    answer = render(request, "unknowns/_said.html", {"said": said})
    answer["HX-Trigger"] = "desk:changed"
    return answer


@never_cache
@require_POST
@signed_in
def attach(request: HttpRequest, subject_id: str) -> HttpResponse:
    """POST /unknowns/<id>/attach : multipart; what else was typed into the form comes back with it."""
    draft = Draft.read(request.POST)
    file = request.FILES.get("file")
    form = "file" if file is not None else request.POST.get("form", "")
    told = resolve.attach(
        actor=actor_of(request),
        subject_id=subject_id,
        form=form,
        text="" if file else request.POST.get("text", "").replace("\0", ""),
        file_name=(file.name or "") if file else "",
        content_type=(file.content_type or "") if file else "",
        content=file.read(resolve.FILE_MAX + 1) if file else b"",
    )
    if isinstance(told, Attachment):
        keep_draft(request, subject_id, replace(draft, attachments=(*draft.attachments, told.pk)))
        messages.info(request, "Attached, and kept with your name. Your draft is as you left it.")
        return redirect("unknown", subject_id)
    return again(request, subject_id, draft, told)


@never_cache
@require_POST
@signed_in
def record(request: HttpRequest, subject_id: str) -> HttpResponse:
    """POST /unknowns/<id>/resolve : a verdict with its evidence. What is refused comes back as a draft."""
    draft = Draft.read(request.POST)
    told = resolve.resolve(
        actor=actor_of(request),
        subject_id=subject_id,
        verdict=draft.verdict,
        evidence=draft.evidence,
        items=draft.parts or None,
        attachments=draft.attachments,
        lines=draft.lines,
        seen=draft.seen,
        correct=request.POST.get("correct") == "1",
    )
    if isinstance(told, NotResolved):
        return again(request, subject_id, draft, told)
    messages.info(request, recorded_says(told))
    return redirect("unknown", subject_id)


def recorded_says(told: Resolved) -> str:
    """What is on record, and whether it counts already."""
    said = f"Recorded: {VERDICT[told.resolution.verdict]}."
    return f"{said} It counts once a second person agrees." if told.waits else said


def again(request: HttpRequest, subject_id: str, draft: Draft, told: NotResolved) -> HttpResponse:
    """The page with the draft in its form: 409 where somebody came first, 422 where something is missing."""
    found = unknowns.find(subject_id, actor_of(request))
    meanwhile = told.reason in MEANWHILE
    newest = told.by.number if told.by else draft.seen
    kept = replace(
        draft,
        error=told.sentence,
        field=FIELD.get(told.reason, ""),
        meanwhile=meanwhile,
        seen=newest if meanwhile else draft.seen,
    )
    return show(request, found.run.workspace, found, draft=kept, status=409 if meanwhile else 422)


@never_cache
@require_POST
@signed_in
def agree(request: HttpRequest, subject_id: str) -> HttpResponse:
    """POST /unknowns/<id>/agree : the second person's yes to the verdict with this id."""
    chosen = request.POST.get("resolution", "").replace("\0", "")[:40]
    told = resolve.agree(actor=actor_of(request), resolution_id=chosen)
    return tell(request, subject_id, told, "You agreed. It counts now, with both names.")


@never_cache
@require_POST
@signed_in
def withdraw(request: HttpRequest, subject_id: str) -> HttpResponse:
    """POST /unknowns/<id>/withdraw : one's own verdict that still waits for a second person."""
    chosen = request.POST.get("resolution", "").replace("\0", "")[:40]
    why = words.clean(request.POST.get("why", ""))[:200]
    told = resolve.withdraw(actor=actor_of(request), resolution_id=chosen, why=why)
    return tell(request, subject_id, told, "Withdrawn. It stays on record, and counts for nothing.")


def tell(request: HttpRequest, subject_id: str, told: Resolved | NotResolved, done: str) -> HttpResponse:
    """What it came to, on the item's page."""
    if isinstance(told, NotResolved):
        messages.error(request, f"{NOTHING} {told.sentence}")
    else:
        messages.info(request, done)
    return redirect("unknown", subject_id)
