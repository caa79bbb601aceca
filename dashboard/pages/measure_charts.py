"""Trends of the seven measures as SVG: places in percent, told apart by line and fill, never by hue alone.

A day without data is a gap. A day that was not over is hatched.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from dashboard.measure_words import length
from dashboard.measures import Day, Measure

TOP, FLOOR = 12.0, 76.0  # percent of the height that the plot takes
WIDTH = 100.0  # percent of the width that all days take
# What is stacked in a day's bar, from the axis up: (figure, css class). The rest of n comes last.
PARTS: dict[int, tuple[tuple[str, str], ...]] = {
    2: (("found", "ch-b"),),
    3: (("in 1 h", "ch-a"),),
    4: (("twice", "ch-b"),),
    5: (("verified", "ch-a"), ("failed", "ch-c")),
    7: (("whole", "ch-a"),),
}
REST = {2: "ch-a", 3: "ch-b", 4: "ch-a", 5: "ch-b", 7: "ch-b"}
LEGEND = {
    1: "Whole line, full dot: p50. Dashed line, ring: p95.",
    2: "Filled: stops. Dashed outline: what was found.",
    3: "Filled: reconciled in 1 h. Dashed outline: not, or later.",
    4: "Filled: keys counted. Dashed outline: two objects or more.",
    5: "Filled: verified. Plain outline: failed. Dashed outline: unknown.",
    6: "Whole line, full dot: p50. Dashed line, ring: p95.",
    7: "Filled: with evidence for every effect. Dashed outline: without.",
}


@dataclass(frozen=True)
class Box:
    """A rectangle in percent."""

    css: str
    x: float
    y: float
    width: float
    height: float

    @property
    def end(self) -> float:
        return self.x + self.width


@dataclass(frozen=True)
class Dot:
    """A day of a line that stands alone between gaps."""

    css: str
    x: float
    y: float


@dataclass(frozen=True)
class Chart:
    """One trend. `lines`: (css class, points in a box of 100 × 100). `hatched`: days that were not over."""

    top: str
    first: str
    last: str
    legend: str
    says: str
    boxes: list[Box] = field(default_factory=list)
    lines: list[tuple[str, str]] = field(default_factory=list)
    dots: list[Dot] = field(default_factory=list)
    gaps: list[Box] = field(default_factory=list)
    hatched: list[Box] = field(default_factory=list)


def chart_of(measure: Measure) -> Chart | None:
    """None where no day has data: nothing is drawn of nothing."""
    days = measure.days
    if not any(day.n for day in days):
        return None
    drawn = _lines(days) if measure.number in (1, 6) else _bars(measure.number, days)
    slot = WIDTH / len(days)
    gaps = [
        Box("ch-gap", _x(place, slot) + slot * 0.2, FLOOR, slot * 0.6, 0)
        for place, day in enumerate(days)
        if not day.n
    ]
    without = sum(not day.n for day in days)
    return Chart(
        first=f"{days[0].day:%-d %b}",
        last=f"{days[-1].day:%-d %b}",
        legend=LEGEND[measure.number],
        says=f"By day, {len(days)} days, {without} without data. The table below has the figures.",
        gaps=gaps,
        **drawn,
    )


def _x(place: int, slot: float) -> float:
    return round(place * slot, 2)


def _bars(number: int, days: list[Day]) -> dict[str, Any]:
    most = max(max(day.n, *(int(one.value or 0) for one in day.figures)) for day in days)
    slot = WIDTH / len(days)
    boxes: list[Box] = []
    hatched: list[Box] = []
    for place, day in enumerate(days):
        y = FLOOR
        for css, share in _stack(number, day):
            height = round((FLOOR - TOP) * share / most, 2)
            y = round(y - height, 2)
            if share and not (day.partial and css == "ch-a"):  # the hatch shows on no full ground
                boxes.append(Box(css, _x(place, slot) + slot * 0.15, y, slot * 0.7, height))
        if day.partial and day.n:
            hatched.append(Box("ch-part", _x(place, slot) + slot * 0.15, y, slot * 0.7, FLOOR - y))
    return {"top": f"{most:,}", "boxes": boxes, "hatched": hatched}


def _stack(number: int, day: Day) -> list[tuple[str, int]]:
    counts = {one.name: int(one.value or 0) for one in day.figures}
    parts = [(css, counts[name]) for name, css in PARTS[number]]
    told = sum(share for _, share in parts)
    rest = day.n if number == 2 else day.n - told
    return [(REST[number], rest), *parts] if number in (2, 4) else [*parts, (REST[number], rest)]


def _lines(days: list[Day]) -> dict[str, Any]:
    values = {name: [_value(day, name) for day in days] for name in ("p50", "p95")}
    most = max((v for some in values.values() for v in some if v is not None), default=0.0) or 1.0
    slot = WIDTH / len(days)
    dots: list[Dot] = []
    lines: list[tuple[str, str]] = []
    for css, dot, name in (("ch-line2", "ch-1", "p95"), ("ch-line", "ch-0", "p50")):
        for stretch in _stretches(values[name]):
            points = [((place + 0.5) * slot, _y(value, most)) for place, value in stretch]
            if len(points) == 1:
                dots.append(Dot(dot, round(points[0][0], 2), round(points[0][1], 2)))
            else:
                lines.append((css, " ".join(f"{x:.2f},{y:.2f}" for x, y in points)))
    hatched = [
        Box("ch-part", _x(place, slot), TOP, slot, FLOOR - TOP)
        for place, day in enumerate(days)
        if day.partial and day.n
    ]
    return {"top": length(most), "lines": lines, "dots": dots, "hatched": hatched}


def _value(day: Day, name: str) -> float | None:
    return next(one.value for one in day.figures if one.name == name)


def _y(value: float, most: float) -> float:
    return FLOOR - (FLOOR - TOP) * value / most


def _stretches(values: list[float | None]) -> list[list[tuple[int, float]]]:
    """Days in a row that have a value: no line crosses a gap."""
    known = [(place, value) for place, value in enumerate(values) if value is not None]
    found = [known[:1]] if known else []
    for (before, _), (place, value) in pairwise(known):
        if place == before + 1:
            found[-1].append((place, value))
        else:
            found.append([(place, value)])
    return found
