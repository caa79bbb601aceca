"""The list of runs: filters in the address, rows that update in place, new ones behind a button."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_GET

from dashboard import words
from dashboard.pages.facts import KNOWN, marks
from dashboard.pages.shell import build_shell, is_region, signed_in, workspace_of
from dashboard.words import Term
from effects import delivery_moves
from effects.close import outcome
from effects.models import Effect, Settlement
from runs import gates, receipts
from runs.models import INCONSEQUENTIAL, Permit, Run, RunStatus, Session, StopRequest, Workspace
from runs.stops import RESUMED

SHOWN, COUNTED, SESSIONS, SILENT_SHOWN = 25, 1000, 100, 5
STATUS: dict[str, tuple[str, tuple[str, ...]]] = {
    "running": ("Running", ("ACTIVE",)),
    "stopping": ("Stopping", ("PAUSING", "CANCELLING", "CANCELLING_TIMEOUT")),
    "paused": ("Paused", ("PAUSED",)),
    "unknown": ("At rest, something unknown", ("UNKNOWN",)),
    "silent": ("Silent", receipts.IN_MOTION),
    "ended": ("Ended", ("CANCELLED", "COMPLETED", "FAILED", "ABANDONED")),
}


@dataclass(frozen=True)
class Filter:
    """What the address asks for; anything unreadable is as if it were not there."""

    workspace: Workspace
    status: str = ""
    q: str = ""
    session: str = ""
    unknown: bool = False
    before: str = ""
    top: str = ""

    @classmethod
    def read(cls, workspace: Workspace, query: QueryDict) -> Filter:
        status = query.get("status", "")
        return cls(
            workspace,
            status if status in STATUS else "",
            query.get("q", "").replace("\0", "")[:200],
            query.get("session", "").replace("\0", "")[:200],
            query.get("unknown") == "1",
            query.get("before", "").replace("\0", "")[:40],
            query.get("top", "").replace("\0", "")[:40],
        )

    @property
    def narrowed(self) -> bool:
        return bool(self.status or self.q or self.session or self.unknown)

    def rows(self) -> QuerySet[Run]:
        """All runs that match, newest first, on no particular page."""
        runs = Run.objects.filter(workspace=self.workspace)
        if self.status:
            runs = runs.filter(status__in=STATUS[self.status][1])
        if self.status == "silent":
            runs = runs.filter(receipts.is_silent())
        if self.q:
            runs = runs.filter(Q(name__icontains=self.q) | Q(key__icontains=self.q) | Q(pk=self.q))
        if self.session:
            runs = runs.filter(session__key=self.session)
        if self.unknown:
            doubtful = Effect.objects.filter(run=OuterRef("pk"), settlement=Settlement.UNKNOWN)
            runs = runs.filter(Exists(doubtful))
        return runs.order_by("-pk")

    def address(self, **changes: str) -> str:
        """The list's address with this filter and these changes."""
        asked = {"workspace": self.workspace.slug, "status": self.status, "q": self.q}
        asked |= {"session": self.session, "unknown": "1" if self.unknown else ""}
        asked |= {"before": self.before} | changes
        return f"{reverse('runs')}?{urlencode({name: value for name, value in asked.items() if value})}"


@dataclass(frozen=True)
class RunRow:
    """One run of the list."""

    run: Run
    term: Term
    marks: list[str]
    effects: str
    stop: StopRequest | None
    elapsed_s: float

    @property
    def can_resume(self) -> bool:
        return bool(self.run.status == RunStatus.PAUSED)

    @property
    def stop_says(self) -> str:
        """Its mode; a pause that was resumed says so."""
        if self.stop is None:
            return ""
        return f"{self.stop.mode}, resumed" if self.stop.closed_because == RESUMED else self.stop.mode

    @property
    def can_stop(self) -> bool:
        return bool(self.run.status == RunStatus.ACTIVE)


class RunList:
    """One page of the list; `top` freezes it, so that nothing moves under a pointer."""

    def __init__(self, asked: Filter, now: datetime) -> None:
        self.asked, self.now = asked, now
        page = asked.rows().select_related("session", "workspace")
        if asked.before:
            page = page.filter(pk__lt=asked.before)
        if asked.top:
            page = page.filter(pk__lte=asked.top)
        found = list(page[: SHOWN + 1])
        self.rows = list(rows_of(found[:SHOWN], now))
        self.older = asked.address(before=found[SHOWN - 1].pk) if len(found) > SHOWN else ""
        self.total = asked.rows()[: COUNTED + 1].count()
        top = asked.top or (found[0].pk if found and not asked.before else "")
        self.fresh = asked.rows().filter(pk__gt=top)[:100].count() if top else 0
        self.region = asked.address(top=top or "run_")
        self.first_page = asked.address(before="")

    @property
    def counted(self) -> str:
        return f"more than {COUNTED}" if self.total > COUNTED else str(self.total)

    @property
    def unknown(self) -> int:
        return sum("unknown" in row.marks for row in self.rows)


@dataclass(frozen=True)
class Silent:
    """Runs in motion of whose workers nothing is heard, the longest silence first: they need a person."""

    runs: list[Run]
    total: int
    everything: str

    @property
    def counted(self) -> str:
        return f"more than {COUNTED}" if self.total > COUNTED else str(self.total)

    @property
    def left_out(self) -> int:
        return self.total - len(self.runs)


def silent_in(asked: Filter) -> Silent:
    """Of the whole workspace, whatever the filter: two queries, one when there is none."""
    rows = Run.objects.filter(receipts.is_silent(), workspace=asked.workspace)
    first = list(rows.order_by("silent_at", "pk")[:SILENT_SHOWN])
    total = rows[: COUNTED + 1].count() if len(first) == SILENT_SHOWN else len(first)
    return Silent(first, total, Filter(asked.workspace, status="silent").address())


def rows_of(runs: list[Run], now: datetime) -> Iterable[RunRow]:
    """Rows with their effects, stops and outcomes: four queries for the whole page."""
    ids = [run.pk for run in runs]
    settled: dict[str, Counter[str]] = defaultdict(Counter)
    counts = Effect.objects.filter(run__in=ids).values_list("run", "settlement").annotate(n=Count("pk"))
    for run_id, state, number in counts.order_by():
        settled[run_id][state] = number
    messages = delivery_moves.states_of(ids)
    sent = set(
        Permit.objects.filter(run__in=ids)
        .exclude(op_class__in=INCONSEQUENTIAL)
        .values_list("run", flat=True)
        .distinct()
    )
    stops = {stop.run_id: stop for stop in StopRequest.objects.filter(run__in=ids).order_by("pk")}
    for run in runs:
        mine, stop = settled[run.pk], stops.get(run.pk)
        ending = outcome(run.status, list(mine), deliveries=messages[run.pk], consequential=run.pk in sent)
        term = words.run_chip(
            run.status,
            ending,
            quiet=bool(stop and stop.quiet_at),
            held_back=gates.holds_back(run.workspace, run),
        )
        elapsed = ((run.ended_at or now) - run.admitted_at).total_seconds()
        yield RunRow(run, term, marks(mine), effects_in_words(mine), stop, elapsed)


def effects_in_words(settlements: Counter[str]) -> str:
    """`5 known · 1 not applied · 2 unknown · 2 not started`, or that there is none."""
    parts = [
        (sum(settlements[state] for state in KNOWN) - settlements[Settlement.NOT_APPLIED], "known"),
        (settlements[Settlement.NOT_APPLIED], "not applied"),
        (settlements[Settlement.UNKNOWN], "unknown"),
        (settlements[Settlement.ACCEPTED_UNKNOWN], "accepted unknown"),
        (settlements[Settlement.DISPATCHED], "in flight"),
        (settlements[Settlement.DECLARED], "declared"),
        (settlements[Settlement.NOT_STARTED], "not started"),
    ]
    return " · ".join(f"{number} {word}" for number, word in parts if number) or "no effect"


@require_GET
@signed_in
def runs_page(request: HttpRequest) -> HttpResponse:
    """GET /runs/ : one page of the list, or its live region."""
    workspace = workspace_of(request)
    asked = Filter.read(workspace, request.GET)
    shell = build_shell(request, "runs", workspace)
    told = {"shell": shell, "now": shell.now, "list": RunList(asked, shell.now), "asked": asked}
    told |= {"silent": silent_in(asked)}
    told |= {"topic": f"workspace:{workspace.pk}:runs", "statuses": STATUS}
    if is_region(request):
        return render(request, "runs/_fragment.html", told | {"region": True})
    sessions = Session.objects.filter(workspace=workspace).order_by("-created_at")[:SESSIONS]
    return render(request, "runs/page.html", told | {"sessions": sessions})
