"""Stops as rows of a list: what each is about, where it stands, what it refused. Set-based, bounded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Max, QuerySet, Sum
from django.urls import reverse

from dashboard import scope_words, words
from dashboard.pages.facts import name_actors
from dashboard.scope_words import STAGE
from dashboard.words import Term
from runs import gates
from runs.models import STANDING, Reach, Refusal, Result, ScopeKind, StopPart, StopRequest, WouldRefuse
from runs.presses import RELEASED

OF_A_SCOPE = (*STANDING, ScopeKind.BULK)
RELATED = ("workspace", "session", "policy", "run", "step", "step__run", "superseded_by")


@dataclass(frozen=True)
class Tally:
    """How often, and when last."""

    count: int = 0
    last_at: datetime | None = None


@dataclass(frozen=True)
class StopRow:
    """One stop of a list."""

    stop: StopRequest
    subject: str
    who: str
    stage: Term
    refused: Tally
    would: Tally
    parts: int = 0
    now: datetime | None = None

    @property
    def href(self) -> str:
        """The stop's own page; the page of its run where that says more."""
        run = self.stop.run_id if self.stop.scope == ScopeKind.RUN else None
        return reverse("run", args=[run]) if run else reverse("stop-detail", args=[self.stop.pk])

    @property
    def reached(self) -> str:
        """How many of its runs had their turn, while not all of them had; empty before the first."""
        if not self.parts or self.stop.fenced_at:
            return ""
        of = f"{self.parts:,} of " if self.stop.runs_n else ""
        return f"{of}{words.count(self.stop.runs_n or self.parts, 'run')} reached"

    @property
    def why(self) -> str:
        return why(self.stop)

    @property
    def until(self) -> datetime | None:
        """When it was over."""
        return self.stop.released_at or self.stop.closed_at

    @property
    def overdue(self) -> bool:
        """Whether nobody looked at it again in time."""
        at = self.stop.review_at
        return bool(at and self.now and at < self.now)


def why(stop: StopRequest) -> str:
    """The reason in words; a stranger's reason is shown as it is."""
    known = dict(words.REASONS) | {gates.RESTORED: "After a restore"}
    return known.get(stop.reason, words.clean(stop.reason))


def stage_of(stop: StopRequest) -> Term:
    """Where a stop stands, from its own moments. A run's own stop wears the chip of its run."""
    if stop.superseded_by_id:
        return STAGE["replaced"]
    if stop.released_at or stop.closed_because == RELEASED:
        return STAGE["released"]
    if stop.closed_at:
        return STAGE["closed"]
    if stop.scope == ScopeKind.RUN:
        return _of_a_run(stop)
    if stop.scope == ScopeKind.STEP:
        return words.STEP[stop.step.status] if stop.step else STAGE["closed"]
    if stop.scope == ScopeKind.BULK:
        return STAGE["carried out" if stop.fenced_at else "carrying out"]
    return _of_a_standing(stop)


def _of_a_run(stop: StopRequest) -> Term:
    if stop.run is None:
        return STAGE["waiting"]
    if stop.run.status in ("CANCELLING", "CANCELLING_TIMEOUT") and stop.quiet_at:
        return words.RUN["QUIET"]
    return words.RUN[stop.run.status]


def _of_a_standing(stop: StopRequest) -> Term:
    if stop.observes:
        return STAGE["observing"]
    if not stop.fenced_at:
        return STAGE["fencing"]
    return STAGE["withholds" if of_effects(stop) else "in force"]


def of_effects(stop: StopRequest) -> bool:
    """Whether it withholds effects of a kind or class, and leaves the runs ACTIVE."""
    return stop.policy is not None and stop.policy.reach == Reach.EFFECTS


def rows_of(stops: QuerySet[StopRequest], now: datetime) -> list[StopRow]:
    """These stops with their names, refusals and parts: six queries at most, whatever their number."""
    found = list(stops.select_related(*RELATED))
    ids = [stop.pk for stop in found]
    named, refused = name_actors(stop.actor for stop in found), refused_by(ids)
    would = would_refuse([stop.pk for stop in found if stop.observes])
    parts = parts_of([stop.pk for stop in found if stop.scope in OF_A_SCOPE])
    return [
        StopRow(
            stop,
            scope_words.subject(stop),
            words.clean(named[stop.actor]),
            stage_of(stop),
            refused.get(stop.pk, Tally()),
            would.get(stop.pk, Tally()),
            parts.get(stop.pk, 0),
            now,
        )
        for stop in found
    ]


def refused_by(ids: list[str]) -> dict[str, Tally]:
    """Refusals by the stop that they name, or that it is a part of; repeats counted."""
    told: dict[str, Tally] = {}
    if not ids:
        return told
    own = Refusal.objects.filter(stop__in=ids).values_list("stop")
    through = Refusal.objects.filter(stop__scope_stop__in=ids).values_list("stop__scope_stop")
    for rows in (own, through):
        for holder, number, last in rows.order_by().annotate(Sum("count"), Max("last_at")):
            told[holder] = _more(told.get(holder, Tally()), number, last)
    return told


def would_refuse(ids: list[str]) -> dict[str, Tally]:
    """What those that only observe would have refused."""
    if not ids:
        return {}
    rows = WouldRefuse.objects.filter(stop__in=ids).values_list("stop").order_by()
    return {stop: Tally(n, last) for stop, n, last in rows.annotate(Sum("count"), Max("last_at"))}


def parts_of(ids: list[str]) -> dict[str, int]:
    """How many runs of each had their turn."""
    if not ids:
        return {}
    rows = StopPart.objects.filter(stop__in=ids).exclude(result=Result.PENDING).values_list("stop").order_by()
    return dict(rows.annotate(Count("pk")))


def _more(tally: Tally, number: int, last: datetime) -> Tally:
    return Tally(tally.count + number, max(last, tally.last_at or last))


def in_force(workspace_id: str) -> QuerySet[StopRequest]:
    """Stops of this workspace that are open now. Those of a wider stop's runs are parts of it."""
    rows = StopRequest.objects.filter(workspace_id=workspace_id, closed_at__isnull=True)
    return rows.filter(superseded_by__isnull=True, released_at__isnull=True, scope_stop__isnull=True)


def who_said(ids: Iterable[str]) -> dict[str, str]:
    """Names of actors, fit to be shown."""
    return {actor: words.clean(name) for actor, name in name_actors(ids).items()}
