"""Planned stops as rows of a list: about what, when, where each stands, what its press meets. Bounded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import QuerySet
from django.urls import reverse

from dashboard import plan_words, words
from dashboard.pages.plan_form import Plan
from dashboard.pages.stop_rows import who_said
from dashboard.words import Term
from runs.access import Actor
from runs.models import (
    FINAL,
    Gate,
    Policy,
    Press,
    Reach,
    Run,
    RunStatus,
    ScheduledStop,
    ScopeKind,
    Session,
    StopRequest,
    Workspace,
)
from runs.schedules import Moment, waiting

LATE = timedelta(seconds=60)  # a sweep presses within seconds; later than this, nobody sweeps
RELATED = ("workspace", "session", "policy", "stop", "stop__run")


@dataclass(frozen=True)
class PlannedRow:
    """One planned stop of a list. `href`: the page of what it is of, or none; `meets`: what its press will
    meet, or met; `may`: this person may withdraw it."""

    made: ScheduledStop
    subject: str
    href: str
    who: str
    withdrawn_by: str
    state: Term
    meets: str
    may: bool

    @property
    def local(self) -> str:
        return plan_words.local_words(self.made.local)

    @property
    def reading(self) -> str:
        made = self.made
        return plan_words.reading_words(Moment(made.at, made.reading, made.local, made.zone))

    @property
    def why(self) -> str:
        return dict(words.REASONS).get(self.made.reason, words.clean(self.made.reason))

    @property
    def stop_href(self) -> str:
        """The stop that it was pressed as; the page of its run where that says more."""
        stop = self.made.stop
        if stop is None:
            return ""
        run = stop.run_id if stop.scope == ScopeKind.RUN else None
        return reverse("run", args=[run]) if run else reverse("stop-detail", args=[stop.pk])

    @property
    def waits(self) -> bool:
        return self.made.pressed_at is None and self.made.withdrawn_at is None


def planned_in(workspace_id: str) -> QuerySet[ScheduledStop]:
    """Those that are neither pressed nor withdrawn, the next one first."""
    return ScheduledStop.objects.filter(waiting(), workspace_id=workspace_id).order_by("at", "pk")


def planned_rows(
    found: QuerySet[ScheduledStop], now: datetime, *, user_id: int | None, may_stop: bool
) -> list[PlannedRow]:
    """These with their names and what they meet: five queries at most, whatever their number."""
    return rows_for(list(found.select_related(*RELATED)), now, user_id=user_id, may_stop=may_stop)


def rows_for(
    made: list[ScheduledStop], now: datetime, *, user_id: int | None, may_stop: bool
) -> list[PlannedRow]:
    """As `planned_rows`, of those that are read already, or that nobody has kept yet."""
    if not made:
        return []
    waits = [one for one in made if one.pressed_at is None]
    runs, busy, met = _runs_of(made), _busy(waits), _met(made)
    named = who_said({one.actor for one in made} | {one.withdrawn_by for one in made} - {""})
    return [
        PlannedRow(
            one,
            subject_of(one, run := runs.get(one.run_key)),
            href_of(one, run),
            named[one.actor],
            named.get(one.withdrawn_by, ""),
            state_of(one, now),
            met_by(one, met) if one.pressed_at else meets(one, run, busy),
            may_stop or (run is not None and run.owner_id == user_id),
        )
        for one in made
    ]


def imagined(workspace: Workspace, plan: Plan, actor: Actor, now: datetime) -> PlannedRow:
    """What this plan would be, as a row."""
    what, wish, when = plan.what, plan.wish, plan.when
    made = ScheduledStop(workspace=workspace, scope=what.scope, run_key=what.run_key, actor=actor.id)
    made.mode, made.reason, made.note, made.deadline_s = wish.mode, wish.reason, wish.note, wish.deadline_s
    made.at, made.local, made.zone, made.reading = when.at, when.local, when.zone, when.reading
    if what.scope == ScopeKind.POLICY:
        made.policy = Policy.objects.get(pk=what.id, workspace=workspace)
    if what.session_key:
        named = {"workspace": workspace, "key": what.session_key}
        made.session = Session.objects.filter(**named).first() or Session(**named)
    (row,) = rows_for([made], now, user_id=None, may_stop=False)
    return row


def _runs_of(made: list[ScheduledStop]) -> Mapping[str, Run]:
    keys = {one.run_key for one in made if one.scope == ScopeKind.RUN}
    rows = Run.objects.filter(workspace=made[0].workspace_id, key__in=keys) if keys else []
    return {run.key: run for run in rows}


def _busy(made: list[ScheduledStop]) -> set[str]:
    """Which of their sessions have a run that has not ended."""
    ids = {one.session_id for one in made if one.session_id and one.withdrawn_at is None}
    if not ids:
        return set()
    live = Run.objects.filter(session__in=ids).exclude(status__in=FINAL)
    return set(live.order_by().values_list("session_id", flat=True).distinct())


def _met(made: list[ScheduledStop]) -> Mapping[str, str]:
    """What each press came to, by its key."""
    keys = [press_key(one) for one in made if one.stop_id]
    if not keys:
        return {}
    rows = Press.objects.filter(stop__in=[one.stop_id for one in made if one.stop_id], key__in=keys)
    return dict(rows.values_list("key", "answer"))


def press_key(made: ScheduledStop) -> str:
    """The key that its press has."""
    return f"scheduled:{made.pk}"


def subject_of(made: ScheduledStop, run: Run | None) -> str:
    """What it is of, in words."""
    row = {
        ScopeKind.RUN: run or made.run_key,
        ScopeKind.SESSION: made.session,
        ScopeKind.POLICY: made.policy,
        ScopeKind.WORKSPACE: made.workspace,
    }[ScopeKind(made.scope)]
    return f"{made.scope} “{words.brief(row)}”"


def href_of(made: ScheduledStop, run: Run | None) -> str:
    """The page of what it is of, where that has one of its own."""
    if run is not None:
        return reverse("run", args=[run.pk])
    return reverse("policy", args=[made.policy_id]) if made.policy_id else ""


def state_of(made: ScheduledStop, now: datetime) -> Term:
    """Where it stands, by the database's clock."""
    if made.pressed_at:
        return plan_words.STATE["pressed"]
    if made.withdrawn_at:
        return plan_words.STATE["withdrawn"]
    if made.at > now:
        return plan_words.STATE["planned"]
    return plan_words.STATE["due" if now - made.at <= LATE else "overdue"]


def meets(made: ScheduledStop, run: Run | None, busy: Iterable[str]) -> str:
    """What its press would meet now; empty when it is as anybody would expect."""
    if made.withdrawn_at:
        return ""
    if made.scope == ScopeKind.RUN:
        return _of_run(run)
    scope = made.session or made.policy or made.workspace
    if scope.gate == Gate.SHUT:
        return plan_words.SHUT
    if made.session_id and made.session_id not in busy:
        return plan_words.IDLE
    return plan_words.OF_EFFECTS if made.policy and made.policy.reach == Reach.EFFECTS else ""


def _of_run(run: Run | None) -> str:
    if run is None:
        return plan_words.UNREGISTERED
    if run.status in FINAL:
        return plan_words.ENDED.format(word=words.RUN[run.status].word.lower())
    if run.status != RunStatus.ACTIVE:
        return plan_words.STOPPING.format(word=words.RUN[run.status].word.lower())
    return ""


def met_by(made: ScheduledStop, met: Mapping[str, str]) -> str:
    """What its press came to, where that is not a stop of its own."""
    answer, stop = met.get(press_key(made), ""), made.stop
    if answer == "waiting" and isinstance(stop, StopRequest):
        if stop.run_id:
            return ""
        return plan_words.NEVER_CAME if stop.closed_at else plan_words.MET[answer]
    return plan_words.MET.get(answer, "")
