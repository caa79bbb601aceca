"""The list of the unknowns desk: what is open, by due time or amount, and what was just resolved.

What became unknown after the list was opened waits behind a button, so that nothing moves under a pointer.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from django.http import QueryDict
from django.urls import reverse

from dashboard import words
from dashboard.pages.unknown_subject import Subject
from dashboard.unknown_words import GROUND
from effects import unknowns
from effects.models import Compensation, Effect, Ground, Resolution
from effects.unknowns import Unknown, Wanted
from runs.models import Membership, User, Workspace
from runs.problems import Problem

SHOWN, RESOLVED, CHOICES, FRESH = 25, 20, 100, 100
NUMBERS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")
SETTLED = "An unknown is settled by evidence or accepted by two people; never by waiting."


@dataclass(frozen=True)
class Asked:
    """What the address asks for; anything unreadable is as if it were not there.

    `until`: what became unknown later waits behind the button. `stopped_by`: a user's id.
    """

    workspace: Workspace
    user: User
    sort: str = ""
    mine: bool = False
    overdue: bool = False
    kind: str = ""
    stopped_by: str = ""
    cursor: str = ""
    until: datetime | None = None

    @classmethod
    def read(cls, workspace: Workspace, user: User, query: QueryDict) -> Asked:
        def text(name: str, longest: int = 200) -> str:
            return query.get(name, "").replace("\0", "")[:longest]

        by = text("by", 12)
        return cls(
            workspace,
            user,
            sort="impact" if text("sort") == "impact" else "",
            mine=text("mine") == "1",
            overdue=text("overdue") == "1",
            kind=text("kind", 120),
            stopped_by=by if by.isascii() and by.isdigit() else "",
            cursor=text("cursor", 300),
            until=_moment(text("until", 40)),
        )

    @property
    def chosen(self) -> dict[str, str]:
        told = {"sort": self.sort, "mine": "1" if self.mine else "", "overdue": "1" if self.overdue else ""}
        told |= {"kind": self.kind, "by": self.stopped_by}
        return {name: value for name, value in told.items() if value}

    @property
    def narrowed(self) -> bool:
        return bool(set(self.chosen) - {"sort"})

    @property
    def order(self) -> str:
        return "by amount" if self.sort else "by due time"

    @property
    def says(self) -> str:
        """What narrows the list, in words."""
        told = [(self.mine, "taken by me"), (self.overdue, "overdue")]
        told += [(bool(self.kind), f"kind “{words.brief(self.kind)}”")]
        told += [(bool(self.stopped_by), "stopped by one person")]
        return ", ".join(word for holds, word in told if holds)

    def wanted(self, **more: Any) -> Wanted:
        return Wanted(
            assignee=self.user.pk if self.mine else None,
            overdue=True if self.overdue else None,
            kind=self.kind,
            stopped_by=f"user:{self.stopped_by}" if self.stopped_by else "",
            **more,
        )

    def address(self, item: str = "", **more: str) -> str:
        """The list's address with this filter, or that of an item beside it."""
        where = reverse("unknown", args=[item]) if item else reverse("unknowns")
        asked = {"workspace": self.workspace.slug, **self.chosen, **more}
        return f"{where}?{urlencode({name: value for name, value in asked.items() if value})}"


def _moment(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found.astimezone(UTC) if found.tzinfo else None


@dataclass(frozen=True)
class Row:
    """One open item of the list."""

    s: Subject
    href: str
    says: str


@dataclass(frozen=True)
class Done:
    """One that became known, or accepted, within a day; `how` says by what."""

    id: str
    title: str
    at: datetime | None
    how: str
    href: str


class Desk:
    """The list as of now; a fixed number of queries, however much is unknown. `total`: at most 99, of all."""

    def __init__(self, asked: Asked, now: datetime, total: int, item: str = "") -> None:
        self.asked, self.now, self.total, self.item = asked, now, total, item
        until = asked.until or now
        found, later = self._page(asked.wanted(until=until))
        self.rows = [self._row(one) for one in found]
        self.later = asked.address(cursor=later, until=until.isoformat()) if later else ""
        self.fresh = (
            unknowns.count(asked.workspace.pk, asked.wanted(since=until), FRESH) if asked.until else 0
        )
        self.region = asked.address(item, part="list", until=until.isoformat(), cursor=asked.cursor)
        self.head = asked.address(item, part="head")
        self.first_page = asked.address()
        self.bulk = f"{reverse('unknowns-together')}?{self.first_page.partition('?')[2]}"
        self.resolved = self._resolved()

    def _page(self, wanted: Wanted) -> tuple[list[Unknown], str]:
        """This page, and what leads to the next; a cursor that can't be read begins anew."""
        workspace, cursor = self.asked.workspace.pk, self.asked.cursor
        if self.asked.sort:
            skip = int(cursor) if cursor.isascii() and cursor.isdigit() and len(cursor) < 6 else 0
            found = unknowns.by_impact(workspace, wanted, limit=SHOWN + 1, skip=skip)
            return found[:SHOWN], str(skip + SHOWN) if len(found) > SHOWN else ""
        try:
            found, later = unknowns.open_in(workspace, wanted, cursor=cursor, limit=SHOWN)
        except Problem:
            found, later = unknowns.open_in(workspace, wanted, limit=SHOWN)
        return found, later or ""

    def _row(self, one: Unknown) -> Row:
        s = Subject(one, self.now)
        next_one = f"next {s.next_check.strftime('%H:%M')}" if s.next_check else "no further check"
        told = [s.why, s.tries, next_one, taken_by(one.assignee, self.asked.user.pk)]
        told.append(f"run {words.brief(one.run.name, 40)}")
        return Row(s, self.asked.address(one.id), " · ".join(told))

    def _resolved(self) -> list[Done]:
        found = unknowns.just_resolved(self.asked.workspace.pk, limit=RESOLVED)
        decided = _deciders(found)
        return [self._done(one, decided) for one in found]

    def _done(self, one: Unknown, decided: dict[str, Resolution]) -> Done:
        s = Subject(one, self.now)
        how = how_resolved(s, decided.get(one.id))
        return Done(one.id, s.title, one.settled_at, how, self.asked.address(one.id))

    # words ----------------------------------------------------------------------------------------

    @property
    def counted(self) -> str:
        return "more than 98" if self.total >= 99 else str(self.total)

    @property
    def says(self) -> str:
        """The h1: how much is unknown."""
        many = self.total >= len(NUMBERS)
        number = self.counted.capitalize() if many else NUMBERS[self.total]
        return f"{number} effect{' is' if self.total < 2 else 's are'} unknown"

    @property
    def sub(self) -> str:
        if not self.total:
            return SETTLED
        late = next((row.s for row in self.rows if row.s.overdue), None)
        first = f"The first is {late.due_says}. " if late and not self.asked.sort else ""
        return f"{first}{SETTLED}"

    @property
    def mark(self) -> str:
        """Before the title: how much is open."""
        return f"({self.total}?) " if self.total else ""

    @property
    def fresh_says(self) -> str:
        most = "At least " if self.fresh >= FRESH else ""
        return f"{most}{self.fresh} new unknown{'' if self.fresh == 1 else 's'}."

    @property
    def empty(self) -> str:
        """Why the list is empty: nothing matches, no later page, or nothing is unknown."""
        if self.asked.narrowed:
            return "No unknown matches."
        if self.asked.cursor:
            return "No later ones."
        last = unknowns.last_resolved(self.asked.workspace.pk)
        return f"No unknown effects. {last_says(last, self.now)}".strip()

    @property
    def choose(self) -> str:
        return (
            "Choose one to see all that is known of it." if self.rows else "Nothing waits for anybody here."
        )

    @property
    def kinds(self) -> list[str]:
        """The kinds of what is unknown now, for the filter: two queries."""
        mine = {"run__workspace": self.asked.workspace, "run__drill": False}
        effects = Effect.objects.filter(settlement="UNKNOWN", **mine)
        repairs = Compensation.objects.filter(state="UNKNOWN", **mine)
        found = {self.asked.kind} - {""} | {"delivery"}
        for rows in (effects, repairs):
            found |= set(rows.order_by().values_list("kind_name", flat=True).distinct()[:CHOICES])
        return sorted(found)

    @property
    def people(self) -> list[tuple[str, str]]:
        """Members, by id and name, for whoever pressed Stop and for whom it may be assigned to."""
        rows = Membership.objects.filter(workspace=self.asked.workspace).select_related("user")
        return [
            (str(one.user_id), words.brief(one.user, 60)) for one in rows.order_by("user__name")[:CHOICES]
        ]


def taken_by(person: User | None, me: int) -> str:
    """taken by you · by Ben · by nobody."""
    if person is None:
        return "taken by nobody"
    return "taken by you" if person.pk == me else f"taken by {words.brief(person, 40)}"


def _deciders(found: list[Unknown]) -> dict[str, Resolution]:
    """The verdict in force of each that people decided: one query, none where nobody did."""
    ids = [one.id for one in found if one.ground == Ground.DECIDED]
    if not ids:
        return {}
    rows = Resolution.objects.filter(subject_id__in=ids, in_force_at__isnull=False, withdrawn_at__isnull=True)
    return {one.subject_id: one for one in rows.select_related("person", "second").order_by("number")}


def how_resolved(s: Subject, decided: Resolution | None) -> str:
    """Confirmed by provider webhook; Not applied, recorded by Bob; Accepted as unknown by Bob and Carol."""
    word = s.settled_word
    if decided is not None:
        people = [decided.person, *([decided.second] if decided.second else [])]
        named = words.listed([words.brief(one, 40) for one in people])
        return f"{word} by {named}" if s.state == "ACCEPTED_UNKNOWN" else f"{word}, recorded by {named}"
    ground = GROUND.get(s.u.ground, "")
    return f"{word} {ground}".strip()


def last_says(last: Unknown | None, now: datetime) -> str:
    """Last one resolved 27 Nov by look-up."""
    if last is None or last.settled_at is None:
        return "None was resolved yet."
    when = "today" if last.settled_at.date() == now.date() else last.settled_at.strftime("%-d %b")
    return f"Last one resolved {when} {GROUND.get(last.ground, '')}".rstrip() + "."
