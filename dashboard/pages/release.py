"""Releasing a standing stop, and looking at it again later: decisions with forms of their own."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from dashboard import scope_words, words
from dashboard.pages.scope_target import find_stop
from dashboard.pages.shell import Shell, actor_of, build_shell, signed_in
from dashboard.pages.stop_form import REVIEWS
from dashboard.pages.stop_rows import who_said
from runs import releases, scopes
from runs.models import StopRequest
from runs.releases import Asked, InThePast, NoReason, NotFenced, NotStanding, SamePerson
from runs.rules import rules_of
from runs.scopes import RESTORED
from runs.store import database_time
from runs.wishes import storable

REASON_MAX = 2000


class ReleasePage:
    """What the decision means, as of now: it opens a gate, and starts nothing."""

    def __init__(self, stop: StopRequest, shell: Shell, reader: str) -> None:
        """`reader`: the actor id of whoever reads it."""
        self.stop, self.subject = stop, scope_words.subject(stop)
        self.standing = scopes.standing(scopes.target_of(stop))
        found = releases.open_wish(stop)
        self.wish = found
        self.first = who_said([found.asked_by])[found.asked_by] if found else ""
        self.mine = found is not None and found.asked_by == reader
        self.by_two = not stop.observes and rules_of(stop.workspace_id).release_by_two
        self.by_restore = stop.via == RESTORED
        self.may = ("admin" if self.by_restore else "release") in shell.may
        self.over = bool(stop.released_at or stop.superseded_by_id)

    @property
    def releasing(self) -> str:
        """What a release does, and what it leaves as it is."""
        if self.stop.observes:
            return "Nothing was refused by it. What it counted stays."
        said = ["Releasing starts nothing."]
        if paused := self.standing.paused:
            stay = "run stays" if paused == 1 else "runs stay"
            said.append(f"{paused} paused {stay} paused until resumed one by one.")
        said.append("New runs may be admitted.")
        if stale := self.standing.stale:
            stay = (
                "run was active when it shut and stays"
                if stale == 1
                else "runs were active when it shut and stay"
            )
            said.append(f"{stale} {stay} refused: pause and resume each.")
        return " ".join(said)

    @property
    def waits(self) -> bool:
        """Whether runs of it are still being fenced."""
        return not self.stop.observes and self.stop.fenced_at is None

    @property
    def button(self) -> str:
        if self.stop.observes:
            return f"End observing {self.subject}"
        if self.by_two and self.wish is None:
            return "Ask for this release"
        return f"{'Open' if self.by_restore else 'Release'} {self.subject}"


@signed_in
def release_page(request: HttpRequest, stop_id: str) -> HttpResponse:
    """/stops/<id>/release : GET says what it means, POST is the decision. It starts nothing."""
    actor = actor_of(request)
    stop = find_stop(actor, stop_id)
    if stop.scope not in scopes.MODELS:
        return redirect("stop-detail", stop.pk)
    if request.method != "POST":
        return _show(request, stop)
    reason = storable(request.POST.get("reason", ""), REASON_MAX)
    try:
        done = releases.release(actor=actor, stop_id=stop_id, reason=reason)
    except NoReason:
        return _show(request, stop, 422, no_reason=True)
    except NotFenced as error:
        said = scope_words.NOT_FENCED.format(done=error.done, total=error.total)
        return _show(request, stop, 409, said=f"Nothing was changed. {said}", reason=reason)
    except (NotStanding, SamePerson) as error:
        return _show(request, stop, 409, said=str(type(error).__doc__), reason=reason)
    words_for = scope_words.ASKED if isinstance(done, Asked) else scope_words.RELEASED
    messages.info(request, words_for.format(number=stop.number))
    return redirect("stop-detail", stop_id)


def _show(request: HttpRequest, stop: StopRequest, status: int = 200, **more: Any) -> HttpResponse:
    shell = build_shell(request, "stops", stop.workspace)
    told = {"shell": shell, "now": shell.now, "max": REASON_MAX}
    told |= {"page": ReleasePage(stop, shell, actor_of(request).id)}
    return render(request, "stops/release.html", told | more, status=status)


@signed_in
def review_page(request: HttpRequest, stop_id: str) -> HttpResponse:
    """/stops/<id>/review : when people look at it again. The stop stands all the while."""
    actor = actor_of(request)
    stop = find_stop(actor, stop_id)
    if request.method != "POST":
        return _ask_when(request, stop)
    days = request.POST.get("review", "")
    if days not in dict(REVIEWS):
        return _ask_when(request, stop, 422, "Nothing was changed. Choose one of these.")
    when = database_time() + timedelta(days=int(days))
    try:
        found = releases.extend(actor=actor, stop_id=stop_id, review_at=when)
    except (NotStanding, InThePast) as error:
        return _ask_when(request, stop, 409, str(type(error).__doc__))
    assert found.review_at is not None
    messages.info(request, f"Stop #{stop.number} is looked at again {words.moment_utc(found.review_at)}.")
    return redirect("stop-detail", stop_id)


def _ask_when(request: HttpRequest, stop: StopRequest, status: int = 200, said: str = "") -> HttpResponse:
    shell = build_shell(request, "stops", stop.workspace)
    told = {"shell": shell, "now": shell.now, "stop": stop, "subject": scope_words.subject(stop)}
    told |= {"may": shell.may_stop, "over": bool(stop.released_at or stop.superseded_by_id)}
    told |= {"reviews": REVIEWS, "said": said, "overdue": bool(stop.review_at and stop.review_at < shell.now)}
    return render(request, "stops/review.html", told, status=status)
