"""What the list of reports is narrowed to: read from an address, said in words, and turned into rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from urllib.parse import urlencode

from django.db.models import Exists, OuterRef, QuerySet
from django.http import QueryDict
from django.urls import reverse

from dashboard import words
from dashboard.reports.queries import name_actors
from effects.models import Report, SignOff
from runs.access import DRILLS
from runs.models import StopRequest, Workspace

FINAL = {"yes": "final", "no": "not final"}
SIGNED = {"yes": "signed", "no": "not signed"}
DAY = timedelta(days=1)


@dataclass(frozen=True)
class Filter:
    """What the address asks for; anything unreadable is as if it were not there.

    `who`: the id of whoever asked for a stop of the run. `since`, `until`: days of issue, UTC, both included.
    """

    workspace: Workspace
    outcome: str = ""
    final: str = ""
    session: str = ""
    who: str = ""
    since: date | None = None
    until: date | None = None
    signed: str = ""
    drills: bool = False
    before: str = ""

    @classmethod
    def read(cls, workspace: Workspace, query: QueryDict) -> Filter:
        def text(name: str, longest: int = 200) -> str:
            return query.get(name, "").replace("\0", "")[:longest]

        return cls(
            workspace,
            outcome=text("outcome") if text("outcome") in words.OUTCOME else "",
            final=text("final") if text("final") in FINAL else "",
            session=text("session"),
            who=text("who", 60),
            since=_day(text("since", 10)),
            until=_day(text("until", 10)),
            signed=text("signed") if text("signed") in SIGNED else "",
            drills=query.get("drills") == "1",
            before=text("before", 40),
        )

    @property
    def chosen(self) -> dict[str, str]:
        """What narrows the list, by its name in the address."""
        told = {"outcome": self.outcome, "final": self.final, "session": self.session, "who": self.who}
        told |= {"since": self.since.isoformat() if self.since else "", "signed": self.signed}
        told |= {"until": self.until.isoformat() if self.until else ""}
        told |= {"drills": "1" if self.drills else ""}
        return {name: value for name, value in told.items() if value}

    @property
    def narrowed(self) -> bool:
        return bool(set(self.chosen) - {"drills"})

    @property
    def only_unsigned(self) -> bool:
        """Whether it asks for nothing but what nobody has signed."""
        return set(self.chosen) - {"drills"} == {"signed"} and self.signed == "no"

    @property
    def hides_drills(self) -> bool:
        return not (self.drills or self.workspace.slug == DRILLS)

    @property
    def says(self) -> str:
        """`outcome “failed”, issued from “2026-11-01”`; empty without one."""
        return ", ".join(f"{NAMED[name]} “{self._shown(name, value)}”" for name, value in self.chosen.items())

    def _shown(self, name: str, value: str) -> str:
        if name == "outcome":
            return words.OUTCOME[value].word.lower()
        if name == "who":
            return words.brief(name_actors([value])[value])
        told = {"final": "yes" if value == "yes" else "no", "signed": value, "drills": "too"}
        return told.get(name, words.brief(value))

    def rows(self) -> QuerySet[Report]:
        """The newest version of each run's report that matches, the last issued first; without bodies."""
        newer = Report.objects.filter(run=OuterRef("run"), version__gt=OuterRef("version"))
        rows = Report.objects.filter(~Exists(newer), run__workspace=self.workspace).defer("body")
        if self.hides_drills:
            rows = rows.filter(run__drill=False)
        if self.outcome:
            rows = rows.filter(outcome=self.outcome)
        if self.final:
            rows = rows.filter(final=self.final == "yes")
        if self.session:
            rows = rows.filter(run__session__key=self.session)
        return self._rarer(rows).order_by("-pk")

    def _rarer(self, rows: QuerySet[Report]) -> QuerySet[Report]:
        if self.who:
            rows = rows.filter(Exists(StopRequest.objects.filter(run=OuterRef("run"), actor=self.who)))
        if self.signed:
            signed = Exists(SignOff.objects.filter(report=OuterRef("pk")))
            rows = rows.filter(signed if self.signed == "yes" else ~signed)
        if self.since:
            rows = rows.filter(issued_at__gte=_begin(self.since))
        return rows.filter(issued_at__lt=_begin(self.until) + DAY) if self.until else rows

    def address(self, **changes: str) -> str:
        """The list's address with this filter and these changes."""
        asked = {"workspace": self.workspace.slug, **self.chosen, "before": self.before} | changes
        return f"{reverse('reports')}?{urlencode({name: value for name, value in asked.items() if value})}"


NAMED = {
    "outcome": "outcome",
    "final": "final",
    "session": "session",
    "who": "stop asked for by",
    "since": "issued from",
    "until": "issued to",
    "signed": "signed",
    "drills": "drills",
}


def _day(text: str) -> date | None:
    try:
        found = date.fromisoformat(text)
    except ValueError:
        return None
    return found if 1970 <= found.year < 9999 else None


def _begin(day: date) -> datetime:
    return datetime.combine(day, time.min, UTC)
