"""The tables behind the answers: manifest, boundary log, in flight, workers, late reports, lines."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from dashboard import words
from effects.models import Ground, Settlement
from runs.models import InFlight, OperationClass, Permit, PermitState, Refusal
from runs.receipts import Busy

from .lines import CONTRADICTED, LATE, LATE_ROWS, is_late
from .model import (
    BoundaryLog,
    FlightRow,
    InFlightList,
    LateReports,
    LateRow,
    LineRow,
    Manifest,
    ManifestRow,
    NewWork,
    RefusalRow,
    WorkerRow,
    Workers,
)
from .rows import IN_FLIGHT, WORKERS, Rows
from .sentences import effect_state, is_planned, quoted, short, unobserved
from .teller import Teller

SILENT = timedelta(seconds=30)
GROUND: dict[str, str] = {
    Ground.REPORTED: "Reported by its worker",
    Ground.LOOKED_UP: "Looked up",
    Ground.WEBHOOK: "Provider’s webhook",
    Ground.INSPECTED: "Inspected",
    Ground.DECIDED: "Decided by a person",
}
AGAINST: dict[str, str] = {
    Ground.LOOKED_UP: "A look-up",
    Ground.WEBHOOK: "The provider’s webhook",
    Ground.INSPECTED: "An inspection",
    Ground.DECIDED: "A second person",
}


def manifest(t: Teller) -> Manifest:
    rows = [_effect(t, effect) for effect in t.rows.effects]
    total = t.rows.count("effect")
    says = "" if total else "No effect was declared."
    if total > len(rows):
        says = (
            f"{len(rows)} of {total} effects, those in doubt first. The JSON of an issued version lists all."
        )
    return Manifest(total, says, {str(k): int(n) for k, n in t.rows.tally["effect"].items()}, rows)


def _effect(t: Teller, effect: Any) -> ManifestRow:
    return ManifestRow(
        id=effect.pk,
        key=effect.key,
        name=words.clean(effect.title),
        kind=words.clean(effect.kind_name),
        op_class=effect.op_class,
        target=words.clean(effect.target),
        amount=words.clean(effect.amount),
        settlement=effect.settlement,
        ground=ground_says(t, effect),
        provider_ref=words.clean(effect.provider_ref),
        attempt=effect.attempt,
        plan="declared" if is_planned(effect) else "none",
        late=effect.late,
        contradicted=effect.contradicted,
        seen_twice=effect.seen_twice,
        job_state=effect.job_state,
        next_check_at=effect.next_check_at,
        line=effect.line,
        job_at=effect.job_at,
        check_until=effect.check_until,
        asks_about=effect.asks_about_id or "",
    )


def ground_says(t: Teller, effect: Any) -> str:
    """What the settlement stands on, in a few words."""
    match effect.settlement:
        case Settlement.DECLARED:
            return "Intent recorded, nothing sent"
        case Settlement.DISPATCHED:
            return f"Permit given {t.at(effect.dispatched_at)}, no report"
        case Settlement.NOT_STARTED:
            return f"Never sent; the run ended {t.at(effect.settled_at)}"
        case Settlement.UNKNOWN | Settlement.ACCEPTED_UNKNOWN:
            looked = f"; {words.count(effect.checks, 'look-up')}" if effect.checks else ""
            why = short(effect.why_unknown) or "No answer"
            return f"{why[0].upper()}{why[1:]}{looked}"
    told = f": {short(effect.provider_ref)}" if effect.provider_ref else ""
    return f"{GROUND.get(effect.ground, 'Recorded')}{told}, {t.at(effect.settled_at)}"


def log(t: Teller) -> BoundaryLog:
    rows = [_refusal(t, refusal) for refusal in t.rows.refusals]
    total = t.rows.count("refusal")
    says = "" if total else "No gate refused anything."
    if total > len(rows):
        says = f"{len(rows)} of {total} refusals, those of the stop first. The evidence holds all."
    return BoundaryLog(total, says, t.rows.count("asked"), rows)


def _refusal(t: Teller, refusal: Refusal) -> RefusalRow:
    what = refusal.step_name or refusal.effect_key or refusal.step_key
    return RefusalRow(
        at=refusal.first_at,
        last_at=refusal.last_at,
        boundary=refusal.boundary,
        reason=refusal.reason,
        what=words.clean(what),
        effect_key=refusal.effect_key,
        worker=words.clean(refusal.worker),
        carried_version=refusal.carried_version,
        current_version=refusal.current_version,
        count=refusal.count,
        after_stop=t.rows.after_stop(refusal),
        line=refusal.evidence_seq,
    )


def in_flight(t: Teller) -> InFlightList:
    rows = [_flight(t, entry) for entry in t.rows.in_flight]
    total = t.rows.count("in_flight")
    if t.stop is None:
        says = "No stop took effect, so nothing was listed."
    else:
        says = "" if total else "Nothing was in flight when the stop took effect."
    if total > IN_FLIGHT:
        says = f"The first {IN_FLIGHT} of {total}; the line of the fenced list holds all."
    return InFlightList(total, says, rows)


def _flight(t: Teller, entry: Any) -> FlightRow:
    permit = entry.permit
    lines = {entry.line, *t.rows.seqs("stop.fenced")} if entry.line else {*_of_permit(t.rows, permit.pk)}
    return FlightRow(
        permit=permit.pk,
        what=words.clean(entry.effect_title or permit.step.name),
        effect=entry.effect_id or "",
        effect_key=permit.effect_key,
        boundary=permit.boundary,
        op_class=permit.op_class,
        worker=words.clean(permit.worker),
        opened_at=permit.opened_at,
        state_then=entry.state_then,
        state_now=permit.state,
        settlement=entry.settlement or "",
        became=became(t, entry),
        lines=sorted(lines),
    )


def _of_permit(rows: Rows, permit_id: str) -> list[int]:
    mine = [line.seq for line in rows.lines.values() if line.permit_id == permit_id]
    return [*mine, *rows.seqs("stop.fenced")]


def became(t: Teller, entry: InFlight) -> str:
    """What became of one permit, and of its effect."""
    permit = entry.permit
    said = {
        PermitState.OPEN: "Still open: it may still complete.",
        PermitState.NOT_SENT: f"Its holder attests that nothing was sent, {t.at(permit.ended_at)}.",
        PermitState.LOST: f"Its lease ran out {t.at(permit.ended_at)}; nobody says what happened.",
        PermitState.REPORTED: f"Its holder reported {_said_of(permit)}, {t.at(permit.ended_at)}.",
    }[PermitState(permit.state)]
    settlement: str = getattr(entry, "settlement", "") or ""
    return f"{said} The effect is now: {effect_state(settlement, t.run.status)}." if settlement else said


def _said_of(permit: Permit) -> str:
    cut_off = permit.op_class == OperationClass.MODEL_TURN and permit.outcome == "partial"
    return "that the turn was cut off" if cut_off else _outcome(permit.outcome)


def _outcome(outcome: str) -> str:
    return {
        "applied": "that it happened",
        "partial": "that part of it happened",
        "not_applied": "that it did not happen",
        "unknown": "that it can’t say",
    }.get(outcome, "its call over")


def workers(t: Teller) -> Workers:
    stop = t.stop
    rows = [_worker(t, *worker) for worker in t.rows.workers[:WORKERS]]
    total = len(t.rows.workers)
    says = "" if total else "No worker named itself."
    if stop is not None and total:
        held = sum(1 for _, version, _ in t.rows.workers if _holds(t, version))
        says = f"{held} of {words.count(total, 'worker')} confirmed the stop’s version. None was waited for."
    return Workers(total, says, rows)


def still_in(t: Teller, at: Busy) -> str:
    """A worker that answers, and is still in its step past the deadline."""
    since, ago = t.at(at.since), t.rows.as_of - (at.heard_at or at.since)
    told = {"worker": short(at.worker), "step": quoted(at.step), "since": since}
    return words.STILL_IN.format(**told, ago=words.span(int(ago.total_seconds())))


def _holds(t: Teller, version: int | None) -> bool:
    return bool(t.stop and (version or 0) >= (t.stop.version_after or 0))


def _worker(t: Teller, name: str, version: int | None, heard_at: Any) -> WorkerRow:
    says = f"Said that it holds version {version}." if version else "Never said which version it holds."
    if t.run.ended_at is None and t.rows.as_of - heard_at > SILENT:
        says += f" Last heard {t.at(heard_at)}. {words.SILENCE}"
    return WorkerRow(words.clean(name), version, _holds(t, version), heard_at, says)


def late(t: Teller) -> LateReports:
    end, read = t.rows.final_line, t.rows.all_of(*LATE, *CONTRADICTED)
    rows = [_late(t, line) for line in read if is_late(line, end)][:LATE_ROWS]
    total = t.rows.count("late")
    says = "" if total else "No report came late."
    if total > LATE_ROWS:
        says = f"The first {LATE_ROWS} of {total}; the evidence holds all."
    return LateReports(total, says, rows)


def _late(t: Teller, line: Any) -> LateRow:
    after_end = 0 < t.rows.final_line < line.seq
    after_stop = 0 < t.rows.effective_line < line.seq
    when = "after the run had ended" if after_end else "after its lease had run out"
    when = "after the stop" if after_stop else when
    kept = "Kept as evidence; status unchanged." if after_end else "Kept as evidence."
    says = f"{_late_says(line)} {t.at(line.at)}, {when}. {kept}"
    outcome = line.outcome or "contradicted"
    return LateRow(line.at, words.clean(line.worker), line.effect_key, outcome, says, line.seq)


def _late_says(line: Any) -> str:
    if line.kind in CONTRADICTED:
        return f"{AGAINST[line.ground]} spoke against what was settled of {quoted(line.effect_key)}"
    nothing = line.kind == "permit.not_sent_late"
    return f"Its worker reported {'that nothing was sent' if nothing else _outcome(line.outcome)}"


def new_work(t: Teller) -> NewWork:
    found = t.rows.count("leak")
    tools = [words.clean(tool) for tool in t.run.ungateable]
    opened = [line.seq for line in t.rows.leaks]
    if not t.rows.holds:
        return NewWork(
            0, f"No stop took effect, so there is no “after”.{unobserved(t.run.ungateable)}", [], tools
        )
    return NewWork(found, f"{found} found by our gates.{unobserved(t.run.ungateable)}", opened, tools)


def cited(t: Teller, seqs: set[int]) -> list[LineRow]:
    """The lines that the claims cite."""
    lines = (t.rows.lines[seq] for seq in sorted(seqs) if seq in t.rows.lines)
    return [
        LineRow(line.seq, line.at, line.kind, line.actor, line.effect_key, line.payload_digest)
        for line in lines
    ]
