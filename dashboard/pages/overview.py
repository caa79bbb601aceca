"""The overview: what needs you first, then what is in force, what runs, and whether the gates are well.

Each card is read on its own: one that can't be read says so, and the others stay.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, F
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET

from dashboard import words
from dashboard.pages import needs
from dashboard.pages.drills_facts import NEVER, last_drill
from dashboard.pages.gate_health import health_of
from dashboard.pages.needs import Needs, at_most
from dashboard.pages.run_filter import Filter
from dashboard.pages.shell import Shell, build_shell, is_region, person_of, signed_in, workspace_of
from dashboard.pages.stop_rows import StopRow, in_force, rows_of
from effects.models import Report
from runs.models import STANDING, Run, RunStatus, User, Workspace

log = logging.getLogger(__name__)
STOPS, SESSIONS = 10, 8
NUMBERS = ("No thing", "One thing", "Two things", "Three things", "Four things", "Five things", "Six things")
STOPS_OPEN = (
    "",
    "One stop is not closed.",
    *(f"{n} stops are not closed." for n in ("Two", "Three", "Four")),
)


@dataclass(frozen=True)
class Card:
    """What a card shows, or why it can't: `Could not load reviews (id 1f2e…)`."""

    what: str
    holds: Any = None
    error: str = ""

    @property
    def failed(self) -> str:
        return f"Could not load {self.what} (id {self.error})." if self.error else ""


def card(what: str, read: Callable[[], Any]) -> Card:
    """Read one card by itself. Its failure is logged under the id that the card shows."""
    try:
        return Card(what, read())
    except Exception:
        told = secrets.token_hex(4)
        log.exception("could not load %s (id %s)", what, told)
        return Card(what, error=told)


@dataclass(frozen=True)
class Session:
    """So many running runs of one session; of none where the name is empty."""

    name: str
    runs: int
    href: str


@dataclass(frozen=True)
class Running:
    """Running now, by session, the largest first."""

    total: int
    sessions: list[Session]
    rest: int


def running_in(workspace: Workspace) -> Running:
    """Two queries."""
    active = Run.objects.filter(workspace=workspace, status=RunStatus.ACTIVE, drill=False).order_by()
    rows = active.values_list("session__key").annotate(n=Count("pk"))
    shown = list(rows.order_by("-n", F("session__key").asc(nulls_last=True))[:SESSIONS])
    total = active.count()
    found = [
        Session(words.brief(key or ""), n, Filter(workspace, status="running", session=key or "").address())
        for key, n in shown
    ]
    return Running(total, found, total - sum(n for _, n in shown))


def stops_in(workspace: Workspace, now: datetime, *, standing: bool) -> list[StopRow]:
    """Stops in force, the newest first: those that stand, or the others."""
    rows = in_force(workspace.pk).exclude(run__drill=True).order_by("-number")
    chosen = rows.filter(scope__in=STANDING) if standing else rows.exclude(scope__in=STANDING)
    return rows_of(chosen[:STOPS], now)


class Overview:
    """One workspace as of now. A bounded number of queries, whatever is in it."""

    def __init__(self, workspace: Workspace, shell: Shell, person: User) -> None:
        now = shell.now
        self.workspace, self.shell = workspace, shell
        self.needs = [
            card("unknown effects", lambda: needs.unknown_in(workspace)),
            card("unknown messages", lambda: needs.unknown_messages_in(workspace)),
            card("unknown compensations", lambda: needs.unknown_repairs_in(workspace)),
            card("timed-out stops", lambda: needs.late_in(workspace)),
            card("reviews", lambda: self._reviews(person)),
            card("failed compensations", lambda: needs.failed_in(workspace)),
            card("review dates", lambda: needs.overdue_in(workspace, now)),
            card("silent runs", lambda: needs.silent_in(workspace)),
            card("paused runs", lambda: needs.paused_in(workspace)),
        ]
        self.active = card("active stops", lambda: stops_in(workspace, now, standing=False))
        self.standing = card("standing stops", lambda: stops_in(workspace, now, standing=True))
        self.running = card("running runs", lambda: running_in(workspace))
        self.gates = card("gate health", lambda: health_of(workspace, now))
        self.drill = card("the last drill", last_drill)

    never = NEVER

    def _reviews(self, person: User) -> Needs:
        if "approve" not in self.shell.may:
            return Needs("waiting for review")
        return needs.reviews_for(self.workspace, person)

    @property
    def groups(self) -> list[Needs]:
        """Those of which there is something."""
        return [one.holds for one in self.needs if one.holds is not None and one.holds.total]

    @property
    def broken(self) -> list[Card]:
        """Parts of "Needs you" that could not be read: nobody may take them for empty."""
        return [one for one in self.needs if one.error]

    @property
    def waiting(self) -> int:
        return sum(group.total for group in self.groups)

    @property
    def open_stops(self) -> int:
        return sum(len(one.holds or []) for one in (self.active, self.standing))

    @property
    def active_runs(self) -> str:
        """12 runs active; nothing where that could not be read."""
        if self.running.holds is None:
            return ""
        return f"{words.count(self.running.holds.total, 'run')} active in {words.clean(self.workspace.name)}."

    @property
    def says(self) -> str:
        """The h1: how much needs you, and how many stops are open."""
        if self.broken and not self.waiting:
            return "Not all of it could be loaded."
        if not self.waiting:
            first = "Nothing needs you."
        elif self.waiting < len(NUMBERS):
            first = f"{NUMBERS[self.waiting]} need{'s' if self.waiting == 1 else ''} you."
        else:
            first = f"{at_most(self.waiting).capitalize()} things need you."
        return f"{first} {self._stops_say}".strip()

    @property
    def _stops_say(self) -> str:
        number = self.open_stops
        if number < len(STOPS_OPEN):
            return STOPS_OPEN[number]
        most = "At least " if number >= STOPS else ""
        return f"{most}{number} stops are not closed." if most else f"{number} stops are not closed."

    @property
    def favicon(self) -> str:
        unknown = any("unknown" in group.word for group in self.groups)
        return "unknown" if unknown else "needs" if self.waiting or self.broken else "normal"


@require_GET
@signed_in
def overview_page(request: HttpRequest) -> HttpResponse:
    """GET / : the overview, or its live region. Until a first report was issued, the first run instead,
    unless the address names a workspace."""
    if "workspace" not in request.GET and not is_region(request):
        mine = Report.objects.filter(run__workspace__memberships__user=request.user.pk)
        if not mine.exists():
            return redirect("first-run")
    workspace = workspace_of(request)
    shell = build_shell(request, "home", workspace)
    told = {"shell": shell, "now": shell.now, "page": Overview(workspace, shell, person_of(request))}
    told |= {"topic": f"workspace:{workspace.pk}:runs", "region": is_region(request)}
    return render(request, "overview/_fragment.html" if is_region(request) else "overview/page.html", told)
