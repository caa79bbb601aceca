"""What the gates see of a workspace, and what they can't: its runtimes, their workers, tools outside of them.

A gate sees only what comes to it. What is not here is not proof that nothing else works on a run.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Exists, F, Max, OuterRef, Q, QuerySet

from .models import FINAL, Boundary, Permit, Receipt, Run, Worker
from .store import database_time

DAYS = 30  # runs that were admitted, or heard of, within so many days; those that are open always count
GROUPS, LISTS, TOOLS = 200, 500, 200  # at most so many are told


@dataclass(frozen=True)
class Runtime:
    """One runtime with one agent, as runs name themselves ("" where they don't).

    `unnamed`: its runs on which no worker gave its name. `workers`: those that did, once for each run;
    `never` of them were seen at no gate. Of the workers on open runs, `confirmed` hold the run's version of
    now, and `behind` an older one, or none that they told of. Silence is no proof that a worker stopped.
    """

    runtime: str
    agent: str
    runs: int
    open_runs: int
    unnamed: int
    last_heard_at: datetime | None
    workers: int = 0
    never: int = 0
    confirmed: int = 0
    behind: int = 0


@dataclass(frozen=True)
class Tool:
    """A tool that the provider of the model runs by itself, by its runs' own word: no gate holds it."""

    name: str
    runs: int
    open_runs: int
    newest_run_id: str


@dataclass(frozen=True)
class Seen:
    """Runtimes, those heard of last first, and tools, those of most runs first. `more`: there are others."""

    since: datetime
    as_of: datetime
    runtimes: list[Runtime] = field(default_factory=list)
    tools: list[Tool] = field(default_factory=list)
    more: bool = False


def seen(workspace_id: str, days: int = DAYS) -> Seen:
    """What is known of a workspace's runtimes, workers and tools: four queries, whatever their number."""
    now = database_time()
    since = now - timedelta(days=days)
    runs = Run.objects.filter(recent(since), workspace_id=workspace_id)
    groups = _groups(runs)
    tools = _tools(runs)
    more = len(groups) > GROUPS or len(tools) > TOOLS
    return Seen(since, now, _runtimes(groups[:GROUPS], _workers(workspace_id, since)), tools[:TOOLS], more)


def recent(since: datetime, prefix: str = "") -> Q:
    """Runs that are open, or were admitted or heard of since then."""
    late = {f"{prefix}{name}__gte": since for name in ("admitted_at", "last_heard_at")}
    found = ~Q(**{f"{prefix}status__in": FINAL})
    for name, moment in late.items():
        found |= Q(**{name: moment})
    return found


def _groups(runs: QuerySet[Run]) -> list[dict[str, Any]]:
    nobody = ~Exists(Worker.objects.filter(run=OuterRef("pk")))
    rows = runs.annotate(nobody=nobody).order_by().values("runtime", "agent")
    told: QuerySet[Any, Any] = rows.annotate(
        runs=Count("pk"),
        open_runs=Count("pk", filter=~Q(status__in=FINAL)),
        unnamed=Count("pk", filter=Q(nobody=True)),
        last_heard_at=Max("last_heard_at"),
    )
    return list(told.order_by(F("last_heard_at").desc(nulls_last=True), "runtime", "agent")[: GROUPS + 1])


def _workers(workspace_id: str, since: datetime) -> dict[tuple[str, str], dict[str, Any]]:
    """By runtime and agent: how many were seen, and where they stand."""
    mine = {"run": OuterRef("run"), "worker": OuterRef("name")}
    receipts = Receipt.objects.filter(**mine, boundary__in=Boundary.values)
    came = Exists(receipts) | Exists(Permit.objects.filter(**mine))
    open_one = ~Q(run__status__in=FINAL)
    holds = Q(confirmed_version__gte=F("run__cancel_version"))
    rows = Worker.objects.filter(recent(since, "run__"), run__workspace_id=workspace_id).annotate(came=came)
    told: QuerySet[Any, Any] = (
        rows.order_by()
        .values("run__runtime", "run__agent")
        .annotate(
            workers=Count("pk"),
            never=Count("pk", filter=Q(came=False)),
            confirmed=Count("pk", filter=open_one & holds),
            open_workers=Count("pk", filter=open_one),
        )
    )
    return {(row.pop("run__runtime"), row.pop("run__agent")): row for row in told}


def _runtimes(groups: list[dict[str, Any]], workers: dict[tuple[str, str], dict[str, Any]]) -> list[Runtime]:
    found = []
    for group in groups:
        mine = dict(workers.get((group["runtime"], group["agent"]), {}))
        behind = mine.pop("open_workers", 0) - mine.get("confirmed", 0)
        found.append(Runtime(**group, **mine, behind=behind))
    return found


def _tools(runs: QuerySet[Run]) -> list[Tool]:
    """Folded from the lists that differ, of which there are few."""
    lists = runs.exclude(ungateable=[]).order_by().values("ungateable")
    told = lists.annotate(n=Count("pk"), open_n=Count("pk", filter=~Q(status__in=FINAL)), newest=Max("pk"))
    counts, open_ones, newest = Counter[str](), Counter[str](), dict[str, str]()
    for row in told.order_by("-newest")[:LISTS]:
        for name in {str(one) for one in row["ungateable"]}:
            counts[name] += row["n"]
            open_ones[name] += row["open_n"]
            newest.setdefault(name, row["newest"])
    return [Tool(name, n, open_ones[name], newest[name]) for name, n in sorted(counts.items(), key=_most)]


def _most(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]
