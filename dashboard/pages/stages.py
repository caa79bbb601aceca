"""The five commitments of a stop, computed from its moments, its run and its effects."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from dashboard import words
from dashboard.pages.facts import Facts
from runs.models import Mode, RunStatus, StopRequest, Worker

DONE, NOW, LATER = "done", "now", "later"


@dataclass(frozen=True)
class Stage:
    """One commitment: `bold` then `rest` is its value; `marks` a strip, told by `marks_say`."""

    word: str
    state: str
    icon: str
    bold: str = ""
    rest: str = ""
    note: str = ""
    href: str = "#log"
    marks: list[str] = field(default_factory=list)
    marks_say: str = ""


def stages(facts: Facts) -> list[Stage]:
    """Acknowledge · quiesce · reconcile · compensate · close; empty without a stop in force."""
    stop = facts.stop
    if stop is None or stop.finished_before or stop.gate_at is None:
        return []
    return [
        _acknowledge(facts, stop),
        _quiesce(facts, stop),
        _reconcile(facts),
        _compensate(facts),
        _close(facts, stop),
    ]


def _acknowledge(facts: Facts, stop: StopRequest) -> Stage:
    assert stop.gate_at is not None
    note = f"{words.count(presses(stop), 'press', 'presses')} kept"
    if milder := facts.chain[:-1]:
        note = f"{words.WAS[milder[0].mode]} since {clock(milder[0].gate_at or milder[0].recorded_at)}"
    if stop.recorded_at < stop.gate_at:  # it waited for its run
        note = f"waited for its run since {clock(stop.recorded_at)}"
    return Stage("Acknowledge", DONE, "st-settled", clock(stop.gate_at, ms=True), "", note)


def presses(stop: StopRequest) -> int:
    """How often this stop was pressed."""
    return int(getattr(stop, "presses_n", 1))


def _quiesce(facts: Facts, stop: StopRequest) -> Stage:
    confirmed, total = facts.workers_holding, facts.workers_total
    strip = ["known"] * confirmed + ["unknown"] * (total - confirmed)
    say = f"{confirmed} confirmed, {total - confirmed} not"
    if stop.quiet_at:
        late = ", after the deadline" if stop.timed_out_at else ""
        note = f"{confirmed} of {words.count(total, 'worker')} confirmed{late}"
        return Stage("Quiesce", DONE, "st-settled", clock(stop.quiet_at), "", note, "#workers", strip, say)
    value = (str(confirmed), f"of {words.count(total, 'worker')} confirmed")
    if facts.run.status == RunStatus.ABANDONED:
        return Stage("Quiesce", LATER, "st-abandoned", *value, "not waited for", "#workers", strip, say)
    icon = "st-timeout" if stop.timed_out_at else "st-quiet"
    note = "; ".join(_why_not_quiet(facts, stop))
    return Stage("Quiesce", NOW, icon, *value, note, "#workers", strip, say)


def _why_not_quiet(facts: Facts, stop: StopRequest) -> Iterable[str]:
    held = facts.step_counts["DISPATCHED"] + facts.step_counts["CLAIMED"]
    if held:
        yield f"{words.count(held, 'step')} still held"
    if stop.timed_out_at:
        yield f"timed out {clock(stop.timed_out_at)}"
    elif stop.deadline_at:
        yield f"deadline {clock(stop.deadline_at)}"


def holds(worker: Worker, stop: StopRequest) -> bool:
    """Whether this worker said that it holds the version of the stop."""
    return (worker.confirmed_version or 0) >= (stop.version_after or 0)


def _reconcile(facts: Facts) -> Stage:
    known, open_ones = facts.known + facts.messages_known, facts.open_questions + facts.messages_open
    sent = facts.dispatched + facts.messages_known + facts.messages_open + facts.messages["ACCEPTED_UNKNOWN"]
    if not sent:
        return Stage("Reconcile", DONE, "st-settled", "", "Nothing was sent", "", "#effects")
    value = (str(known), f"of {sent} known")
    shown = [mark for mark in facts.marks + facts.message_marks if mark != "none"]
    say = f"{known} known, {sent - known} not"
    if facts.run.status == RunStatus.ABANDONED and open_ones:
        note = f"{open_ones} unknown, nobody is asked any more"
        return Stage("Reconcile", LATER, "st-abandoned", *value, note, "#effects", shown, say)
    state = NOW if open_ones else DONE
    icon = "st-quiet" if open_ones else "st-settled"
    return Stage("Reconcile", state, icon, *value, _next_check(facts), "#effects", shown, say)


def _next_check(facts: Facts) -> str:
    if not facts.open_questions + facts.messages_open:
        return ""
    checks = [effect.next_check_at for effect in facts.effects if effect.next_check_at]
    flying = facts.settlements["DISPATCHED"]
    parts = [f"{facts.unknown} unknown"] if facts.unknown else []
    parts += [f"{flying} in flight"] if flying else []
    parts += [f"{words.count(facts.messages_open, 'message')} open"] if facts.messages_open else []
    parts += [f"next look-up {clock(min(checks))}"] if checks else []
    return ", ".join(parts)


def _compensate(facts: Facts) -> Stage:
    """From the rows of compensations: now while something of them is open."""
    found = facts.repairs
    if not found.total():
        return Stage("Compensate", LATER, "st-comp", "", "Nothing asked", _plans(facts), "#effects")
    waiting, sent = found["PROPOSED"] + found["APPROVED"], found["DISPATCHED"] + found["UNKNOWN"]
    known, doubt = found["VERIFIED"] + found["FAILED"], sent + found["ACCEPTED_UNKNOWN"]
    strip = ["known"] * found["VERIFIED"] + ["denied"] * found["FAILED"] + ["unknown"] * doubt
    say = f"{found['VERIFIED']} verified, {found['FAILED']} failed, {doubt} unknown"
    is_open = bool(waiting or sent or facts.unanswered)
    parts = [f"{found['FAILED']} failed"] if found["FAILED"] else []
    parts += [f"{found['UNKNOWN']} unknown"] if found["UNKNOWN"] else []
    parts += [f"{found['DISPATCHED']} under way"] if found["DISPATCHED"] else []
    note, state = ", ".join(parts), NOW if is_open else DONE
    if waiting:
        bold, rest = str(waiting), "in review" if not found["APPROVED"] else "in review or approved"
    elif known or doubt:
        bold, rest = str(found["VERIFIED"]), f"of {known + doubt} verified"
    else:
        bold, rest = "", "None carried out"
    icon = "st-comp" if is_open else "st-settled"
    return Stage("Compensate", state, icon, bold, rest, note, "#compensations", strip, say)


def _plans(facts: Facts) -> str:
    planned = [effect for effect in facts.effects if b'"kind"' in bytes(effect.plan)]
    return f"{words.count(len(planned), 'effect')} declared with a plan" if planned else "no plan declared"


def _close(facts: Facts, stop: StopRequest) -> Stage:
    if stop.closed_at:
        return Stage("Close", DONE, "st-settled", clock(stop.closed_at), "", stop.closed_because)
    if facts.run.status == RunStatus.UNKNOWN:
        return Stage("Close", LATER, "st-before", "", "Not yet", "open until each unknown is settled")
    if stop.mode == Mode.PAUSE:
        return Stage("Close", LATER, "st-paused", "", "Not yet", "by a resume, or a stronger stop")
    return Stage("Close", LATER, "st-before", "", "Not yet", "needs every effect settled")


def clock(moment: datetime, *, ms: bool = False) -> str:
    """15:02:13, or 15:02:13.412; UTC."""
    text = moment.astimezone(UTC).strftime("%H:%M:%S.%f")
    return text[:12] if ms else text[:8]
