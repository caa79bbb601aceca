"""Question 1: what stopped."""

from __future__ import annotations

from collections.abc import Iterator

from dashboard import words
from effects.models import Settlement
from runs.models import RunStatus

from . import deliveries
from .model import Claim
from .rows import CITED
from .sentences import names_of, refusals, unobserved
from .teller import ENDS, Teller, say


def what_stopped(t: Teller) -> Iterator[Claim]:
    yield from _of_the_stop(t)
    yield from _withheld(t)
    yield from _refused(t)
    yield from _tried_to_end(t)
    yield from _never_started(t)
    yield from deliveries.held_back(t)
    yield from _new_work(t)


def _of_the_stop(t: Teller) -> Iterator[Claim]:
    rows, stop = t.rows, t.rows.stop
    if stop is None:
        yield say(f"No stop was requested. {_how_it_ended(t)}", *rows.seqs(*ENDS))
    elif stop.finished_before:
        after = f"Stop #{stop.number} came after the run had ended, and had nothing left to refuse."
        yield say(f"{after} {_how_it_ended(t)}", rows.count("after_end"), *rows.seqs(*ENDS))
    else:
        since = f"Stop #{stop.number} took effect at {t.at(stop.gate_at)}:"
        yield say(f"{since} new work is refused from version {stop.version_after}.", rows.effective_line)
    if stop is not None and stop.timed_out_at:
        late = f"It timed out at {t.at(stop.timed_out_at)}: work in flight had not ended."
        late += " New work stays refused."
        yield say(late, *rows.seqs("stop.timed_out"))


def _how_it_ended(t: Teller) -> str:
    said = {
        RunStatus.COMPLETED: "The runtime reported the end of the run",
        RunStatus.FAILED: "The runtime reported a failure",
        RunStatus.ABANDONED: "The run was abandoned",
    }.get(t.run.status)
    if not said:
        return "The run has not ended."
    why = words.brief(t.run.summary, 200)
    return f"{said} at {t.at(t.run.ended_at)}{f', saying: “{why}”' if why else ''}."


def _withheld(t: Teller) -> Iterator[Claim]:
    number = t.rows.count("withheld")
    if number:
        steps = words.count(number, "step was", "steps were")
        first, last = t.rows.count("withheld_first"), t.rows.count("withheld_last")
        yield say(f"{steps} withheld before anything was sent.", first, last)


def _refused(t: Teller) -> Iterator[Claim]:
    rows = t.rows
    number = rows.count("refused")
    if not number:
        yield say(
            "No attempt was refused at a gate."
            if t.stop is None
            else "No attempt to begin new work was made after the stop."
        )
        return
    were = words.count(number, "attempt was", "attempts were")
    asked = rows.count("asked")
    repeats = f" They asked {asked} times in all." if asked > number > 1 else ""
    repeats = f" It was made {asked} times." if asked > number == 1 else repeats
    what = f"{were} refused{_by_the_stop(t)}: {refusals(rows.tally['refused'])}.{repeats}{_first_refusal(t)}"
    yield say(what, *[refusal.evidence_seq for refusal in rows.refusals_of_stop()[:CITED]])


def _by_the_stop(t: Teller) -> str:
    return " after the stop" if t.stop else ""


def _first_refusal(t: Teller) -> str:
    moments = [at for at in t.rows.tally["first"].values() if at]
    if not t.stop or not t.stop.gate_at or not moments:
        return ""
    seconds = (min(moments) - t.stop.gate_at).total_seconds()
    return f" The first came {words.span(max(0.0, seconds))} after the stop."


def _tried_to_end(t: Teller) -> Iterator[Claim]:
    """A completion that raced the stop and came second."""
    if t.rows.count("tried"):
        what = {"completion.refused": "an end of the run", "failure.refused": "a failure"}
        named = words.listed([what[kind] for kind in t.rows.tally["tried"]])
        yield say(f"The runtime reported {named} too late: it was refused.", t.rows.count("tried_first"))


def _never_started(t: Teller) -> Iterator[Claim]:
    effects = t.rows.settled_as(Settlement.NOT_STARTED)
    if effects:
        total = t.rows.count("effect", Settlement.NOT_STARTED)
        were = words.count(total, "declared effect was", "declared effects were")
        yield say(f"{were} never started: {names_of(effects, total)}.", *[e.line for e in effects[:CITED]])


def _new_work(t: Teller) -> Iterator[Claim]:
    if t.stop is None:
        return
    found = t.rows.count("leak")
    text = f"New work found after quiescing: {found} by our gates.{unobserved(t.run.ungateable)}"
    if not found:
        yield say(text, t.rows.effective_line)
        return
    opened = [line for line in t.rows.all_of("permit.opened") if line.seq > t.rows.effective_line]
    yield say(text, *[line.seq for line in opened[:CITED]], stress="This must not happen.")
