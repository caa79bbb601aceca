"""The form of a stop: what it holds, how it comes back after a sign-in, the press that is read from it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q

from dashboard import words
from runs import access, stops
from runs.models import Mode, Press, Run, ScopeKind
from runs.presses import holds_nothing

DEADLINES = ((60, "60 seconds"), (300, "5 minutes"), (1800, "30 minutes"))
NOTE_MAX, KEY_MAX = 2000, 200
RUN, STEP = "run", "step"  # of a press on a run's page, what it is about; or "session:<id>" and the like
REVIEWS = (("1", "tomorrow"), ("7", "in 7 days"), ("30", "in 30 days"))
ENDS = (
    *(("", "When somebody releases it"), ("1", "By itself in 1 hour"), ("8", "By itself in 8 hours")),
    *(("24", "By itself in 24 hours"), ("168", "By itself in 7 days")),
)
WIDE_DECIDES = (
    ("pause", "The deadline of each run’s pause: leases are fenced then, and the run is paused."),
    ("cancel", "The deadline of each run’s stop: what has not ended by then shows Stop timed out."),
    ("abandon", words.DEADLINE["abandon"]),
)


@dataclass(frozen=True)
class StopForm:
    """What the form holds; `came_back`: it was sent before, and nothing was recorded then."""

    key: str
    mode: str = Mode.CANCEL
    reason: str = "other"
    note: str = ""
    deadline_s: int = stops.DEADLINE_S
    came_back: bool = False
    what: str = RUN
    step: str = ""
    review: str = "7"
    ends: str = ""
    observe: str = ""

    reasons = words.REASONS
    deadlines = DEADLINES
    decides = tuple(words.DEADLINE.items())
    wide_decides = WIDE_DECIDES
    reviews = REVIEWS
    endings = ENDS

    @classmethod
    def fresh(cls) -> StopForm:
        return cls(key=secrets.token_hex(16))

    @classmethod
    def returned(cls, sent: Mapping[str, str]) -> StopForm:
        """The same form after a sign-in, with the same key; a first visit gets a fresh one."""
        if not sent.get("key"):
            return cls.fresh()
        wish = wish_of(sent)
        more = {name: sent[name][:KEY_MAX].replace("\0", "") for name in WIDER if name in sent}
        return cls(wish.key, wish.mode, wish.reason, wish.note, wish.deadline_s, came_back=True, **more)

    @property
    def fields(self) -> dict[str, Any]:
        """What is sent: in a form, or in an address that brings the form back."""
        usual = {field.name: field.default for field in fields(self)}
        told = asdict(self).items()
        return {n: v for n, v in told if n != "came_back" and (n not in WIDER or v != usual[n])}

    def was_pressed(self, run: Run, actor: access.Actor) -> bool:
        """Whether this very form was recorded before: its answer had been lost."""
        about = Q(stop__run=run)
        if self.what not in (RUN, STEP):
            about = Q(stop__workspace=run.workspace_id) & ~Q(stop__scope__in=(ScopeKind.RUN, ScopeKind.STEP))
        return self.was_recorded(about, actor)

    def was_recorded(self, about: Q, actor: access.Actor) -> bool:
        """As `was_pressed`, of the stops that these are about."""
        mine = Press.objects.filter(about, actor=actor.id, key=self.key).select_related("stop")
        same = mine.filter(Q(mode=self.mode) | Q(stop__scope=ScopeKind.STEP))
        return self.came_back and not all(holds_nothing(press.stop) for press in same)

    def modes(self, run: Run) -> list[Choice]:
        """The modes that this form offers: those that would move the run on, and the one that was asked for.

        Nothing stronger than what was asked for is ever chosen beforehand.
        """
        return self.offer([mode for mode in words.MODE if mode in stops.STRONGER[run.status]])

    def offer(self, offered: list[str]) -> list[Choice]:
        """These modes as choices, and the one that was asked for."""
        asked = self.mode if self.came_back or not offered or self.mode in offered else offered[0]
        shown = [mode for mode in words.MODE if mode in offered or mode == asked]
        return [Choice(mode, mode.capitalize(), words.MODE[mode], mode == asked) for mode in shown]


@dataclass(frozen=True)
class Choice:
    """One radio of the form."""

    value: str
    word: str
    sentence: str
    chosen: bool


def wish_of(sent: Mapping[str, str]) -> stops.Wish:
    """A press, made harmless: what can't be read is left out and named, never refused.

    Without a mode it is a cancel; a mode that nobody knows is taken as the mildest.
    """
    ignored = []
    mode = sent.get("mode", Mode.CANCEL)
    if mode not in words.MODE:
        ignored, mode = ["mode"], Mode.PAUSE
    reason = sent.get("reason", "other")
    if reason not in dict(words.REASONS):
        ignored, reason = [*ignored, "reason"], "other"
    deadline = sent.get("deadline_s", str(stops.DEADLINE_S))
    if deadline not in {str(seconds) for seconds, _ in DEADLINES}:
        ignored, deadline = [*ignored, "deadline_s"], str(stops.DEADLINE_S)
    note, key = sent.get("note", ""), sent.get("key", "")
    if len(note) > NOTE_MAX:
        ignored = [*ignored, f"note after {NOTE_MAX} characters"]
    return stops.Wish(
        mode=mode,
        reason=reason,
        note=note[:NOTE_MAX].replace("\0", ""),
        key=key[:KEY_MAX].replace("\0", ""),
        deadline_s=int(deadline),
        ignored=ignored,
    )


WIDER = ("what", "step", "review", "ends", "observe")


def standing_wish_of(sent: Mapping[str, str], now: datetime) -> stops.Wish:
    """As `wish_of`, for a scope that stands: when people look again, when it ends, whether it observes."""
    wish = wish_of(sent)
    left = list(wish.ignored)

    def moment(name: str, unit: timedelta, choices: tuple[tuple[str, str], ...]) -> datetime | None:
        asked = sent.get(name, "")
        if asked and asked not in dict(choices):
            left.append(name)
        return now + int(asked) * unit if asked and asked in dict(choices) else None

    review = moment("review", timedelta(days=1), REVIEWS)
    ends = moment("ends", timedelta(hours=1), ENDS)
    return replace(wish, review_at=review, ends_at=ends, observe=sent.get("observe") == "on", ignored=left)
