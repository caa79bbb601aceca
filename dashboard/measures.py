"""The seven measures, read from the rows: page, CSV, Prometheus and reports share these figures.

`read(window)` gives all seven; each costs a fixed number of queries, whatever is in the rows, and reads at
most MOST of them, the newest first (`capped`). No figure is a share of nothing: `enough` says whether it may
be shown as one, and `words` in dashboard/measure_words.py what is said instead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from math import ceil

from . import measure_rows
from .measure_rows import MOST, Sample, Window

ENOUGH = 5  # fewer than these make no percentile and no share
DAYS = 14  # the window, unless another is asked for
LIMITS = {"in 5 min": 300.0, "in 1 h": 3_600.0, "in 24 h": 86_400.0}
SHOWN = 10  # of the list behind a measure, on the page


@dataclass(frozen=True)
class Figure:
    """One number. `of` None: seconds (`value` None: nothing to say it of); else `value` of `of` things."""

    name: str
    value: float | None
    of: int | None = None


@dataclass(frozen=True)
class Day:
    """One day in UTC. `n` 0 is a gap, not a zero; `partial`: not all of it is in the window."""

    day: date
    n: int
    figures: tuple[Figure, ...]
    partial: bool


@dataclass(frozen=True)
class Measure:
    """One of the seven, as of the end of its window. `samples`: the list behind it, newest first.

    `n`: of how many it is a measure. `beside`: counts that are told and belong to no share.
    """

    number: int
    window: Window
    n: int
    figures: tuple[Figure, ...]
    days: list[Day] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    beside: dict[str, int] = field(default_factory=dict)
    capped: bool = False

    @property
    def enough(self) -> bool:
        return self.n >= ENOUGH

    def figure(self, name: str) -> Figure:
        """By its name; KeyError when the measure has none of that name."""
        return {one.name: one for one in self.figures}[name]

    def value(self, name: str) -> float | None:
        return self.figure(name).value

    def count(self, name: str) -> int:
        """The `value` of `of` things."""
        return int(self.figure(name).value or 0)


Summary = Callable[[Sequence[Sample], datetime], tuple[int, tuple[Figure, ...]]]


def percentile(seconds: Iterable[float], share: float) -> float | None:
    """By nearest rank, so that it is one of the values; None of none. The same on both databases."""
    ordered = sorted(seconds)
    return ordered[max(1, ceil(share * len(ordered))) - 1] if ordered else None


def _spread(samples: Sequence[Sample], _: datetime) -> tuple[int, tuple[Figure, ...]]:
    """p50 and p95 of what has a length."""
    spans = [one.seconds for one in samples if one.seconds is not None]
    return len(spans), (Figure("p50", percentile(spans, 0.5)), Figure("p95", percentile(spans, 0.95)))


def _shares(*states: str) -> Summary:
    """How many are in each of these states, of all that count."""

    def summary(samples: Sequence[Sample], _: datetime) -> tuple[int, tuple[Figure, ...]]:
        mine = [one.state for one in samples if one.counts]
        return len(mine), tuple(Figure(state, mine.count(state), len(mine)) for state in states)

    return summary


def _new_work(samples: Sequence[Sample], _: datetime) -> tuple[int, tuple[Figure, ...]]:
    """What was found is no part of the stops that it is told beside."""
    stops = sum(one.counts for one in samples)
    found = sum(one.state == "found" for one in samples)
    return stops, (Figure("found", found, stops),)


def _reconciled(samples: Sequence[Sample], _: datetime) -> tuple[int, tuple[Figure, ...]]:
    spans = [one.seconds for one in samples]
    known = {name: sum(s is not None and s <= limit for s in spans) for name, limit in LIMITS.items()}
    return len(spans), tuple(Figure(name, a, len(spans)) for name, a in known.items())


def _unknown(samples: Sequence[Sample], until: datetime) -> tuple[int, tuple[Figure, ...]]:
    closed, spread = _spread([one for one in samples if one.state == "closed"], until)
    ages = [one.seconds or 0.0 for one in samples if one.state == "open"]
    return closed, (*spread, Figure("oldest open", max(ages, default=None)))


@dataclass(frozen=True)
class Recipe:
    """How one measure is made: who reads its samples, and what is made of them."""

    read: Callable[[Window], list[Sample]]
    summary: Summary
    beside: Callable[[Window, Sequence[Sample]], dict[str, int]] = lambda window, samples: {}


def _states(*states: str) -> Callable[[Window, Sequence[Sample]], dict[str, int]]:
    return lambda _, samples: {state: sum(one.state == state for one in samples) for state in states}


def _still_inside(window: Window, samples: Sequence[Sample]) -> dict[str, int]:
    """What is not settled, and whose time is not up yet: it counts as not settled all the same."""
    ages = [(window.until - one.at).total_seconds() for one in samples if one.seconds is None]
    return {name: sum(age < limit for age in ages) for name, limit in LIMITS.items()}


RECIPES: dict[int, Recipe] = {
    1: Recipe(measure_rows.acknowledged, _spread, _states("waited", "not kept")),
    2: Recipe(measure_rows.new_work, _new_work),
    3: Recipe(measure_rows.reconciled, _reconciled, _still_inside),
    4: Recipe(measure_rows.duplicates, _shares("twice"), _states("uncounted")),
    5: Recipe(measure_rows.compensations, _shares("verified", "failed", "unknown"), _states("checking")),
    6: Recipe(measure_rows.unknown, _unknown, _states("open", "accepted")),
    7: Recipe(measure_rows.reports, _shares("whole"), _states("without effects")),
}


def read(window: Window, *numbers: int, days: bool = True) -> list[Measure]:
    """These measures of a window, all seven unless named: at most 12 queries. `days`: with the trend."""
    return [_measure(number, window, days) for number in numbers or RECIPES]


def _measure(number: int, window: Window, days: bool) -> Measure:
    recipe = RECIPES[number]
    samples = recipe.read(window)
    n, figures = recipe.summary(samples, window.until)
    return Measure(
        number,
        window,
        n,
        figures,
        _by_day(window, samples, recipe.summary) if days else [],
        samples,
        recipe.beside(window, samples),
        capped=len(samples) >= MOST,
    )


def _by_day(window: Window, samples: Sequence[Sample], summary: Summary) -> list[Day]:
    """Each day of the window, the oldest first; what is open now belongs to none."""
    found: dict[date, list[Sample]] = defaultdict(list)
    for one in samples:
        if one.state != "open":
            found[one.at.astimezone(UTC).date()].append(one)
    return [
        Day(day, *summary(found[day], window.until), partial=_is_partial(window, day))
        for day in _days(window)
    ]


def _days(window: Window) -> list[date]:
    if window.since is None:
        return []
    first, last = window.since.astimezone(UTC).date(), window.until.astimezone(UTC).date()
    return [first + timedelta(days=place) for place in range((last - first).days + 1)]


def _is_partial(window: Window, day: date) -> bool:
    begins = datetime(day.year, day.month, day.day, tzinfo=UTC)
    began = window.since is None or window.since <= begins
    return not began or window.until < begins + timedelta(days=1)


def last_days(days: int, until: datetime, *, workspace_id: str = "", drills: bool = False) -> Window:
    """The window of so many whole days in UTC that ends now, today among them."""
    today = until.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    since = today - timedelta(days=days - 1)
    return Window(until=until, since=since, workspace_id=workspace_id, drills=drills)
