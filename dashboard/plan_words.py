"""The words of planned stops: where each stands, and how a clock on a wall somewhere was read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from dashboard.words import Term, moment_utc
from runs.schedules import SKIPPED, TWICE, Moment

STATE = {
    value: Term(value, word, sentence, icon, icon)
    for value, word, icon, sentence in (
        ("planned", "Planned", "st-waiting", "It is pressed when its moment has come."),
        ("due", "Due", "st-stopping", "Its moment has come. It is pressed within seconds."),
        (
            "overdue",
            "Overdue",
            "st-unknown",
            "Its moment is over and nobody has pressed it: no worker runs. Stop by hand if it can’t wait.",
        ),
        ("pressed", "Pressed", "st-done", "It was pressed at its moment."),
        ("withdrawn", "Withdrawn", "st-none", "It will not be pressed."),
    )
}
# What its press will meet, or met.
UNREGISTERED = "No run has this key yet. The stop will wait for it, for seven days at most."
ENDED = "This run has ended: {word}. The press will find no work to refuse."
JOINS = "The press joins that stop, or replaces it if its mode is stronger."
STOPPING = f"This run is stopped already: {{word}}. {JOINS}"
IDLE = "No run of it is at work now. From the press on every new one is refused."
SHUT = f"It is stopped already. {JOINS}"
OF_EFFECTS = "It withholds those effects and ends no run: it is recorded as a pause."
MET = {
    "joined": "A stop was there already; the press was added to it.",
    "finished": "The run had ended before. No work was left to refuse.",
    "waiting": "The run was not registered. The stop waits for it, for seven days at most.",
}
NEVER_CAME = "The run was not registered. The stop waited for it, and is closed."

KEPT = "The stop is planned for {at}. Nothing is stopped before that."
KEPT_BEFORE = "This form was saved before: the stop is planned for {at}. There is one."
WITHDRAWN = "The planned stop is withdrawn. It will not be pressed."
OVER = "Nothing was changed: this stop was pressed or withdrawn before."
NO_RIGHT = "You may read this workspace. An operator of it plans stops, and withdraws them."
OWN_RUNS = "You may plan stops of runs that you own, and of nothing else here."


def local_words(local: str) -> str:
    """ "2026-03-29T02:30:00" as "29 Mar 2026, 02:30"; the seconds only where there are some."""
    return f"{_day(told := datetime.fromisoformat(local))}, {_clock(told)}" if local else ""


def reading_words(when: Moment) -> str:
    """How a time that does not exist, or exists twice, is read; empty for every other."""
    if when.reading not in (SKIPPED, TWICE):
        return ""
    said, there = datetime.fromisoformat(when.local), ZoneInfo(when.zone)
    on_that_day = f"on {_day(said)} in {when.zone}"
    if when.reading == TWICE:
        later = said.replace(tzinfo=there, fold=1).astimezone(UTC)
        both = f"at {_clock(when.at)} UTC, and again at {_clock(later)} UTC, when the clocks were put back"
        return f"{_clock(said)} exists twice {on_that_day}: {both}. The first of the two is taken."
    last, after = (_shown(at, there) for at in (when.at - timedelta(seconds=1), when.at))
    before = last + timedelta(seconds=1)
    days = (f"{_day(before)}, ", f"{_day(after)}, ") if before.date() != after.date() else ("", "")
    jump = f"the clocks go from {days[0]}{_clock(before)} straight to {days[1]}{_clock(after)}"
    return f"{_clock(said)} does not exist {on_that_day}: {jump}. That very moment is taken."


def ahead_words(at: datetime, now: datetime) -> str:
    """Why this moment can't be planned for."""
    if at <= now:
        return f"{moment_utc(at)}, is over; it is {moment_utc(now)}. To stop now, press Stop."
    return f"{moment_utc(at)}, is more than a year ahead."


def _shown(at: datetime, there: ZoneInfo) -> datetime:
    return at.astimezone(there).replace(tzinfo=None)


def _day(at: datetime) -> str:
    return at.strftime("%-d %b %Y")


def _clock(at: datetime) -> str:
    return at.strftime("%H:%M:%S" if at.second else "%H:%M")
