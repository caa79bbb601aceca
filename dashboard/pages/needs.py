"""What needs a person, of one workspace: the overview shows all of it, the list of runs those that it holds.

Each group is bounded, and what it leaves out is counted. The most urgent stands first. What a drill left
needs nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import OuterRef, QuerySet, Subquery
from django.urls import reverse

from dashboard import repair_words, scope_words, words
from dashboard.pages.review_facts import named, title_of, with_compensations
from dashboard.pages.run_filter import Filter
from dashboard.pages.stop_rows import in_force
from dashboard.repair_rows import unanswered
from dashboard.words import Term
from effects.models import (
    Compensation,
    CompensationState,
    Delivery,
    DeliveryState,
    Effect,
    Review,
    Settlement,
)
from effects.review_lists import for_person, open_in, with_given
from runs import receipts
from runs.models import STANDING, Run, RunStatus, StopRequest, User, Workspace

SHOWN, COUNTED = 5, 1000
SILENT = Term("silent", "Silent", "Silence is not proof that it stopped.", "clock", "st-quiet")
DUE = Term("due", "Review is due", "Nobody looked at it again by then.", "st-waiting", "st-waiting")


def at_most(total: int) -> str:
    """The number, or that it is more than was counted."""
    return f"more than {COUNTED}" if total > COUNTED else str(total)


@dataclass(frozen=True)
class Need:
    """One thing that waits for a person. `since`: its age counts from then, and `aged` says of what.

    `due`: a moment still to come.
    """

    term: Term
    title: str
    href: str
    says: str
    act: str
    since: datetime | None = None
    due: datetime | None = None
    aged: str = "open"


@dataclass(frozen=True)
class Needs:
    """Things of one sort: the first few, and how many there are. `word`: 3 `unknown`; `things`: all 3 of
    them, as the link behind `everything` is called."""

    word: str
    rows: list[Need] = field(default_factory=list)
    total: int = 0
    everything: str = ""
    things: str = ""

    @property
    def counted(self) -> str:
        return at_most(self.total)

    @property
    def left_out(self) -> int:
        return self.total - len(self.rows)


def some(
    word: str,
    rows: QuerySet[Any],
    need: Callable[[Any], Need],
    everything: str = "",
    things: str = "",
    also: Callable[[list[Any]], list[Any]] = list,
) -> Needs:
    """The first of these rows as needs: one query, and one that counts where there are more.

    `also`: reads what belongs to them.
    """
    first = also(list(rows[: SHOWN + 1]))
    total = rows.order_by()[: COUNTED + 1].count() if len(first) > SHOWN else len(first)
    return Needs(word, [need(row) for row in first[:SHOWN]], total, everything, things or word)


def silent_in(workspace: Workspace) -> Needs:
    """Runs in motion of whose workers nothing is heard, the longest silence first."""
    rows = Run.objects.filter(receipts.is_silent(), workspace=workspace, drill=False)
    rows = rows.order_by("silent_at", "pk")
    return some("silent", rows, _silent, Filter(workspace, status="silent").address(), "silent runs")


def _silent(run: Run) -> Need:
    says = "Silence is not proof that it stopped. Nothing moves it: stop it, or wait."
    since = run.last_heard_at or run.admitted_at
    return Need(
        SILENT, words.brief(run.name, 120), _run(run.pk), says, "Open run", since=since, aged="last heard"
    )


def unknown_in(workspace: Workspace) -> Needs:
    """Effects of which nobody knows whether they happened, the oldest first."""
    mine = {"run__workspace": workspace, "run__drill": False}
    rows = Effect.objects.filter(**mine, settlement=Settlement.UNKNOWN)
    found = rows.select_related("run").defer("body", "plan").order_by("unknown_since", "pk")
    return some("unknown", found, _unknown, _desk(workspace), "unknown effects")


def _unknown(effect: Effect) -> Need:
    said = ", ".join(words.brief(part) for part in (effect.amount, effect.target) if part)
    title = f"{words.brief(effect.title, 120)}{f' ({said})' if said else ''}"
    why = _sentence(effect.why_unknown)
    looked = f"Looked up {words.count(effect.checks, 'time')}. " if effect.checks else ""
    says = f"{why}{looked}This does not prove that it failed. In {words.brief(effect.run.name)}."
    href, due = reverse("unknown", args=[effect.pk]), effect.next_check_at
    return Need(words.SETTLEMENT["UNKNOWN"], title, href, says, "Open it", effect.unknown_since, due)


def _sentence(told: str) -> str:
    """As somebody told it, names of errors with their capitals, ending in one full stop and a space."""
    said = words.brief(told, 120).rstrip(". ")
    return f"{said[:1].upper()}{said[1:]}. " if said else ""


def unknown_messages_in(workspace: Workspace) -> Needs:
    """Messages of which nobody knows whether they were handed over, the oldest first."""
    mine = {"run__workspace": workspace, "run__drill": False}
    rows = Delivery.objects.filter(**mine, state=DeliveryState.UNKNOWN)
    found = rows.select_related("run").defer("body").order_by("unknown_since", "pk")
    return some("messages unknown", found, _message, _desk(workspace), "unknown messages")


def _message(delivery: Delivery) -> Need:
    says = f"We cannot yet say whether it was taken. In {words.brief(delivery.run.name)}."
    term = words.DELIVERY["UNKNOWN"]
    href = reverse("unknown", args=[delivery.pk])
    return Need(term, words.brief(delivery.title, 120), href, says, "Open it", delivery.unknown_since)


def unknown_repairs_in(workspace: Workspace) -> Needs:
    """Compensations of which nobody knows whether they happened, the oldest first."""
    mine = {"run__workspace": workspace, "run__drill": False}
    rows = Compensation.objects.filter(**mine, state=CompensationState.UNKNOWN)
    found = rows.select_related("run", "permit").defer("body").order_by("unknown_since", "pk")
    return some("compensations unknown", found, _repair, _desk(workspace), "unknown compensations")


def _repair(one: Compensation) -> Need:
    term = repair_words.term_of(one, one.permit.state if one.permit else "")
    says = f"{repair_words.told(term, one)} In {words.brief(one.run.name)}."
    href, due = reverse("unknown", args=[one.pk]), one.next_check_at
    return Need(term, words.brief(one.title, 120), href, says, "Open it", one.unknown_since, due)


def _desk(workspace: Workspace) -> str:
    return reverse("unknowns", query={"workspace": workspace.slug})


def late_in(workspace: Workspace) -> Needs:
    """Stops whose deadline passed while work was in flight, and that are not closed."""
    late = {"timed_out_at__isnull": False, "closed_at__isnull": True, "superseded_by__isnull": True}
    of = {"workspace": workspace, "run__status": RunStatus.CANCELLING_TIMEOUT, "run__drill": False}
    rows = StopRequest.objects.filter(**of, **late)
    found = rows.select_related("run").order_by("timed_out_at", "pk")
    return some("timed out", found, _late, Filter(workspace, status="stopping").address(), "timed-out stops")


def _late(stop: StopRequest) -> Need:
    title = f"Stop #{stop.number} of {words.brief(stop.run.name if stop.run else stop.run_key, 100)}"
    says = "Work in flight did not end by the deadline. New work stays refused."
    term = words.RUN["CANCELLING_TIMEOUT"]
    return Need(term, title, _run(stop.run_id or ""), says, "Open run", since=stop.timed_out_at, aged="late")


def reviews_for(workspace: Workspace, user: User) -> Needs:
    """Reviews that wait for this person, the first to expire first."""
    rows = with_given(open_in(workspace.pk).filter(for_person(user), run__drill=False))
    found = rows.select_related("effect", "run").order_by("expires_at", "pk")
    return some(
        "waiting for review",
        found,
        _review,
        reverse("reviews", query={"workspace": workspace.slug}),
        "reviews",
        with_compensations,
    )


def _review(review: Any) -> Need:
    left, where = review.needed - review.given, words.brief(review.run.name)
    says = f"Needs {left} more of {words.count(review.needed, 'approval')}. In {where}."
    href = reverse("review", args=[review.pk])
    return Need(words.REVIEW["waiting"], title_of(review), href, says, "See review", due=review.expires_at)


def failed_in(workspace: Workspace) -> Needs:
    """Compensations that failed, with neither a decision nor a later one, the oldest first."""
    rows = unanswered(Compensation.objects.filter(run__workspace=workspace, run__drill=False))
    asked = Review.objects.filter(subject="compensation", subject_id=OuterRef("pk")).order_by("-pk")
    found = rows.select_related("run", "permit__step").annotate(review=Subquery(asked.values("pk")[:1]))
    return some("failed to compensate", found.defer("body").order_by("settled_at", "pk"), _failed)


def _failed(one: Any) -> Need:
    says = f"Nobody has decided what follows. The original effect stands. In {words.brief(one.run.name)}."
    href = reverse("review", args=[one.review]) if one.review else f"{_run(one.run_id)}#compensations"
    return Need(
        repair_words.term_of(one), named(one), href, says, "Decide", since=one.settled_at, aged="failed"
    )


def paused_in(workspace: Workspace) -> Needs:
    """Paused runs, the one that waits longest first."""
    holding = StopRequest.objects.filter(run=OuterRef("pk"), closed_at__isnull=True).order_by("-number")
    rows = Run.objects.filter(workspace=workspace, status=RunStatus.PAUSED, drill=False).order_by("pk")
    rows = rows.annotate(held_at=Subquery(holding.values("recorded_at")[:1]))
    return some("paused", rows, _paused, Filter(workspace, status="paused").address(), "paused runs")


def _paused(run: Any) -> Need:
    says, name = "Resumes only by a new decision.", words.brief(run.name, 120)
    return Need(words.RUN["PAUSED"], name, _run(run.pk), says, "Open run", run.held_at, aged="held")


def overdue_in(workspace: Workspace, now: datetime) -> Needs:
    """Standing stops that nobody looked at again by their review date."""
    rows = in_force(workspace.pk).filter(scope__in=STANDING, review_at__lte=now)
    found = rows.select_related("workspace", "session", "policy").order_by("review_at", "pk")
    return some("due for review", found, _overdue)


def _overdue(stop: StopRequest) -> Need:
    title = f"Stop #{stop.number} of {scope_words.subject(stop)}"
    says = "It stands, and nobody looked at it again by its review date: extend it, or release it."
    return Need(
        DUE,
        title,
        reverse("stop-detail", args=[stop.pk]),
        says,
        "Open stop",
        since=stop.review_at,
        aged="overdue",
    )


def _run(run_id: str) -> str:
    return reverse("run", args=[run_id])
