"""Question 1: what stopped."""

from __future__ import annotations

from collections.abc import Iterator

from dashboard import words
from effects.models import DeliveryState, Settlement
from runs.models import FINAL, Mode, RunStatus, StepStatus, StopRequest
from runs.stops import RESUMED

from . import decisions, deliveries
from .model import Claim
from .rows import CITED
from .sentences import names_of, quoted, refusals, unobserved
from .teller import ENDS, Teller, say

MEANS: dict[str, str] = {
    Mode.PAUSE: "new work is held from version {version}.",
    Mode.CANCEL: "new work is refused from version {version}.",
    Mode.ABANDON: "new work is refused from version {version}, and nothing is waited for any more.",
}
LATE: dict[str, str] = {
    Mode.PAUSE: "what was still in flight counts as unknown, and the run was paused.",
    Mode.CANCEL: "work in flight had not ended. New work stays refused.",
}
WAITING = (StepStatus.PENDING, StepStatus.RETRY_WAIT, StepStatus.WAITING_APPROVAL)


def what_stopped(t: Teller) -> Iterator[Claim]:
    yield from _of_the_stops(t)
    yield from _from_above(t)
    yield from _of_steps(t)
    yield from _held(t)
    yield from _withheld(t)
    yield from _cleanup(t)
    yield from _children(t)
    yield from _refused(t)
    yield from _tried_to_end(t)
    yield from _never_started(t)
    yield from deliveries.held_back(t)
    yield from decisions.closed(t)
    yield from _new_work(t)


def _of_the_stops(t: Teller) -> Iterator[Claim]:
    """Each stop that took effect, in its order, with what came of it; then those after the end."""
    rows = t.rows
    if not rows.stops:
        none = "The run as a whole was not stopped." if rows.step_stops else "No stop was requested."
        yield say(f"{none} {_how_it_ended(t)}", *rows.seqs(*ENDS))
    for hold in rows.holds:
        for stop in hold:
            yield from _effective(t, stop)
        yield from _then(t, hold)
    for stop in [stop for stop in rows.stops if stop.finished_before]:
        kept = t.rows.count("delivery", DeliveryState.WITHHELD)
        met = "withheld the messages that were still queued" if kept else "had nothing left to refuse"
        after = f"Stop #{stop.number} came after the run had ended, and {met}."
        yield say(f"{after} {_how_it_ended(t)}", rows.count("after_end"), *rows.seqs(*ENDS))


def _from_above(t: Teller) -> Iterator[Claim]:
    """What holds the run without a stop of its own: a restore, or the gate of its workspace."""
    restored = t.rows.seqs("run.restored")[-1:]
    if restored and t.run.status == RunStatus.PAUSED and not t.rows.in_force:
        version = t.run.cancel_version
        yield say(f"A restore holds the run: new work is refused from version {version}.", *restored)
    elif t.rows.held_back:
        since = t.at(t.run.workspace.gate_at)
        yield say(f"The gate of its workspace was shut at {since}. Since then every gate refuses this run.")


def _of_steps(t: Teller) -> Iterator[Claim]:
    """Stops of single steps, while the run went on."""
    for stop in t.rows.step_stops:
        step, lines = (
            stop.step,
            [line.seq for line in t.rows.all_of("step.stopped") if line.stop_id == stop.pk],
        )
        assert step is not None
        named = f"Stop #{stop.number} was of one step, {quoted(step.name)}"
        if stop.finished_before:
            text = f"{named}, which had ended before: no retry of it may begin. The run went on."
        else:
            text = f"{named}: since {t.at(stop.gate_at)} nothing more of it may be sent. The run went on."
        yield say(f"{text}{_came_to(stop, StepStatus(step.status))}", *lines)


def _came_to(stop: StopRequest, status: StepStatus) -> str:
    if stop.finished_before:
        return ""
    if status == StepStatus.WITHHELD:
        return " It was withheld before anything was sent."
    if status in (StepStatus.CLAIMED, StepStatus.DISPATCHED):
        return " What was in flight of it has not been reported yet."
    if status == StepStatus.UNKNOWN:
        return " How it ended is not known."
    return f" It ended as {words.STEP[status].word.lower()}."


def _effective(t: Teller, stop: StopRequest) -> Iterator[Claim]:
    named = f"Stop #{stop.number}" if stop.mode == Mode.CANCEL else f"Stop #{stop.number} ({stop.mode})"
    since = f"{named} took effect at {t.at(stop.gate_at)}:"
    yield say(f"{since} {MEANS[stop.mode].format(version=stop.version_after)}", t.rows.line_of(stop))
    mine = [
        line for line in t.rows.all_of("stop.timed_out", "stop.deadline_forced") if line.stop_id == stop.pk
    ]
    forced = [line for line in mine if line.kind == "stop.deadline_forced"]
    if forced:
        yield say(f"A person let its deadline pass at {t.at(forced[0].at)}.", forced[0].seq)
    if stop.timed_out_at:
        late = f"It timed out at {t.at(stop.timed_out_at)}: {LATE[stop.mode]}"
        yield say(late, *[line.seq for line in mine if line.kind == "stop.timed_out"])


def _then(t: Teller, hold: list[StopRequest]) -> Iterator[Claim]:
    """ "The run was paused, then cancelled", and how a pause ended."""
    first, last = hold[0], hold[-1]
    if len(hold) > 1:
        ended = t.run.status in FINAL
        after = [words.WAS[stop.mode] if ended else f"asked to {stop.mode}" for stop in hold[1:]]
        text = f"The run was {words.WAS[first.mode]}, then {words.listed(after)}."
        yield say(f"{text} The stronger stop replaced the milder one.", *t.rows.seqs("stop.superseded"))
    if last.closed_because == RESUMED:
        mine = [line for line in t.rows.all_of("run.resumed") if line.stop_id == last.pk]
        text = f"It was resumed by a decision at {t.at(last.closed_at)}: new work was admitted again"
        yield say(f"{text} from version {(last.version_after or 0) + 1}.", *[line.seq for line in mine])


def _held(t: Teller) -> Iterator[Claim]:
    number = t.rows.count("held")
    if number:
        claims = words.count(number, "claim was", "claims were")
        first = t.rows.count("held_first")
        yield say(
            f"{claims} given back by a pause before anything was sent; the steps kept their place.", first
        )
    if t.run.status == RunStatus.PAUSED:
        waiting = t.rows.count("step", *WAITING)
        if waiting:
            yield say(
                f"{words.count(waiting, 'step waits', 'steps wait')} for a resume.",
                *t.rows.seqs("run.paused"),
            )


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


def _cleanup(t: Teller) -> Iterator[Claim]:
    """What was tidied up while the run drained, under a guard of its own."""
    number = t.rows.count("cleanup")
    if not number:
        return
    named = [f"{quoted(step.name)} ({words.STEP[step.status].word.lower()})" for step in t.rows.cleanup]
    ran = words.count(number, "cleanup action was", "cleanup actions were")
    own = "its" if number == 1 else "their"
    text = f"{ran} permitted while the run drained, under a guard of {own} own: {words.listed(named)}."
    yield say(text, *[step.line for step in t.rows.cleanup])


def _children(t: Teller) -> Iterator[Claim]:
    """Whom the stop was passed on to, and whom it does not reach."""
    number = t.rows.count("child")
    if t.rows.in_force is None or not number:
        return
    running = t.rows.count("child", RunStatus.ACTIVE)
    still = f"{running} of them may still start work" if running else "none of them may start new work"
    runs = words.count(number, "registered child run")
    told = t.rows.seqs("stop.has_children", "stop.passed_on")
    yield say(f"The stop was passed on to {runs}; {still}. A resume of this run resumes none of them.", *told)
    yield say("Runs that were started without naming this one as their parent are not covered.", *told)


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
    held_at = t.rows.chain[0].gate_at if t.rows.chain else None
    if held_at is None or not moments:
        return ""
    seconds = (min(moments) - held_at).total_seconds()
    if seconds < 0.05:  # finer than the span tells
        return " The first came less than 0.1 s after the stop."
    return f" The first came {words.span(seconds)} after the stop."


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
    if not t.rows.holds:
        return
    found = t.rows.count("leak")
    text = f"New work found after quiescing: {found} by our gates.{unobserved(t.run.ungateable)}"
    if not found:
        yield say(text, *(t.rows.line_of(hold[0]) for hold in t.rows.holds[:CITED]))
        return
    opened = t.rows.leaks
    yield say(text, *[line.seq for line in opened[:CITED]], stress="This must not happen.")
