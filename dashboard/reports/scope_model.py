"""The shapes of a report that sums up many runs: a scope stop's, a bulk stop's."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dashboard.words import Term

from .measured import MeasureRow

SCHEMA = "allstop.scope-report/1"


@dataclass(frozen=True)
class ScopeClaim:
    """One sentence of an answer. Read `text`, then `stress` (bold); `href` leads to where it is seen."""

    text: str
    stress: str = ""
    href: str = ""
    link: str = ""


@dataclass(frozen=True)
class ScopeSection:
    """One of the five questions. Never without a claim."""

    number: int
    key: str
    title: str
    claims: list[ScopeClaim]


@dataclass(frozen=True)
class PartRow:
    """One run of the stop: what the stop came to there, and how the run stands now.

    `known` of `sent` effects; `closed`: nothing of the stop is open in it.
    """

    id: str
    key: str
    name: str
    result: str
    result_term: Term = field(metadata={"beside": True})
    status: str
    outcome: str
    term: Term = field(metadata={"beside": True})
    known: int
    sent: int
    unknown: int
    stop: int | None
    closed: bool
    report: str


@dataclass(frozen=True)
class Ending:
    """So many runs with this outcome (the status while a run has not ended)."""

    outcome: str
    number: int
    term: Term = field(metadata={"beside": True})


@dataclass(frozen=True)
class ScopeReport:
    """The five answers about all runs of one stop, as of one moment. Nothing of it is frozen: the reports
    of its runs are. `results`: its runs by what the stop came to; `closed` of `runs`: nothing of it is open
    there."""

    schema: str
    as_of: datetime
    stop: dict[str, Any]
    subject: str
    title: str
    of_effects: bool
    final: bool
    stamp: str
    runs: int
    closed: int
    results: dict[str, int]
    endings: list[Ending]
    effects: dict[str, int]
    known: int
    of: int
    in_flight: int
    refused: int
    last_refused_at: datetime | None
    sections: list[ScopeSection]
    not_permitted: list[str]
    measures: list[MeasureRow]
    rows: list[PartRow]
    next_cursor: str | None
    method: list[str]
