"""A stop of all workspaces, for those who run the installation: the form, the press, the release."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse

from dashboard import scope_words, words
from dashboard.pages.scope_choice import slip_guard
from dashboard.pages.scope_preview import Met, preview_of_scope
from dashboard.pages.scope_stop import sign_in_to
from dashboard.pages.shell import actor_of, address, build_shell, checked, signed_in
from dashboard.pages.stop import answer_press, form_or_press
from dashboard.pages.stop_form import StopForm, wish_of
from dashboard.pages.stop_rows import who_said
from runs import everywhere
from runs.access import NotFound
from runs.models import Run, StopRequest, WideStop, Workspace
from runs.releases import NoReason, NotFenced, NotStanding
from runs.wishes import storable

NAME = "all workspaces"  # what is typed, so that it is no slip
REASON_MAX = 2000


@dataclass(frozen=True)
class Everywhere:
    """The stop of all workspaces that stands, and how many of their gates are shut by it."""

    stop: WideStop
    who: str
    shut: int
    total: int
    fenced: int


def standing_for(request: HttpRequest) -> Everywhere | None:
    """For those who run the installation; nobody else learns that there are other workspaces."""
    if not everywhere.runs_it_all(actor_of(request)):
        return None
    stop = everywhere.standing().first()
    if stop is None:
        return None
    mine = StopRequest.objects.filter(wide=stop)
    fenced = mine.filter(fenced_at__isnull=False).count()
    who = who_said([stop.actor])[stop.actor]
    return Everywhere(stop, who, mine.count(), Workspace.objects.count(), fenced)


def wide_page(request: HttpRequest) -> HttpResponseBase:
    """/stop/everywhere : GET shows the form, POST is the press."""
    return form_or_press(request, show_form, partial(sign_in_to, path=request.path, named={}), press)


def demand(request: HttpRequest) -> None:
    """For whoever does not run the installation there is nothing here."""
    if not everywhere.runs_it_all(actor_of(request)):
        raise NotFound("all workspaces")


@signed_in
def show_form(request: HttpRequest) -> HttpResponse:
    demand(request)
    form, shell = StopForm.returned(request.GET.dict()), build_shell(request, "stops", None)
    preview = preview_of_scope(Met(Run.objects.all(), shell.now), gated=NAME)
    told: dict[str, Any] = {"shell": shell, "now": shell.now, "form": form, "preview": preview}
    told |= {"modes": form.offer(list(words.MODE)), "guard": slip_guard(NAME), "name": NAME}
    told |= {"workspaces": Workspace.objects.count(), "wide": standing_for(request)}
    return render(request, "stop/everywhere.html", told)


@checked
def press(request: HttpRequest) -> HttpResponse:
    """One press, committed first; then each workspace's gate is shut in turn."""
    demand(request)
    wish = wish_of(request.POST.dict())
    verb = partial(everywhere.request_wide_stop, actor=actor_of(request), wish=wish)

    def tell(answer: WideStop) -> tuple[str, str]:
        return scope_words.WIDE, reverse("stops")

    return answer_press(request, verb, tell, WideStop)


@signed_in
def release_page(request: HttpRequest) -> HttpResponse:
    """/stop/everywhere/release : the decision for each workspace that this stop holds. It starts nothing."""
    demand(request)
    if request.method != "POST":
        return _show_release(request)
    reason = storable(request.POST.get("reason", ""), REASON_MAX)
    try:
        wides = everywhere.release_wide(actor=actor_of(request), reason=reason)
    except NoReason:
        return _show_release(request, 422, "Nothing was changed: a release needs a reason.")
    except NotFenced as error:
        said = scope_words.WIDE_NOT_FENCED.format(done=error.done, total=error.total)
        return _show_release(request, 409, said, reason)
    except NotStanding as error:
        return _show_release(request, 409, str(type(error).__doc__))
    messages.info(request, _released(everywhere.scopes_of(wides).count()))
    return redirect(address("stops", None))


def _released(left: int) -> str:
    """What a release came to; `left`: workspaces whose rules ask for a second person."""
    if not left:
        return scope_words.WIDE_RELEASED
    where = words.count(left, "workspace stays shut", "workspaces stay shut")
    return scope_words.WIDE_RELEASED_SOME.format(where=where)


def _show_release(request: HttpRequest, status: int = 200, said: str = "", reason: str = "") -> HttpResponse:
    shell = build_shell(request, "stops", None)
    told: dict[str, Any] = {"shell": shell, "now": shell.now, "wide": standing_for(request)}
    told |= {"said": said, "reason": reason, "max": REASON_MAX}
    return render(request, "stop/release_everywhere.html", told, status=status)
