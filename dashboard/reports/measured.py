"""The seven measures of one stop, as its report tells them: the same figures as page, CSV and /metrics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from dashboard import measure_words, measures
from dashboard.measure_rows import Window, effects_with_evidence
from dashboard.measure_words import TERMS, length
from dashboard.measures import Figure, Measure

TOLD = 5  # lengths that are named one by one, before there are enough for a percentile
NOTHING = {
    1: "No stop took effect.",
    2: "No stop took effect.",
    3: "Nothing was in flight.",
    4: "No key was to be counted at a provider.",
    5: "No compensation was sent.",
    6: "Nothing was unknown.",
    7: "No effect was declared.",
}
NO_VERSION = "No report with an effect was issued."


@dataclass(frozen=True)
class FigureRow:
    """One figure: `value` of `of` things; `of` null: seconds, and `value` null where there are none."""

    name: str
    value: float | None
    of: int | None


@dataclass(frozen=True)
class MeasureRow:
    """One of the seven, as of the version. `n`: of how many it is; `beside`: what is in no share."""

    number: int
    title: str
    says: str
    n: int
    figures: list[FigureRow]
    beside: dict[str, int]


def of_run(run_id: str, as_of: datetime) -> list[MeasureRow]:
    """The seven of one run and its stops: 14 queries. Number 7 is of its effects, since a version that is
    being written can't count itself."""
    found = measures.read(Window(as_of, run_id=run_id), 1, 2, 3, 4, 5, 6, days=False)
    return [*map(_row, found), _evidence(run_id)]


def of_stop(stop_id: str, as_of: datetime) -> list[MeasureRow]:
    """The seven of one stop of many runs: what it did, and how its runs stand."""
    return [_row(one) for one in measures.read(Window(as_of, stop_id=stop_id), days=False)]


def _row(one: Measure) -> MeasureRow:
    figures = [_figure(figure) for figure in one.figures]
    return MeasureRow(one.number, TERMS[one.number].title, says(one), one.n, figures, one.beside)


def _figure(one: Figure) -> FigureRow:
    return FigureRow(one.name, round(one.value, 3) if one.value is not None else None, one.of)


def _evidence(run_id: str) -> MeasureRow:
    having, of = effects_with_evidence(run_id)
    said = f"{having:,} of {of:,} effects have a line of their settlement." if of else NOTHING[7]
    title = "Evidence for every effect"
    return MeasureRow(7, title, said, of, [FigureRow("effects", having, of)], {})


def says(one: Measure) -> str:
    """Its figures in a sentence. Of too few no percentile and no share is told, but what they are."""
    if not one.samples:
        return NO_VERSION if one.number == 7 else NOTHING[one.number]
    return " ".join([*_lengths(one), measure_words.beside(one)])


def _lengths(one: Measure) -> Iterable[str]:
    """The times of 1 and 6, which their counts do not tell."""
    if one.number not in (1, 6):
        return
    if one.enough:
        yield f"p50 {length(one.value('p50'))}, p95 {length(one.value('p95'))}."
    elif spans := [row for row in one.samples if row.counts and row.seconds is not None][:TOLD]:
        told = (f"#{row.stop}: {length(row.seconds)}" if row.stop else length(row.seconds) for row in spans)
        yield f"{', '.join(told)}."
    oldest = one.value("oldest open") if one.number == 6 else None
    if oldest is not None:
        yield f"Oldest open: {length(oldest)}."
