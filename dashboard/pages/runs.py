"""The list of runs: filters in the address, rows that update in place, new ones behind a button."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from dashboard.pages.bulk_result import result_of
from dashboard.pages.needs import COUNTED, at_most, silent_in
from dashboard.pages.run_filter import SINCE, STATUS, Filter
from dashboard.pages.shell import Shell, build_shell, is_region, person_of, signed_in, workspace_of
from dashboard.run_rows import rows_of
from runs.models import Policy, Run, Session, User, Workspace

SHOWN, SESSIONS, POLICIES, RUNTIMES_OF = 25, 100, 100, 500


class RunList:
    """One page of the list; `top` freezes it, so that nothing moves under a pointer."""

    def __init__(self, asked: Filter, now: datetime) -> None:
        self.asked, self.now = asked, now
        page = asked.rows().select_related("session")  # joined with its workspace, SQLite would sort all runs
        if asked.before:
            page = page.filter(pk__lt=asked.before)
        if asked.top:
            page = page.filter(pk__lte=asked.top)
        found = list(page[: SHOWN + 1])
        for run in found:
            run.workspace = asked.workspace
        self.rows = list(rows_of(found[:SHOWN], now))
        self.older = asked.address(before=found[SHOWN - 1].pk) if len(found) > SHOWN else ""
        self.total = asked.rows()[: COUNTED + 1].count()
        top = asked.top or (found[0].pk if found and not asked.before else "")
        self.fresh = asked.rows().filter(pk__gt=top)[:100].count() if top else 0
        self.region = asked.address(top=top or "run_")
        self.first_page = asked.address(before="")
        self.every, self.none = asked.address(all="1", done=""), asked.address(all="", done="")

    @property
    def counted(self) -> str:
        return at_most(self.total)

    @property
    def unknown(self) -> int:
        return sum("unknown" in row.marks for row in self.rows)


def may_select(shell: Shell, workspace: Workspace, person: User) -> bool:
    """Whether a bulk stop of theirs could stop anything: who owns a run may stop that one, in any role."""
    return shell.may_stop or Run.objects.filter(workspace=workspace, owner=person).exists()


def choices(workspace: Workspace) -> dict[str, Any]:
    """What the filters offer; runtimes are those of the newest runs."""
    newest = Run.objects.filter(workspace=workspace).order_by("-pk").values_list("runtime", flat=True)
    mine = {"workspace": workspace}
    return {
        "sessions": Session.objects.filter(**mine).order_by("-created_at")[:SESSIONS],
        "policies": Policy.objects.filter(**mine).order_by("name")[:POLICIES],
        "runtimes": sorted({runtime for runtime in newest[:RUNTIMES_OF] if runtime}),
    }


@require_GET
@signed_in
def runs_page(request: HttpRequest) -> HttpResponse:
    """GET /runs/ : one page of the list, or its live region."""
    workspace = workspace_of(request)
    asked = Filter.read(workspace, request.GET)
    shell = build_shell(request, "runs", workspace)
    silent, page = silent_in(workspace), RunList(asked, shell.now)
    told = {"shell": shell, "now": shell.now, "list": page, "asked": asked, "statuses": STATUS}
    told |= {"needs": [silent] if silent.total else [], "topic": f"workspace:{workspace.pk}:runs"}
    told |= {"selects": may_select(shell, workspace, person_of(request))}
    told |= {"result": result_of(workspace, asked.done)}
    if is_region(request):
        return render(request, "runs/_fragment.html", told | {"region": True})
    return render(request, "runs/page.html", told | {"since": SINCE} | choices(workspace))
