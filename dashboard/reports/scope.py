"""The report of a stop of many runs: of a session, a workspace, a policy, or a list that was frozen.

- `build(stop, cursor="", result="") -> ScopeReport`: as of now, with one page of its runs; about thirty
  queries, whatever their number.
- `read(stop, cursor="", result="") -> dict`: the same as JSON values.

It sums up; nothing of it is frozen. Each run's own report is, and is linked. Whether the caller may read the
stop is the caller's question.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any

from dashboard import scope_words, words
from effects.models import Settlement
from runs.models import Result, RunStatus, ScopeKind, StopRequest

from . import measured
from .frozen import moment
from .scope_answers import sections, who
from .scope_model import SCHEMA, Ending, ScopeReport
from .scope_parts import page_of
from .scope_rows import EVER_SENT, KNOWN, ScopeRows

METHOD = [
    "Counted by the database at the moment named above; it moves with the runs. Nothing of it is frozen.",
    "Each run’s own report names the evidence lines, and is frozen by version. This page adds them up.",
    "“Closed” means that nothing of this stop is open in a run: it ended with every effect settled, or "
    "accepted as unknown, it was resumed, or it had finished before.",
    "What was refused counts what came to our gates. Tools that run at a provider do not pass them.",
]
MOMENTS = ("recorded_at", "gate_at", "fenced_at", "review_at", "ends_at", "released_at", "closed_at")
PLAIN = ("id", "number", "scope", "mode", "requested_mode", "reason", "note", "actor", "via", "selection")


def build(stop: StopRequest, cursor: str = "", result: str = "") -> ScopeReport:
    """The report of this stop as of now, with the page of its runs behind `cursor`."""
    rows = ScopeRows(stop)
    parts, more = page_of(stop, cursor, result)
    left = open_points(rows)
    final = not left and stop.closed_at is not None
    return ScopeReport(
        schema=SCHEMA,
        as_of=rows.as_of,
        stop=stop_facts(rows),
        subject=scope_words.subject(stop),
        title=title_of(rows),
        of_effects=rows.of_effects,
        final=final,
        stamp="Final" if final else f"Not final: {words.listed(left) or 'the stop is not closed'}",
        runs=rows.total,
        closed=rows.closed,
        results=dict(rows.results),
        endings=endings_of(rows),
        effects=dict(rows.effects),
        known=sum(rows.effects[state] for state in KNOWN),
        of=sum(rows.effects[state] for state in EVER_SENT),
        in_flight=rows.in_flight.total(),
        refused=rows.refused.count,
        last_refused_at=rows.refused.last_at,
        sections=sections(rows),
        not_permitted=[run.pk for run in rows.not_permitted],
        measures=measured.of_stop(stop.pk, rows.as_of),
        rows=parts,
        next_cursor=more,
        method=METHOD,
    )


def title_of(rows: ScopeRows) -> str:
    """How far it is, as a sentence begins: the h1."""
    stop = rows.stop
    if stop.observes:
        return f"It observes, and would have refused {words.count(rows.would_refuse, 'call')}."
    if rows.of_effects:
        return f"{words.count(rows.total, 'run')} listed; the runs go on without these effects."
    if not rows.total:
        return "No run was there to stop." if stop.fenced_at else "No run had its turn yet."
    return f"{rows.closed} of {words.count(rows.total, 'run')} closed."


def open_points(rows: ScopeRows) -> list[str]:
    """What is not over, in words."""
    pending, left = rows.unreached, rows.total - rows.closed - rows.results[Result.PENDING]
    said = [f"{words.count(left, 'run is', 'runs are')} open"] if left else []
    said += [f"{words.count(pending, 'run waits', 'runs wait')} for a turn"] if pending else []
    unknown = rows.effects[Settlement.UNKNOWN]
    said += [f"{words.count(unknown, 'effect is', 'effects are')} unknown"] if unknown else []
    return said + (["it stands"] if rows.stands else [])


def endings_of(rows: ScopeRows) -> list[Ending]:
    """Outcomes by kind, the most frequent first; runs that have not ended by their status."""
    told: Counter[tuple[str, str]] = Counter()
    terms = {}
    for (status, ended_as), number in rows.endings.items():
        term = words.run_chip(status, ended_as)
        moving = status in (RunStatus.ACTIVE, RunStatus.PAUSING, RunStatus.PAUSED)
        name = term.word if moving or ended_as == "not ended" else ended_as
        told[name, term.word] += number
        terms[name, term.word] = term
    ordered = sorted(told.items(), key=lambda one: (-one[1], one[0]))
    return [Ending(name, number, terms[name, word]) for (name, word), number in ordered]


def stop_facts(rows: ScopeRows) -> dict[str, Any]:
    """The stop itself: its moments, and who asked for it."""
    stop, release = rows.stop, rows.release
    told: dict[str, Any] = {name: getattr(stop, name) for name in (*PLAIN, *MOMENTS)}
    told |= {"by": who(rows, stop.actor), "pressed": rows.pressed, "observes": bool(stop.observes)}
    told |= {"superseded_by": stop.superseded_by.number if stop.superseded_by else None}
    told |= {"selected": selected(stop), "wide": stop.wide_id, "stands": rows.stands}
    told |= {"release_asked_by": who(rows, release.asked_by) if release and not release.granted_at else ""}
    return told


def selected(stop: StopRequest) -> str:
    """How the runs of a bulk stop were chosen: by the filter as it was shown, or one by one."""
    if stop.scope != ScopeKind.BULK:
        return ""
    chosen = stop.selection if isinstance(stop.selection, dict) else {}
    said = [f"{words.brief(name)} “{words.brief(value)}”" for name, value in chosen.items() if value]
    return f"All that matched then: {', '.join(said)}." if said else "One by one."


def read(stop: StopRequest, cursor: str = "", result: str = "") -> dict[str, Any]:
    """The report as JSON values: `runs` holds one page of them, and `next_cursor` leads to the next."""
    told = plain(build(stop, cursor, result))
    told["runs"] = {"total": told.pop("runs"), "closed": told.pop("closed"), "items": told.pop("rows")}
    told["runs"]["next_cursor"] = told.pop("next_cursor")
    assert isinstance(told, dict)
    return told


def plain(value: Any) -> Any:
    """JSON values only; what serves the page alone is left away."""
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        kept = [one.name for one in fields(value) if not one.metadata.get("beside")]
        return {name: plain(getattr(value, name)) for name in kept}
    return value
