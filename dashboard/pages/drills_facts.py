"""What all pages say of drills: the last one in a sentence, and who asked for one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from django.urls import reverse

from dashboard import words
from dashboard.drilling import catalogue
from dashboard.models import DrillRun, DrillSchedule
from runs import access
from runs.models import Membership, User

NEVER = (
    "No drill has been run. You do not yet know whether Stop holds here. "
    "Run the first (2 min, no outside effects)."
)
NO_PROMISE = "This shows the gates held in this drill; it is no promise about the next stop."


@dataclass(frozen=True)
class LastDrill:
    """The drill that ended last. `word` is its result; `href` leads to it."""

    name: str
    title: str
    word: str
    at: datetime
    runtime: str
    href: str

    @property
    def says(self) -> str:
        """`Passed 29 Nov on …`, and for a pass what it does not promise."""
        return said(self.word, self.at, self.runtime)


def last_drill() -> LastDrill | None:
    """The drill that ended last, of the whole installation; None when none has (then say NEVER)."""
    row = DrillRun.objects.exclude(result="").order_by("-finished_at").first()
    if row is None or row.finished_at is None:
        return None
    word = words.DRILL[row.result].word
    href = reverse("drill", args=[row.name])
    return LastDrill(row.name, title_of(row.name), word, row.finished_at, row.runtime, href)


def said(word: str, at: datetime, runtime: str) -> str:
    """The result of a drill in words, and for a pass what it does not promise."""
    told = ended(word, at, runtime)
    return f"{told} {NO_PROMISE}" if word == words.DRILL["passed"].word else told


def ended(word: str, at: datetime, runtime: str) -> str:
    """`Passed 29 Nov on SQLite, one process.`"""
    return f"{word} {at.astimezone(UTC):%-d %b}" + (f" on {runtime}." if runtime else ".")


def title_of(name: str) -> str:
    """Its title; the name of one that this release has no more."""
    entry = catalogue.BY_NAME.get(name)
    return entry.title if entry else words.clean(name)


def names_for(reader: User, actors: Iterable[str]) -> dict[str, str]:
    """Actor to name, for people that the reader shares a workspace with; others are "an admin"."""
    ids = {int(actor[5:]) for actor in actors if actor.startswith("user:") and actor[5:].isdigit()}
    mine = Membership.objects.filter(user=reader).exclude(workspace__slug=access.DRILLS).values("workspace")
    known = User.objects.filter(pk__in=ids, memberships__workspace__in=mine).distinct()
    named = {f"user:{user.pk}": str(user) for user in known}
    return named | ({f"user:{reader.pk}": str(reader)} if reader.pk in ids else {})


def who(row: DrillRun | DrillSchedule, names: Mapping[str, str]) -> str:
    """Who asked for it."""
    if row.by.startswith("user:"):
        return words.clean(names.get(row.by, "an admin"))
    via = row.via if isinstance(row, DrillRun) else ""
    return {"schedule": "the schedule", "command": "the command"}.get(via, "the system")
