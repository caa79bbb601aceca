"""Which lines of a workspace's stream a page of the audit shows: narrowed, a page at a time, bounded.

A stream has no index but its numbers. A page looks at LOOKED lines and says so where that were not all; a day
is found by halving, since lines are numbered in the order of their times.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from urllib.parse import urlencode

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import QueryDict
from django.urls import reverse

from dashboard import words
from dashboard.pages.evidence import LineRow, number, row
from dashboard.pages.facts import name_actors
from runs.audit import INSTALLATION
from runs.evidence import last_line
from runs.models import Evidence, EvidencePayload, Seal, Workspace

SHOWN, LOOKED = 50, 5_000
FACTS = 6  # of a body, beside its line; all of it is in the body
DAY = timedelta(days=1)
# What a choice stands for: beginnings of kinds.
GROUPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "stops": ("Stops and gates", ("stop.", "gate.", "step.stopped", "compensations.", "observation.")),
    "refused": ("Refusals", ("access.refused", "approval.refused", "token.refused", "audit.more")),
    "tokens": ("Tokens", ("token.",)),
    "people": ("People and roles", ("member.", "link.")),
    "sign-ins": ("Sign-ins", ("person.", "link.used")),
    "rules": ("Policies and rules", ("policy.", "rules.", "kind.", "account.", "endpoint.", "release.")),
    "exports": ("Exports", ("export.",)),
    "drills": ("Drills", ("drill.",)),
}
APART = frozenset({"times", "first_at", "last_at"})


@dataclass(frozen=True)
class Asked:
    """What the address asks for; anything unreadable is as if it were not there."""

    workspace: Workspace | None
    kind: str = ""
    who: str = ""
    since: date | None = None
    until: date | None = None
    before: int = 0

    @classmethod
    def read(cls, workspace: Workspace | None, query: QueryDict) -> Asked:
        kind = query.get("kind", "")
        return cls(
            workspace,
            kind=kind if kind in GROUPS else "",
            who=query.get("who", "").replace("\0", "")[:60],
            since=_day(query.get("since", "")),
            until=_day(query.get("until", "")),
            before=number(query.get("before", "")) if query.get("before") else 0,
        )

    @property
    def stream(self) -> str:
        return self.workspace.pk if self.workspace else INSTALLATION

    @property
    def whole(self) -> dict[str, str]:
        """What names the stream in an address."""
        return {"workspace": self.workspace.slug} if self.workspace else {"stream": INSTALLATION}

    @property
    def narrowed(self) -> bool:
        return bool(self.kind or self.who or self.since or self.until)

    def address(self, **more: Any) -> str:
        told = {"kind": self.kind, "who": self.who, "since": self.since, "until": self.until, **more}
        return f"{reverse('audit')}?{urlencode(self.whole | {k: str(v) for k, v in told.items() if v})}"

    def narrow(self, lines: QuerySet[Evidence]) -> QuerySet[Evidence]:
        if self.kind:
            named = Q()
            for beginning in GROUPS[self.kind][1]:
                named |= Q(kind__startswith=beginning)
            lines = lines.filter(named)
        if self.who:
            bodies = EvidencePayload.objects.filter(stream=OuterRef("stream"), seq=OuterRef("seq"))
            lines = lines.filter(Q(actor=self.who) | Exists(bodies.filter(body__contains=f'"{self.who}"')))
        return lines


@dataclass(frozen=True)
class AuditRow:
    """A line; `facts`: its body as words; `times`: how often it happened by then, and since when."""

    of: LineRow
    facts: list[tuple[str, str]]
    times: int
    first: datetime | None


class AuditList:
    """A page of lines, the newest first. `low`..`high` were looked at; `before`: where the next begins."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.total = last_line(asked.stream)
        self.high = asked.before - 1 if 0 < asked.before <= self.total else self.total
        if asked.until:
            self.high = min(self.high, first_at(asked.stream, asked.until + DAY, self.total) - 1)
        bottom = first_at(asked.stream, asked.since, self.total) if asked.since else 1
        self.low = max(bottom, self.high - LOOKED + 1)
        lines = self._lines()
        self.cut = self.low > bottom
        more = len(lines) > SHOWN
        self.before = lines[SHOWN - 1].seq if more else self.low if self.cut else 0
        self.rows = list(self._rows(lines[:SHOWN]))

    def _lines(self) -> list[Evidence]:
        mine = Evidence.objects.filter(stream=self.asked.stream, seq__range=(self.low, self.high))
        return list(self.asked.narrow(mine).order_by("-seq")[: SHOWN + 1])

    def _rows(self, lines: list[Evidence]) -> Iterator[AuditRow]:
        bodies = EvidencePayload.objects.filter(
            stream=self.asked.stream, seq__in=[line.seq for line in lines]
        )
        body_of = {body.seq: body for body in bodies}
        told = {line.seq: _told(body_of.get(line.seq)) for line in lines}
        newest = Seal.objects.filter(stream=self.asked.stream).order_by("-upto_seq").first()
        people = [str(said) for one in told.values() for said in one.values() if _is_actor(said)]
        names = name_actors([*(line.actor for line in lines), *people])
        for line in lines:
            of = row(line, body_of.get(line.seq), names, newest.upto_seq if newest else 0)
            facts = [(key.replace("_", " "), _said(value, names)) for key, value in _facts(told[line.seq])]
            yield AuditRow(of, facts, told[line.seq].get("times", 1), _moment(told[line.seq]))

    @property
    def older(self) -> str:
        return self.asked.address(before=self.before) if self.before else ""


def first_at(stream: str, day: date, total: int) -> int:
    """The number of the first line of this day (UTC) or later; one more than there are if there is none."""
    moment = datetime.combine(day, time(), UTC)
    low, high = 1, total + 1
    while low < high:
        middle = (low + high) // 2
        at = Evidence.objects.filter(stream=stream, seq=middle).values_list("at", flat=True).first()
        if at is None or at < moment:
            low = middle + 1
        else:
            high = middle
    return low


def _told(body: EvidencePayload | None) -> dict[str, Any]:
    try:
        told = json.loads(body.body) if body and body.body else {}
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _facts(told: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    short = [(key, value) for key, value in told.items() if key not in APART and _is_short(value)]
    yield from short[:FACTS]


def _is_short(value: Any) -> bool:
    return isinstance(value, str | int) and 0 < len(str(value)) <= 60


def _is_actor(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(("user:", "token:"))


def _said(value: Any, names: dict[str, str]) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return words.clean(names.get(str(value), str(value)))[:200]


def _moment(told: dict[str, Any]) -> datetime | None:
    try:
        return datetime.fromisoformat(str(told.get("first_at", "")))
    except ValueError:
        return None


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if len(text) == 10 and text < "9999" else None
    except ValueError:
        return None
