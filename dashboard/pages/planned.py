"""Planned stops: those to come, those that are over, and withdrawing one, with a reason."""

from __future__ import annotations

from django.contrib import messages
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET

from dashboard import plan_words
from dashboard.pages.planned_rows import PlannedRow, planned_in, planned_rows
from dashboard.pages.shell import (
    Shell,
    actor_of,
    build_shell,
    is_region,
    person_of,
    signed_in,
    workspace_of,
)
from runs import access, schedules
from runs.access import NotFound
from runs.models import FINAL, Run, ScheduledStop, Workspace
from runs.saying import words_in
from runs.schedules import Ended
from runs.wishes import storable

SHOWN, COUNTED, REASON_MAX = 25, 1000, 2000


class PlannedList:
    """One look at the planned stops of a workspace, as of now: bounded, and the rest counted."""

    def __init__(self, workspace: Workspace, shell: Shell, user_id: int, before: str) -> None:
        self.workspace, self.now, self.before = workspace, shell.now, before
        self.user_id, self.may_stop = user_id, shell.may_stop
        ahead = planned_in(workspace.pk)
        self.ahead = self._rows(ahead[:SHOWN])
        self.total = ahead.order_by()[: COUNTED + 1].count()
        over = self._rows(self._over()[: SHOWN + 1])
        self.over, self.more = over[:SHOWN], len(over) > SHOWN

    def _rows(self, found: QuerySet[ScheduledStop]) -> list[PlannedRow]:
        return planned_rows(found, self.now, user_id=self.user_id, may_stop=self.may_stop)

    def _over(self) -> QuerySet[ScheduledStop]:
        ended = Q(pressed_at__isnull=False) | Q(withdrawn_at__isnull=False)
        rows = ScheduledStop.objects.filter(ended, workspace=self.workspace)
        return (rows.filter(pk__lt=self.before) if self.before else rows).order_by("-pk")

    @property
    def counted(self) -> str:
        return f"more than {COUNTED}" if self.total > COUNTED else str(self.total)

    @property
    def overdue(self) -> bool:
        return any(row.state is plan_words.STATE["overdue"] for row in self.ahead)

    @property
    def older(self) -> str:
        return self._address(self.over[-1].made.pk) if self.more else ""

    @property
    def region(self) -> str:
        return self._address(self.before)

    def _address(self, before: str) -> str:
        asked = {"workspace": self.workspace.slug, "before": before}
        return reverse("planned", query={name: value for name, value in asked.items() if value})


@require_GET
@signed_in
def planned_page(request: HttpRequest) -> HttpResponse:
    """GET /stops/planned : the page, or its live region."""
    workspace = workspace_of(request)
    shell = build_shell(request, "stops", workspace)
    before = request.GET.get("before", "").replace("\0", "")[:40]
    found = PlannedList(workspace, shell, person_of(request).pk, before)
    told = {"shell": shell, "now": shell.now, "list": found, "topic": f"workspace:{workspace.pk}:runs"}
    told |= {"why_not": why_not(request, shell, workspace), "no_right": plan_words.NO_RIGHT}
    if is_region(request):
        return render(request, "stops/_planned.html", told | {"region": True})
    return render(request, "stops/planned.html", told)


def why_not(request: HttpRequest, shell: Shell, workspace: Workspace) -> str:
    """What stands in the way of this person; of their own runs people of any role may plan stops."""
    if shell.may_stop:
        return ""
    mine = Run.objects.filter(workspace=workspace, owner=person_of(request)).exclude(status__in=FINAL)
    return plan_words.OWN_RUNS if mine.exists() else plan_words.NO_RIGHT


@signed_in
def withdraw_page(request: HttpRequest, planned_id: str) -> HttpResponse:
    """/stops/planned/<id>/withdraw : GET asks why, POST takes it back before it is pressed."""
    made = _find(request, planned_id)
    if request.method != "POST":
        return _ask_why(request, made)
    reason = storable(request.POST.get("reason", ""), REASON_MAX)
    if not words_in(reason):
        return _ask_why(request, made, "Nothing was changed: a withdrawal needs a reason.", 422)
    try:
        schedules.withdraw(actor=actor_of(request), scheduled_id=made.pk, reason=reason)
    except Ended:
        return _ask_why(request, made, plan_words.OVER, 409)
    messages.info(request, plan_words.WITHDRAWN)
    return redirect(reverse("planned", query={"workspace": made.workspace.slug}))


def _find(request: HttpRequest, planned_id: str) -> ScheduledStop:
    """For members of its workspace. Raises NotFound."""
    made = ScheduledStop.objects.select_related("workspace").filter(pk=planned_id).first()
    if made is None:
        raise NotFound("scheduled stop")
    access.demand_workspace(actor_of(request), "read", made.workspace_id)
    return made


def _ask_why(request: HttpRequest, made: ScheduledStop, said: str = "", status: int = 200) -> HttpResponse:
    shell = build_shell(request, "stops", made.workspace)
    found = ScheduledStop.objects.filter(pk=made.pk)
    (row,) = planned_rows(found, shell.now, user_id=person_of(request).pk, may_stop=shell.may_stop)
    told = {"shell": shell, "now": shell.now, "row": row, "said": said, "max": REASON_MAX}
    told |= {"over": plan_words.OVER, "no_right": plan_words.NO_RIGHT}
    return render(request, "stops/withdraw.html", told, status=status)
