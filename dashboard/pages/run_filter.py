"""What a list of runs is narrowed to: read from an address, said in words, and turned into rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import QueryDict
from django.urls import reverse

from dashboard import words
from effects.models import Effect, Settlement
from runs import policies, receipts
from runs.access import DRILLS
from runs.models import Policy, Run, StopPart, StopRequest, Workspace
from runs.store import after

STATUS: dict[str, tuple[str, tuple[str, ...]]] = {
    "running": ("Running", ("ACTIVE",)),
    "stopping": ("Stopping", ("PAUSING", "CANCELLING", "CANCELLING_TIMEOUT")),
    "paused": ("Paused", ("PAUSED",)),
    "unknown": ("At rest, something unknown", ("UNKNOWN",)),
    "silent": ("Silent", receipts.IN_MOTION),
    "ended": ("Ended", ("CANCELLED", "COMPLETED", "FAILED", "ABANDONED")),
}
SINCE = {
    "1h": ("Within an hour", timedelta(hours=1)),
    "24h": ("Within 24 hours", timedelta(hours=24)),
    "7d": ("Within 7 days", timedelta(days=7)),
}
NAMED = {
    "status": "status",
    "q": "name or key",
    "session": "session",
    "unknown": "has unknown",
    "policy": "policy",
    "runtime": "runtime",
    "stop": "stopped by",
    "since": "started",
    "drills": "drills",
}


@dataclass(frozen=True)
class Filter:
    """What the address asks for; anything unreadable is as if it were not there.

    `stop`: the number of a stop, of one run or of many, that stopped it. `all`: everything that matches is
    selected, for a bulk stop. `done`: the bulk stop whose result stands above the list. `drills`: those too.
    """

    workspace: Workspace
    status: str = ""
    q: str = ""
    session: str = ""
    unknown: bool = False
    policy: str = ""
    runtime: str = ""
    stop: str = ""
    since: str = ""
    drills: bool = False
    before: str = ""
    top: str = ""
    all: bool = False
    done: str = ""

    @classmethod
    def read(cls, workspace: Workspace, query: QueryDict) -> Filter:
        def text(name: str, longest: int = 200) -> str:
            return query.get(name, "").replace("\0", "")[:longest]

        status, since, number = text("status"), text("since"), text("stop").lstrip("#")
        return cls(
            workspace,
            status=status if status in STATUS else "",
            q=text("q"),
            session=text("session"),
            unknown=query.get("unknown") == "1",
            policy=text("policy", 40),
            runtime=text("runtime", 120),
            stop=number if number.isascii() and number.isdigit() and len(number) < 16 else "",
            since=since if since in SINCE else "",
            drills=query.get("drills") == "1",
            before=text("before", 40),
            top=text("top", 40),
            all=query.get("all") == "1",
            done=text("done", 40),
        )

    @property
    def chosen(self) -> dict[str, str]:
        """What narrows the list, by its name in the address."""
        told = {"status": self.status, "q": self.q, "session": self.session}
        told |= {"unknown": "1" if self.unknown else "", "policy": self.policy, "runtime": self.runtime}
        told |= {"stop": self.stop, "since": self.since, "drills": "1" if self.drills else ""}
        return {name: value for name, value in told.items() if value}

    @property
    def narrowed(self) -> bool:
        return bool(set(self.chosen) - {"drills"})

    @property
    def rarer(self) -> bool:
        """Whether one of those is set that the page keeps folded away."""
        return bool(self.policy or self.runtime or self.stop or self.since or self.drills)

    @property
    def hides_drills(self) -> bool:
        """Whether runs of drills are left out: not where they are asked for, at home, or part of a stop."""
        return not (self.drills or self.stop or self.workspace.slug == DRILLS)

    @property
    def told(self) -> dict[str, str]:
        """The filter in the page's own words: {"status": "running", "session": "nightly"}."""
        return {NAMED[name]: self._shown(name, value) for name, value in self.chosen.items()}

    @property
    def says(self) -> str:
        """The same as a sentence shows it: `status “running”, session “nightly”`; empty without one."""
        return ", ".join(f"{name} “{value}”" for name, value in self.told.items())

    def _shown(self, name: str, value: str) -> str:
        if name == "status":
            return STATUS[value][0].lower()
        if name == "since":
            return SINCE[value][0].lower()
        if name == "policy":
            return self._policy_name()
        told = {"stop": f"#{value}", "unknown": "yes", "drills": "too"}
        return told.get(name, words.brief(value))

    def _policy_name(self) -> str:
        found = Policy.objects.filter(workspace=self.workspace, pk=self.policy).first()
        return words.brief(found.name) if found else "that is not there"

    def rows(self) -> QuerySet[Run]:
        """All runs that match, newest first, on no particular page."""
        runs = self._of_policy().filter(workspace=self.workspace)
        if self.status:
            runs = runs.filter(status__in=STATUS[self.status][1])
        if self.status == "silent":
            runs = runs.filter(receipts.is_silent())
        if self.q:
            runs = runs.filter(Q(name__icontains=self.q) | Q(key__icontains=self.q) | Q(pk=self.q))
        if self.hides_drills:
            runs = runs.filter(Q(drill=False) | Q(pk=self.q) if self.q else Q(drill=False))
        return self._rarer(runs).order_by("-pk")

    def _rarer(self, runs: QuerySet[Run]) -> QuerySet[Run]:
        if self.session:
            runs = runs.filter(session__key=self.session)
        if self.unknown:
            doubtful = Effect.objects.filter(run=OuterRef("pk"), settlement=Settlement.UNKNOWN)
            runs = runs.filter(Exists(doubtful))
        if self.runtime:
            runs = runs.filter(runtime=self.runtime)
        if self.since:
            runs = runs.filter(admitted_at__gte=after(-SINCE[self.since][1].total_seconds()))
        return runs.filter(self._stopped_by()) if self.stop else runs

    def _of_policy(self) -> QuerySet[Run]:
        if not self.policy:
            return Run.objects.all()
        found = Policy.objects.filter(workspace=self.workspace, pk=self.policy).first()
        return policies.matching_runs(found) if found else Run.objects.none()

    def _stopped_by(self) -> Q:
        """By a stop of its own with this number, or as a part of that one."""
        named: dict[str, Any] = {"workspace": self.workspace, "number": int(self.stop)}
        own = StopRequest.objects.filter(run=OuterRef("pk"), **named)
        of = {f"stop__{name}": value for name, value in named.items()}
        return Q(Exists(own)) | Q(Exists(StopPart.objects.filter(run=OuterRef("pk"), **of)))

    def address(self, to: str = "runs", **changes: str) -> str:
        """The list's address with this filter and these changes; or another page's that takes a filter."""
        asked = {"workspace": self.workspace.slug, **self.chosen}
        asked |= {"before": self.before, "all": "1" if self.all else "", "done": self.done} | changes
        return f"{reverse(to)}?{urlencode({name: value for name, value in asked.items() if value})}"
