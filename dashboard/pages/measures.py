"""The seven measures of a workspace: the page, and the same figures and lists as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC
from functools import cached_property
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.text import slugify
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from dashboard import measure_words, measures, words
from dashboard.measure_rows import Sample
from dashboard.measure_words import TERMS, Term, length
from dashboard.measures import ENOUGH, SHOWN, Day, Measure
from dashboard.pages.measure_charts import Chart, chart_of
from dashboard.pages.shell import build_shell, signed_in, workspace_of
from runs.models import Workspace
from runs.store import database_time

DAYS = (7, 14, 30, 90)
STARTS_A_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


@dataclass(frozen=True)
class Asked:
    """What a person asked for; what can't be read is the default."""

    workspace: Workspace
    days: int
    drills: bool
    only: int = 0

    def query(self, **more: object) -> str:
        told = {"workspace": self.workspace.slug, "days": self.days, **({"drills": 1} if self.drills else {})}
        return urlencode({**told, **more})

    def read(self) -> list[Measure]:
        until = database_time()
        window = measures.last_days(self.days, until, workspace_id=self.workspace.pk, drills=self.drills)
        return measures.read(window, *([self.only] if self.only else []))


def asked_by(request: HttpRequest) -> Asked:
    days, only = request.GET.get("days", ""), request.GET.get("measure", "")
    return Asked(
        workspace_of(request),
        int(days) if days in map(str, DAYS) else measures.DAYS,
        request.GET.get("drills") == "1",
        int(only) if only in map(str, TERMS) else 0,
    )


@dataclass(frozen=True)
class Card:
    """One measure as a person reads it."""

    of: Measure
    asked: Asked

    @property
    def term(self) -> Term:
        return TERMS[self.of.number]

    @property
    def headline(self) -> list[tuple[str, str]]:
        return measure_words.headline(self.of)

    @property
    def beside(self) -> str:
        return measure_words.beside(self.of)

    @property
    def met(self) -> str:
        return measure_words.MET[measure_words.met(self.of)]

    @property
    def breach(self) -> bool:
        return measure_words.met(self.of) is False

    @cached_property
    def chart(self) -> Chart | None:
        return chart_of(self.of)

    @property
    def wide(self) -> bool:
        return self.of.number in (1, 6)

    @property
    def columns(self) -> list[str]:
        return [figure.name for figure in self.of.figures if figure.name != "oldest open"]

    @property
    def rows(self) -> list[tuple[Day, list[str]]]:
        """The table twin, the newest day first; a day without data has dashes."""
        return [(day, [_cell(day, name) for name in self.columns]) for day in reversed(self.of.days)]

    @property
    def list(self) -> list[tuple[Sample, str]]:
        return [(one, _said(one)) for one in self.of.samples[:SHOWN]]

    @property
    def left_out(self) -> int:
        return max(0, len(self.of.samples) - SHOWN)

    @property
    def csv(self) -> str:
        return f"{reverse('measures-csv')}?{self.asked.query(measure=self.of.number)}"


def _cell(day: Day, name: str) -> str:
    figure = next(one for one in day.figures if one.name == name)
    if not day.n and not figure.value:
        return "–"
    return length(figure.value) if figure.of is None else f"{int(figure.value or 0):,}"


SAID = {
    "acknowledged": "acknowledged",
    "waited": "waited for its run",
    "not kept": "arrival not kept",
    "stop": "took effect",
    "found": "opened behind a stop",
    "twice": "two objects or more",
    "once": "one object",
    "uncounted": "could not be counted",
    "checking": "being checked",
    "whole": "each effect has evidence",
    "bare": "an effect has no evidence",
    "without effects": "no effect",
    "accepted": "accepted as unknown",
}


def _said(one: Sample) -> str:
    """What a row of the list came to."""
    word = SAID.get(one.state, one.state.lower().replace("_", " "))
    return f"{word}, {length(one.seconds)}" if one.seconds is not None else word


@never_cache
@require_GET
@signed_in
def measures_page(request: HttpRequest) -> HttpResponse:
    """GET /measures?workspace=…&days=14&drills=1 : as of now; Refresh asks again."""
    asked = asked_by(request)
    asked = Asked(asked.workspace, asked.days, asked.drills)
    shell = build_shell(request, "measures", asked.workspace)
    cards = [Card(measure, asked) for measure in asked.read()]
    told = {"shell": shell, "now": cards[0].of.window.until, "asked": asked, "cards": cards}
    told |= {"since": cards[0].of.window.since, "choices": DAYS, "enough": ENOUGH}
    told |= {"csv": f"{reverse('measures-csv')}?{asked.query()}"}
    return render(request, "measures/page.html", told)


@never_cache
@require_GET
@signed_in
def measures_csv(request: HttpRequest) -> HttpResponse:
    """GET /measures.csv : all figures, in total and by day; with `measure=3` the list behind that one."""
    asked = asked_by(request)
    found = asked.read()
    rows = _listed(found[0]) if asked.only else _figures(found)
    name = f"allstop-{slugify(asked.workspace.slug)}-measure{f'-{asked.only}' if asked.only else 's'}.csv"
    answer = HttpResponse(_written(rows), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


def _figures(found: list[Measure]) -> Iterable[list[object]]:
    """One row a figure: `of` is empty for seconds, `value` where there is nothing to say it of."""
    yield ["as_of", "measure", "name", "day", "partial", "figure", "value", "of", "n"]
    for one in found:
        as_of, title = one.window.until.astimezone(UTC).isoformat(), TERMS[one.number].title
        for figure in one.figures:
            yield [as_of, one.number, title, "all", "", figure.name, figure.value, figure.of, one.n]
        for day in one.days:
            for figure in day.figures:
                value, of = (figure.value, figure.of) if day.n or figure.value else (None, None)
                part = "partial" if day.partial else ""
                yield [as_of, one.number, title, day.day, part, figure.name, value, of, day.n]


def _listed(one: Measure) -> Iterable[list[object]]:
    yield ["at", "what", "state", "seconds", "run", "line", "stop", "counts"]
    for row in one.samples:
        at, counts = row.at.astimezone(UTC).isoformat(), "yes" if row.counts else "no"
        yield [at, words.clean(row.what), row.state, row.seconds, row.run_id, row.line, row.stop, counts]


def _written(rows: Iterable[list[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([safe(cell) for cell in row] for row in rows)
    return text.getvalue()


def safe(cell: object) -> str:
    """Text that no spreadsheet takes for a formula: a quote mark goes before it."""
    text = "" if cell is None else str(cell)
    return f"'{text}" if text.startswith(STARTS_A_FORMULA) else text
