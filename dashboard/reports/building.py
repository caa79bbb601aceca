"""build(): the report of a run as it stands now."""

from __future__ import annotations

from typing import Any

from dashboard import words
from dashboard.repair_rows import needs
from dashboard.repair_rows import repairs as repairs_of
from dashboard.repair_words import STILL
from effects.close import ACCEPTED_UNKNOWN, AWAITING_VERIFICATION, COMPENSATION_PENDING, outcome
from effects.models import Settlement
from runs.evidence import canonical, digest
from runs.models import FINAL, RunStatus, StopRequest

from . import measured, repairs, tables, turns
from .answers import sections as answered
from .frozen import moment
from .model import (
    SCHEMA,
    PressFacts,
    Report,
    RunFacts,
    SealFacts,
    Section,
    StopFacts,
    VersionRow,
)
from .rows import DOUBTFUL, Rows
from .sentences import name_of, short
from .tables import SILENT, still_in
from .teller import Teller

KNOWN = (Settlement.CONFIRMED, Settlement.PARTIAL, Settlement.NOT_APPLIED)
EVER_SENT = (*KNOWN, *DOUBTFUL, Settlement.ACCEPTED_UNKNOWN)
TIMES = {1: "once", 2: "twice"}


def build(run_id: str, most: int | None = None) -> Report:
    """The draft of a run's report from its rows: eight queries, one more where a
    model was asked, and 14 for its measures. `most` bounds manifest and log.

    Raises NotFound. Whether the caller may read the run is the caller's question.
    """
    rows = Rows(run_id, most)
    t = Teller(rows)
    ended_as = outcome_of(rows)
    sections = answered(t)
    return Report(
        schema=SCHEMA,
        draft=True,
        version=None,
        issued_at=None,
        as_of=rows.as_of,
        upto_seq=rows.upto_seq,
        seal=SealFacts(rows.run.sealed_seq, rows.run.sealed_head) if rows.run.sealed_seq else None,
        run=_run(rows),
        status=rows.run.status,
        outcome=ended_as,
        word=word_of(rows, ended_as),
        sentence=sentence_of(t, ended_as),
        final=False,
        stamp="Draft, not issued",
        known=rows.count("effect", *KNOWN),
        of=rows.count("effect", *EVER_SENT),
        stop=next(iter(_stops(rows)), None),
        earlier_stops=_stops(rows)[1:],
        sections=sections,
        manifest=tables.manifest(t),
        log=tables.log(t),
        new_work=tables.new_work(t),
        in_flight=tables.in_flight(t),
        workers=tables.workers(t),
        late=tables.late(t),
        evidence=tables.cited(t, _lines(sections)),
        method=method(t),
        matters=matters(rows, ended_as),
        turns=turns.table(t),
        repairs=repairs.table(t),
        deliveries={str(state): int(number) for state, number in rows.tally["delivery"].items()},
        measures=measured.of_run(run_id, rows.as_of),
        names=rows.names,
        versions=[_version(*version) for version in rows.versions],
    )


def outcome_of(rows: Rows) -> str:
    """By the same pure function that closes the run."""
    present = [state for state, number in rows.tally["effect"].items() if number]
    messages = [state for state, number in rows.tally["delivery"].items() if number]
    sent = bool(rows.count("sent"))
    mending = repairs_of(rows.tally["repair"], rows.count("unanswered"))
    return outcome(rows.run.status, present, mending, deliveries=messages, consequential=sent)


def is_final(status: str, ended_as: str, doubtful: int) -> bool:
    """Nothing is open any more: the run ended, or two people accepted what stays unknown."""
    open_ones = doubtful or ended_as in (AWAITING_VERIFICATION, COMPENSATION_PENDING)
    return not open_ones and (status in FINAL or ended_as == ACCEPTED_UNKNOWN)


def stamp(report: Report) -> str:
    """ "Final", or "Not final: 2 effects unknown"."""
    counts = report.manifest.counts
    if report.final:
        return "Final"
    unknown, flying = counts.get(Settlement.UNKNOWN, 0), counts.get(Settlement.DISPATCHED, 0)
    parts = [f"{words.count(unknown, 'effect')} unknown"] if unknown else []
    parts += [f"{words.count(flying, 'effect')} in flight"] if flying else []
    open_repairs = sum(report.repairs.counts.get(state, 0) for state in STILL)
    parts += [f"{words.count(open_repairs, 'compensation')} open"] if open_repairs else []
    parts += ["the stop timed out"] if report.status == RunStatus.CANCELLING_TIMEOUT else []
    return f"Not final: {words.listed(parts)}" if parts else "Not final"


def _term(rows: Rows, ended_as: str) -> words.Term:
    quiet = bool(rows.in_force and rows.in_force.quiet_at)
    return words.run_chip(rows.run.status, ended_as, quiet=quiet, held_back=rows.held_back)


def word_of(rows: Rows, ended_as: str) -> str:
    return _term(rows, ended_as).word


def sentence_of(t: Teller, ended_as: str) -> str:
    """The lexicon's sentence with this run's facts."""
    rows, stop = t.rows, t.rows.stop
    counted = rows.count
    return _term(rows, ended_as).say(
        at=t.at(stop.recorded_at) if stop else "",
        version=stop.version_after if stop else "",
        open=words.count(counted("effect", *DOUBTFUL), "effect"),
        late=_late(t),
        effects=_doubtful(rows),
        effects_are=words.count(counted("effect", Settlement.UNKNOWN), "effect is", "effects are"),
        who=words.clean(rows.names.get(stop.actor, stop.actor)) if stop else "a stop above it",
        need=words.listed(needs(rows.tally["repair"])) or "a decision about what failed",
        done=words.count(counted("effect", Settlement.CONFIRMED, Settlement.PARTIAL), "effect"),
        not_done=counted("effect", Settlement.NOT_APPLIED, Settlement.NOT_STARTED),
    )


def _late(t: Teller) -> str:
    """Past the deadline: who is still at it and answers, and who did not confirm the stop's version."""
    stop = t.rows.stop
    if stop is None or t.run.status != RunStatus.CANCELLING_TIMEOUT:
        return ""
    busy = [at for at in t.rows.busy if at.heard_at and t.rows.as_of - at.heard_at <= SILENT]
    living = [still_in(t, at) for at in busy[:3]]
    names = {at.worker for at in busy}
    version = stop.version_after or 0
    silent = [name for name, held, _ in t.rows.workers if (held or 0) < version and name not in names]
    more = [f"{len(silent) - 3} more"] if len(silent) > 3 else []
    behind = words.listed([*map(short, silent[:3]), *more])
    return words.late(living, len(busy) - len(living), behind, t.at(stop.deadline_at))


def _doubtful(rows: Rows) -> str:
    """One effect by name, more by number."""
    doubtful = (*DOUBTFUL, Settlement.ACCEPTED_UNKNOWN)
    total = rows.count("effect", *doubtful)
    one = [e for e in rows.effects if e.settlement in doubtful] if total == 1 else []
    named = name_of(one[0]) if one else words.count(total, "effect")
    return words.doubtful(named, total, rows.count("delivery", *map(str, doubtful)))


def _run(rows: Rows) -> RunFacts:
    run = rows.run
    return RunFacts(
        id=run.pk,
        key=run.key,
        name=words.clean(run.name),
        workspace=words.clean(run.workspace.name),
        session=words.clean(run.session.key) if run.session else "",
        agent=words.clean(run.agent),
        runtime=words.clean(run.runtime),
        ungateable=[words.clean(tool) for tool in run.ungateable],
        drill=run.drill,
        admitted_at=run.admitted_at,
        ended_at=run.ended_at,
        summary=words.clean(run.summary),
    )


def _stops(rows: Rows) -> list[StopFacts]:
    newest = rows.stop
    ordered = [stop for stop in rows.stops if newest and stop.pk == newest.pk]
    return [_stop(rows, stop) for stop in ordered + [stop for stop in rows.stops if stop not in ordered]]


SAME = (
    *("id", "number", "actor", "via", "scope", "mode", "requested_mode", "reason", "note"),
    *("version_before", "version_after", "finished_before", "recorded_at", "gate_at", "fenced_at"),
    *("deadline_at", "quiet_at", "timed_out_at", "closed_at", "closed_because"),
)


def _stop(rows: Rows, stop: StopRequest) -> StopFacts:
    mine = [press for press in rows.presses if press.stop.pk == stop.pk]
    newest = rows.stop is not None and stop.pk == rows.stop.pk
    pressed = rows.count("press") if newest else len(mine)
    joined = rows.count("press", "joined") if newest else sum(p.answer == "joined" for p in mine)
    return StopFacts(
        **{name: getattr(stop, name) for name in SAME},
        asked_at=stop.reported_at,
        pressed=pressed,
        joined=joined,
        pressed_says=pressed_says(pressed, joined),
        presses=[PressFacts(p.at, p.actor, p.via, p.answer, p.note) for p in mine],
        replaces=words.listed([f"stop #{one.number} ({one.mode})" for one in _milder(rows, stop)]),
    )


def _milder(rows: Rows, stop: StopRequest) -> list[StopRequest]:
    """The stops that this one superseded."""
    return [one for one in rows.stops if one.superseded_by_id == stop.pk]


def pressed_says(pressed: int, joined: int) -> str:
    """ "pressed twice, joined once"."""
    text = f"pressed {_times(pressed)}"
    return f"{text}, joined {_times(joined)}" if joined else text


def _times(number: int) -> str:
    return TIMES.get(number, f"{number} times")


def _version(version: int, issued_at: Any, told: str) -> VersionRow:
    final, _, ended_as = told.partition(":")
    return VersionRow(version, issued_at, ended_as, final == "final")


def _lines(sections: list[Section]) -> set[int]:
    return {seq for section in sections for claim in section.claims for seq in claim.lines}


def method(t: Teller) -> list[str]:
    """How the report was made, and what it can't know."""
    said = [
        "Times are the server’s, in UTC; what a worker’s own clock said is kept beside its report.",
        "“After the stop” is computed from versions and line numbers, not from clocks.",
        "A look-up that failed is not a look-up that found nothing, and nothing found is not yet proof.",
        "“Confirmed” names its ground; the weakest is the worker’s own report.",
        "A gate refuses new work. It ends no process, calls back no request, and sees only what comes to it.",
        "Evidence lines are chained by hash: the chain shows a changed line, not one that was never written.",
        "An issued version never changes. Evidence that comes later is told by the next one.",
    ]
    if t.rows.missing:
        said.insert(0, t.rows.missing)
    if t.run.drill:
        said.insert(0, "This run was a drill: what went wrong in it was made to go wrong.")
    return said


def matters(rows: Rows, ended_as: str) -> str:
    """The digest of what makes a new version worth issuing; no clock, no refusal, no press is in it."""
    effects = [
        (e.key, e.settlement, e.ground, e.contradicted, e.next_check_at is not None) for e in rows.effects
    ]
    told = {
        "status": rows.run.status,
        "outcome": ended_as,
        "effects": effects,
        "late": rows.count("late"),
        **({"deliveries": rows.tally["delivery"]} if rows.tally["delivery"] else {}),
        "stops": [_moments(stop) for stop in rows.stops],
        **({"steps": [_moments(stop) for stop in rows.step_stops]} if rows.step_stops else {}),
        **({"missing": rows.missing} if rows.missing else {}),
        **({"repairs": [_repair(rows, one) for one in rows.repairs.rows]} if rows.repairs.rows else {}),
        **({"reviews": [(r.effect_key, r.closed_as, r.given) for r in rows.reviews]} if rows.reviews else {}),
    }
    return digest(canonical(told))


def _repair(rows: Rows, row: Any) -> list[Any]:
    given = sorted(rows.repairs.approved_by.get(row.pk, []))
    checking = row.next_check_at is not None
    return [row.key, row.state, row.ground, row.permit_state, checking, row.title, row.amount, given]


def _moments(stop: StopRequest) -> list[Any]:
    moments = (
        stop.gate_at,
        stop.fenced_at,
        stop.quiet_at,
        stop.timed_out_at,
        stop.closed_at,
        stop.released_at,
    )
    return [stop.number, stop.mode, *(at and moment(at) for at in moments)]
