"""One stop of a scope, or of many runs: how far it is, what it came to for each run, what it refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.db.models import Count, Q, QuerySet, Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET

from dashboard import scope_words, words
from dashboard.pages import halts
from dashboard.pages.dock import Button
from dashboard.pages.scope_preview import many
from dashboard.pages.scope_stages import Reached, scope_stages
from dashboard.pages.scope_target import find_stop, scope_of
from dashboard.pages.shell import Shell, actor_of, build_shell, is_region, signed_in
from dashboard.pages.stages import Stage
from dashboard.pages.stop_rows import OF_A_SCOPE, of_effects, rows_of, who_said
from dashboard.restored import missing
from dashboard.run_rows import RunRow
from dashboard.run_rows import rows_of as runs_of
from dashboard.words import Term
from effects.models import Effect
from runs import fanout
from runs.access import SYSTEM
from runs.models import (
    STANDING,
    InFlight,
    Mode,
    PermitState,
    Press,
    Refusal,
    Restore,
    Result,
    ScheduledStop,
    ScopeKind,
    StopPart,
    StopRequest,
    WouldRefuse,
)
from runs.releases import open_wish
from runs.scopes import RESTORED

SHOWN, PRESSES = 25, 20


@dataclass(frozen=True)
class Part:
    """One run of the stop: what it came to for it, and how it stands now."""

    result: Term
    row: RunRow


class StopPage:
    """The read model of a stop that is wider than one run; every derived number is as of `now`."""

    def __init__(self, stop: StopRequest, shell: Shell, asked: dict[str, str]) -> None:
        self.stop, self.shell, self.now = stop, shell, shell.now
        self.row = rows_of(StopRequest.objects.filter(pk=stop.pk), shell.now)[0]
        self.lists_runs = stop.scope in OF_A_SCOPE and not stop.observes
        self.progress = fanout.progress(stop) if self.lists_runs else fanout.Progress(0, 0)
        self.result = asked.get("result", "") if asked.get("result", "") in Result.values else ""
        self.after = asked.get("after", "").replace("\0", "")[:40]
        self.topic = f"workspace:{stop.workspace_id}:runs"
        self.scope = scope_of(stop)
        self.standing = stop.scope in STANDING and not (stop.released_at or stop.superseded_by_id)
        self.by_restore = stop.via == RESTORED
        self.may_release = ("admin" if self.by_restore else "release") in shell.may

    @cached_property
    def planned_by(self) -> str:
        """Who planned it, of one that the system pressed at its moment."""
        rows = ScheduledStop.objects.filter(stop=self.stop) if self.stop.actor == SYSTEM.id else []
        planner = next((made.actor for made in rows), "")
        return who_said([planner])[planner] if planner else ""

    @property
    def subject(self) -> str:
        return self.row.subject

    @property
    def chip(self) -> Term:
        return self.row.stage

    @property
    def sentence(self) -> str:
        """Where it stands, and how far it is."""
        said = self.chip.sentence if self.stop.scope != ScopeKind.STEP else scope_words.MEANS["step"]
        if self.stop.released_at and (self.stop.observes or self.of_effects):
            said = scope_words.HELD_NO_RUN
        if self.standing and not self.stop.fenced_at and not self.stop.observes:
            said += f" {self.progress.done:,} of {many(self.progress.total, 'run')} so far."
        return said

    @property
    def of_effects(self) -> bool:
        return of_effects(self.stop)

    @cached_property
    def reached(self) -> Reached:
        """How far its runs and their effects are: three queries."""
        rows = StopPart.objects.filter(stop=self.stop, run_stop__isnull=False)
        done = Q(run_stop__closed_at__isnull=False)
        runs = rows.aggregate(
            total=Count("pk"),
            quiet=Count("pk", filter=Q(run_stop__quiet_at__isnull=False) | done),
            late=Count("pk", filter=Q(run_stop__timed_out_at__isnull=False)),
            closed=Count("pk", filter=done),
        )
        settled = Effect.objects.filter(run__stop_parts__stop=self.stop).order_by()
        effects = Counter(dict(settled.values_list("settlement").annotate(Count("pk"))))
        return Reached(self.progress, **runs, effects=effects, flying=self._flying())

    def _flying(self) -> tuple[int, int]:
        """Listed by it or by the stops of its runs, those that it joined too; and of these, what is open."""
        parts = StopPart.objects.filter(stop=self.stop, run_stop__isnull=False)
        listed = InFlight.objects.filter(Q(stop=self.stop) | Q(stop__in=parts.values("run_stop")))
        told = listed.aggregate(
            all=Count("permit", distinct=True),
            now=Count("permit", distinct=True, filter=Q(permit__state=PermitState.OPEN)),
        )
        return told["all"], told["now"]

    @property
    def stages(self) -> list[Stage]:
        """Of what only observes there is none: it asks for nothing."""
        return scope_stages(self) if self.lists_runs else []

    @property
    def reports(self) -> bool:
        """Whether there is a report that sums up its runs; that of a step is its run's."""
        return self.stop.scope in OF_A_SCOPE

    @property
    def tally(self) -> str:
        return scope_words.tally(self.progress.results)

    @property
    def results(self) -> list[tuple[str, str, int]]:
        """The filters of the list of runs: value, word, number."""
        found = self.progress.results
        return [(kind, term.word, found[kind]) for kind, term in scope_words.RESULT.items() if found[kind]]

    @cached_property
    def parts(self) -> list[Part]:
        """One page of its runs, in key order."""
        rows = StopPart.objects.filter(stop=self.stop).select_related("run", "run__workspace", "run__session")
        if self.result:
            rows = rows.filter(result=self.result)
        if self.after:
            rows = rows.filter(run__gt=self.after)
        found = list(rows.order_by("run")[: SHOWN + 1])
        self.more = self._address(found[SHOWN - 1].run_id) if len(found) > SHOWN else ""
        listed = {row.run.pk: row for row in runs_of([part.run for part in found[:SHOWN]], self.now)}
        return [Part(scope_words.RESULT[part.result], listed[part.run_id]) for part in found[:SHOWN]]

    def _address(self, after: str = "", **more: str) -> str:
        asked = {"result": self.result, "after": after} | more
        named = {name: value for name, value in asked.items() if value}
        return reverse("stop-detail", args=[self.stop.pk], query=named)

    @property
    def region(self) -> str:
        return self._address(self.after)

    @cached_property
    def presses(self) -> list[tuple[Press, str]]:
        """The newest presses and who made them."""
        rows = list(Press.objects.filter(stop=self.stop).order_by("-pk")[:PRESSES])
        named = who_said(press.actor for press in rows)
        return [(press, named[press.actor]) for press in rows]

    @cached_property
    def refused(self) -> list[tuple[str, int]]:
        """What was refused since, by what it was about; or what would have been."""
        counts: Counter[str] = Counter()
        for rows in self._refusals():
            counts.update(dict(rows.order_by().values_list("boundary").annotate(n=Sum("count"))))
        return [(words.REFUSED[name][number != 1], number) for name, number in counts.most_common()]

    def _refusals(self) -> Iterable[QuerySet[Any]]:
        if self.stop.observes:
            return [WouldRefuse.objects.filter(stop=self.stop)]
        through = Refusal.objects.filter(stop__scope_stop=self.stop)
        return [Refusal.objects.filter(stop=self.stop), through]

    @cached_property
    def wish(self) -> tuple[Any, str] | None:
        """A release that waits for its second person, and who asked for it."""
        found = open_wish(self.stop) if self.standing else None
        return (found, who_said([found.asked_by])[found.asked_by]) if found else None

    @cached_property
    def halts(self) -> list[halts.Told]:
        """Its halt of compensations, while nobody lifted that; releasing the stop does not."""
        return halts.of_stop(self.stop) if self.stop.scope in STANDING else []

    @property
    def missing(self) -> str:
        """What a restore left out, while its stop holds the gate."""
        restore = Restore.objects.order_by("-pk").first() if self.by_restore and self.standing else None
        return missing(restore.taken_at, restore.restored_at) if restore else ""

    @property
    def buttons(self) -> Iterable[Button]:
        """What this person may do about it; each leads to a form of its own."""
        args = [self.stop.pk]
        if self.standing and self.may_release:
            word = "End observing…" if self.stop.observes else "Release…"
            yield Button(word, reverse("release-stop", args=args), "st-running", "btn-ink")
        if self.standing and self.shell.may_stop and self.scope is not None:
            yield from self._harder(self.scope.href)
            yield Button("Extend…", reverse("review-stop", args=args), "clock", "opt")

    def _harder(self, href: str) -> Iterable[Button]:
        if self.stop.observes:
            yield Button("Enforce…", href, "stop", "btn-stop")
        elif self.stop.mode != Mode.ABANDON and not self.of_effects:
            yield Button("Stop harder…", href, "stop", "btn-stop")


@require_GET
@signed_in
def detail_page(request: HttpRequest, stop_id: str) -> HttpResponse:
    """GET /stops/<id>/ : the page, or its live region. A stop of one run is told of on the run's page."""
    stop = find_stop(actor_of(request), stop_id)
    if stop.scope == ScopeKind.RUN and stop.run_id:
        return redirect("run", stop.run_id)
    shell = build_shell(request, "stops", stop.workspace)
    page = StopPage(stop, shell, request.GET.dict())
    told = {"shell": shell, "now": shell.now, "page": page, "overdue": scope_words.OVERDUE}
    if is_region(request):
        return render(request, "stops/_detail.html", told | {"region": True})
    return render(request, "stops/detail.html", told)
