"""The bulk stop of a list: the form for the runs that were selected, and the press.

The list of ids is frozen by the server at the press: the rows that were ticked, or all that match the
filter then. What the form shows is as of now, and may be older by then; the result says what it came to.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.contrib import messages
from django.db import DatabaseError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse

from dashboard import words
from dashboard.pages.preview import Preview
from dashboard.pages.run_filter import Filter
from dashboard.pages.scope_preview import Met, preview_of_scope
from dashboard.pages.shell import (
    Shell,
    actor_of,
    build_shell,
    checked,
    person_of,
    sign_in_url,
    signed_in,
    wants_json,
    workspace_of,
)
from dashboard.pages.stages import clock
from dashboard.pages.stop import StopForm, answer_press, form_or_press, wish_of
from runs import access, bulk, stops
from runs.models import FINAL, Run

log = logging.getLogger(__name__)
MOST = 10_000  # runs that one bulk stop holds


@dataclass(frozen=True)
class Selection:
    """What was selected: `ids` that were ticked, or, with `asked.all`, whatever matches the filter."""

    asked: Filter
    ids: tuple[str, ...]

    @classmethod
    def read(cls, request: HttpRequest, sent: QueryDict) -> Selection:
        listed = [*sent.getlist("run"), *sent.get("runs", "").split(",")]
        ids = dict.fromkeys(one for one in listed if one and "\0" not in one and len(one) <= 40)
        return cls(Filter.read(workspace_of(request), sent), tuple(ids)[: MOST + 1])

    @property
    def rows(self) -> QuerySet[Run]:
        """The runs of it now, in the workspace that is shown; others do not exist."""
        if self.asked.all:
            return self.asked.rows()
        return Run.objects.filter(workspace=self.asked.workspace, pk__in=self.ids).order_by("-pk")

    def frozen(self) -> list[str]:
        """Their ids at this moment, in one query; one more than a bulk stop holds: too many."""
        return list(self.rows.values_list("pk", flat=True)[: MOST + 1])

    @property
    def fields(self) -> dict[str, str]:
        """What a form carries of it."""
        named = {"workspace": self.asked.workspace.slug, **self.asked.chosen}
        return named | ({"all": "1"} if self.asked.all else {"runs": ",".join(self.ids)})

    @property
    def shown(self) -> dict[str, str]:
        """What the stop keeps of it: the filter as it was shown; nothing where runs were ticked."""
        if not self.asked.all:
            return {}
        return self.asked.told or {"every run of": words.clean(self.asked.workspace.name)}

    @property
    def says(self) -> str:
        """Which runs, in words."""
        if not self.asked.all:
            return "Those that were ticked in the list."
        return f"All that match: {self.asked.says}." if self.asked.says else "Every run of this workspace."

    @property
    def back(self) -> str:
        return self.asked.address(all="1" if self.asked.all else "")


def bulk_page(request: HttpRequest) -> HttpResponseBase:
    """/runs/stop?run=…&run=… (runs=…,…) or ?all=1 with a filter : GET shows the form, POST is the press."""
    return form_or_press(request, show_form, sign_in_first, press)


@signed_in
def show_form(request: HttpRequest) -> HttpResponse:
    """What a stop of these runs would meet now, by class; mode, deadline, why."""
    chosen = Selection.read(request, request.GET)
    shell = build_shell(request, "runs", chosen.asked.workspace)
    told = {"shell": shell, "now": shell.now, "selection": chosen, "most": MOST, "none": NONE}
    told |= {"met": Selected.of(chosen, shell, person_of(request).pk), "too_many": too_many()}
    form = StopForm.returned(request.GET.dict())
    told |= {"form": form, "modes": form.offer(list(words.MODE))}
    return render(request, "runs/stop.html", told)


@dataclass(frozen=True)
class Selected:
    """How many were selected (one more than a bulk stop holds: too many), and what a stop would meet."""

    total: int
    finished: int
    not_permitted: int
    preview: Preview | None

    @classmethod
    def of(cls, chosen: Selection, shell: Shell, person: int) -> Selected:
        """Six queries or so, however many there are. Without an answer to them the button still works."""
        total = chosen.rows[: MOST + 1].count()
        if not 0 < total <= MOST:
            return cls(total, 0, 0, None)
        finished = chosen.rows.filter(status__in=FINAL).count()
        others = 0 if shell.may_stop else chosen.rows.exclude(owner=person).count()
        try:
            preview = preview_of_scope(Met(chosen.rows, shell.now))
        except DatabaseError:
            log.exception("no preview of a bulk stop")
            preview = None
        return cls(total, finished, others, preview)

    @property
    def fits(self) -> bool:
        return 0 < self.total <= MOST


def sign_in_first(request: HttpRequest) -> HttpResponse:
    """The session ended under the form: nothing is recorded yet, and the form comes back with its key."""
    again = request.POST.copy()
    again.pop("csrfmiddlewaretoken", None)
    again["key"] = again.get("key") or secrets.token_hex(16)
    url = sign_in_url(f"{reverse('bulk-stop')}?{again.urlencode()}")
    if wants_json(request):
        told = f"{words.NOT_RECORDED_YET} Sign in first: the form comes back, and the same key is used."
        return JsonResponse({"recorded": False, "sentence": told, "sign_in": url}, status=401)
    return redirect(url)


@checked
def press(request: HttpRequest) -> HttpResponse:
    """One verb with the frozen list, and where its result stands."""
    chosen = Selection.read(request, request.POST)
    ids, wish = chosen.frozen(), wish_of(request.POST.dict())
    asked: dict[str, Any] = {"workspace_id": chosen.asked.workspace.pk, "selection": chosen.shown}
    asked["run_ids"] = ids if len(ids) <= MOST else []  # none: a press of before is found by its key
    verb = partial(bulk.request_bulk_stop, actor=actor_of(request), wish=wish, **asked)
    try:
        return answer_press(request, verb, partial(tell, chosen))
    except access.NotFound:
        return nothing_pressed(request, chosen, len(ids))


def nothing_pressed(request: HttpRequest, chosen: Selection, number: int) -> HttpResponse:
    """No run, or more than one list holds: what to do instead. Nothing was recorded."""
    told = too_many() if number else NONE
    if wants_json(request):
        return JsonResponse({"recorded": False, "sentence": told}, status=422)
    messages.error(request, f"{words.NOT_RECORDED} {told}")
    return redirect(chosen.back)


NONE = "No run was selected, or none matches any more."
TOO_MANY = (
    "More than {most} runs match, and a bulk stop holds that many at most. Stop the workspace instead: one "
    "gate shuts for all of them at once, and for those that come later. Or narrow the filter."
)


def too_many() -> str:
    return TOO_MANY.format(most=f"{MOST:,}")


def tell(chosen: Selection, answer: stops.StopAnswer) -> tuple[str, str]:
    """The sentence for the person who pressed, and the list with the result above it."""
    stop = answer.stop
    at = clock(stop.recorded_at, ms=True)
    total = words.count(stop.runs_n or 0, "run")
    said = f"Stop #{stop.number} recorded {at} UTC: a {stop.mode} of {total}. Each is stopped in its turn."
    if answer.press.ignored:
        said += f" Left out, because it could not be read: {words.listed(answer.press.ignored)}."
    return said, chosen.asked.address(all="", done=stop.pk)
