"""Where things stand on the timeline's axis, and which words have room beside them.

Positions are percentages of a lane; words have a width in pixels that no lane changes. What fits into the
narrowest lane fits into every wider one, so nothing has to be measured in the browser.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

TICKS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 43_200, 86_400)
TICKS_WANTED = 5

# The narrowest lanes in px: of a panel of 64rem; one that still has words; one on a phone, with numbers only.
WIDER, WIDE, NARROW = 776, 640, 254
EDGE = {WIDER: 20, WIDE: 20, NARROW: 12}  # of the panel's padding: a word may stand in it
GAP = 14  # between a mark and its word
TAIL = 6  # between a word and what comes next
READABLE = 5  # fewer signs than that say nothing


@dataclass(frozen=True)
class Axis:
    """From start to end; `at` maps a moment to a percentage of the width."""

    start: datetime
    end: datetime

    def at(self, moment: datetime) -> float:
        share = (moment - self.start) / (self.end - self.start)
        return min(100.0, max(0.0, share * 100))


def percent(at: float) -> str:
    """A place or a length as the page writes it."""
    return f"{at:.2f}%"


@dataclass(frozen=True)
class Label:
    """Words at a place of a lane: `dx` px right of it (negative: left of it, `end` anchored)."""

    x: str
    dx: int
    anchor: str
    text: str


Span = tuple[float, float]


def beside(text: str, mine: Span, taken: Iterable[Span], lane: int = WIDE) -> tuple[Label, Span] | None:
    """The text right of what it tells of, else left of it, else shortened; and the place that it takes.

    `mine` and `taken` are percentages from, to. None where nothing readable has room.
    """
    begin, end = mine
    rest = list(taken)
    right = (
        min([lane + EDGE[lane], *(left * lane / 100 for left, _ in rest if left > end)]) - end * lane / 100
    )
    left = begin * lane / 100 - max([0.0, *(right * lane / 100 for _, right in rest if right < begin)])
    rooms = {"start": right - GAP - TAIL, "end": left - GAP - TAIL}
    side = next((one for one in rooms if width(text) <= rooms[one]), max(rooms, key=lambda one: rooms[one]))
    shown = shorten(text, rooms[side])
    if not shown:
        return None
    took = (GAP + width(shown)) * 100 / lane
    if side == "start":
        return Label(percent(end), GAP, side, shown), (end, end + took)
    return Label(percent(begin), -GAP, side, shown), (begin - took, begin)


def width(text: str) -> float:
    """At least as many px as the text takes at 12 px, whatever its script."""
    return sum(_sign(sign) for sign in text)


def _sign(sign: str) -> float:
    if unicodedata.combining(sign):
        return 0
    if not sign.isascii():
        return 13
    if sign in "MW@%mw":
        return 11.5
    if sign in "iljtfr .,:;'|!()[]-":
        return 5
    return 9 if sign.isupper() else 7.2


def shorten(text: str, room: float) -> str:
    """The text as far as it fits, with a sign that there was more; empty when too little would be left."""
    if width(text) <= room:
        return text
    kept = text
    while kept and width(kept) + width("…") > room:
        kept = kept[:-1]
    return f"{kept.rstrip()}…" if len(kept) >= READABLE else ""


@dataclass(frozen=True)
class Flag:
    """The sign on the stop line: a rectangle and its text; `css` says at which sizes it is shown."""

    css: str
    text: str
    left: int
    width: int
    text_x: int
    anchor: str


@dataclass(frozen=True)
class Caption:
    """Small words beside the flag, `dx` px from the stop line."""

    css: str
    text: str
    dx: int
    anchor: str


@dataclass(frozen=True)
class StopLine:
    """A stop on the axis, or a resume (`resumes`). `after` is the width of what lies right of it.

    `word` stands on its flag, `short` where lanes are narrow; `first`: no stop before it held the run.
    """

    at: float
    before: int | None
    version: int | None
    word: str = "Stop effective"
    short: str = "Stop"
    resumes: bool = False
    first: bool = True

    @property
    def x(self) -> str:
        return percent(self.at)

    @property
    def after(self) -> str:
        return percent(100 - self.at)

    @property
    def flag_right(self) -> bool:
        """Whether the flag flies to the right: there is no room on its left."""
        return self.at < 52

    @property
    def flags(self) -> list[Flag]:
        return [self.flag("wide", self.word, self.flag_right), self.flag("few", self.short, self.flag_right)]

    def flag(self, css: str, word: str, right: bool) -> Flag:
        text = f"{word} · v{self.version}"
        wide = int(width(text)) + 25
        if right:
            return Flag(css, text, -1, wide, 10, "start")
        return Flag(css, text, 1 - wide, wide, -10, "end")

    @property
    def captions(self) -> list[Caption]:
        """What stands on either side of the line, where it has room."""
        if self.resumes:
            return []
        flag = self.flags[0].width
        after = (flag if self.flag_right else 0) + 10
        found = [self._caption("only refusals, answers, late reports", after)]
        if not self.flag_right and self.first:
            found.append(self._caption(f"admitted under v{self.before}", -flag - 18))
        return [caption for caption in found if caption]

    def _caption(self, text: str, dx: int) -> Caption | None:
        for css, lane in (("wide", WIDE), ("wider", WIDER)):
            room = self.at * lane / 100 if dx < 0 else (100 - self.at) * lane / 100 + EDGE[lane]
            if abs(dx) + width(text) <= room:
                return Caption(css, text, dx, "end" if dx < 0 else "start")
        return None


@dataclass(frozen=True)
class Flagged:
    """A line with the flags and captions for which it has room."""

    line: StopLine
    flags: list[Flag]
    captions: list[Caption]


def flagged(lines: list[StopLine]) -> list[Flagged]:
    """The newest line has its flag for certain; an older one only where it covers nothing of the others."""
    if not lines:
        return []
    *older, newest = lines
    taken = [_covers(newest, newest.flags[0])]
    found = [Flagged(newest, newest.flags, [] if older else newest.captions)]
    for line in reversed(older):
        others = [one.at * WIDE / 100 for one in lines if one is not line]
        tries = [
            line.flag("wide", word, right) for word in (line.word, line.short) for right in (False, True)
        ]
        flag = next((flag for flag in tries if _is_free(_covers(line, flag), taken, others)), None)
        if flag is not None:
            taken.append(_covers(line, flag))
        found.append(Flagged(line, [flag] if flag else [], []))
    return found


def _covers(line: StopLine, flag: Flag) -> Span:
    """The place of a flag in px of the narrowest lane that has words."""
    left = line.at * WIDE / 100 + flag.left
    return left, left + flag.width


def _is_free(place: Span, taken: list[Span], lines: list[float]) -> bool:
    begin, end = place
    inside = -EDGE[WIDE] <= begin and end <= WIDE + EDGE[WIDE]
    apart = all(end + 2 <= left or right + 2 <= begin for left, right in taken)
    return inside and apart and not any(begin < line < end for line in lines)


def ticks(axis: Axis) -> Iterable[tuple[str, str, bool]]:
    """(x, time, narrow too): round times, none cut off by an edge."""
    length = (axis.end - axis.start).total_seconds()
    pace = next((s for s in TICKS_S if length / s <= TICKS_WANTED), None) or _days(length)
    first = (int(axis.start.timestamp()) // pace + 1) * pace
    written = -100.0
    for second in range(first, int(axis.end.timestamp()) + 1, pace):
        moment = datetime.fromtimestamp(second, UTC)
        at = axis.at(moment)
        narrow = at - written > 34 and 15 < at < 85
        written = at if narrow else written
        text = moment.strftime("%-d %b %H:%M" if pace >= 3600 else "%H:%M:%S")
        yield percent(at), text if 8 < at < 92 else "", narrow


def _days(length: float) -> int:
    """A run of months has a few ticks too."""
    return 86_400 * (int(length / 86_400 / TICKS_WANTED) + 1)
