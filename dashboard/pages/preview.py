"""What a stop would meet now, told before it is asked for. It may fail; the button beside it may not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from dashboard import words
from dashboard.effect_words import is_asked_about, job_says, names, sorted_out
from dashboard.pages.facts import Facts
from dashboard.pages.stages import clock
from effects import forwards, jobs
from runs.models import FINAL, PermitState, RunStatus, StepStatus, StopRequest
from runs.presses import STRENGTH
from runs.rules import rules_of
from runs.stops import STRONGER

SILENT_S, NAMED = 30, 3
MODES = tuple(words.MODE)
ICON = {"pause": "st-paused", "cancel": "st-refused", "abandon": "st-abandoned"}
HELD = (RunStatus.PAUSING, RunStatus.PAUSED)


@dataclass(frozen=True)
class Told:
    """One line of the preview."""

    icon: str
    text: str
    bold: bool = False
    tone: str = ""


@dataclass(frozen=True)
class Preview:
    """What a stop would meet now; things may change before the press.

    `modes`: (mode, its lines); the page shows those of the mode that is chosen.
    """

    modes: list[tuple[str, list[Told]]]
    lines: list[Told]
    queued: int
    now: datetime
    before: Told | None = None


def preview_of(facts: Facts) -> Preview:
    """From rows that were already read."""
    modes = [(mode, list(_of_mode(facts, mode))) for mode in MODES]
    return Preview(modes, list(_consequences(facts)), facts.queued, facts.now, _before(facts))


def _before(facts: Facts) -> Told | None:
    """A stop that is there already, perhaps of another person and since the form was opened."""
    stop, run = facts.stop, facts.run
    if stop is None or run.status == RunStatus.ACTIVE:
        return None
    named = f"stop #{stop.number} ({stop.mode}), {clock(stop.recorded_at)}"
    text = f"{facts.who(stop)} has already stopped this run: {named}."
    return Told("st-stopping", text, bold=True)


def _of_mode(facts: Facts, mode: str) -> Iterable[Told]:
    """What a press in this mode would do, first to the stop that is there, then to what waits."""
    stop, status = facts.stop, facts.run.status
    if status in FINAL:
        yield Told("st-none", "The run has finished. A stop of it is recorded all the same.")
        if mode == "cancel" and (stop is None or moves_after_the_end(stop, mode)):
            yield from _forwards(facts)
        return
    moves = mode in STRONGER[status]
    if stop is not None and status != RunStatus.ACTIVE:
        name = f"stop #{stop.number}"
        if not moves:
            milder = " A milder mode changes nothing." if STRENGTH[mode] < STRENGTH[stop.mode] else ""
            yield Told("st-stopping", f"Your press will join {name}, and is kept with it.{milder}")
            return
        yield Told("st-stopping", f"Your press will replace {name}.")
    yield Told(ICON[mode], _waiting(facts, mode))
    if mode == "cancel":
        yield from _forwards(facts)
    if mode == "abandon":
        yield from _given_up(facts)


def moves_after_the_end(stop: StopRequest, mode: str) -> bool:
    """Whether a press of this mode is a stop of its own although its run has finished."""
    return stop.finished_before and STRENGTH[mode] > STRENGTH[stop.mode]


def _waiting(facts: Facts, mode: str) -> str:
    waiting = [words.count(facts.queued, "queued step")] if facts.queued else []
    retries = facts.step_counts[StepStatus.RETRY_WAIT]
    waiting += [words.count(retries, "retry", "retries")] if retries else []
    messages = facts.messages["QUEUED"]
    waiting += [words.count(messages, "queued message")] if messages else []
    named = words.listed(waiting) or "Any new work"
    if mode == "pause":
        keep = "keeps its place" if facts.queued + retries + messages == 1 else "keep their place"
        return f"{named} will be held and {keep}." if waiting else "Any new work will be held."
    return f"{named} will be refused{' for good' if facts.run.status in HELD else ''}."


def _given_up(facts: Facts) -> Iterable[Told]:
    """What an abandon leaves to itself."""
    flying, unknown = facts.settlements["DISPATCHED"], facts.unknown
    if flying:
        are = words.count(flying, "effect in flight becomes", "effects in flight become")
        yield Told("st-abandoned", f"{are} unknown at once.", tone="c-unknown")
    if flying or unknown:
        yield Told(
            "st-abandoned", f"Nobody is asked about {_it(flying + unknown)} any more.", tone="c-unknown"
        )


def _it(number: int) -> str:
    return "it" if number == 1 else "them"


def _consequences(facts: Facts) -> Iterable[Told]:
    yield _in_flight(facts)
    happened = facts.settlements["CONFIRMED"] + facts.settlements["PARTIAL"]
    if happened:
        done, them = words.count(happened, "effect"), _it(happened)
        yield Told("st-confirmed", f"{done} already happened; stopping does not undo {them}.", tone="c-known")
        yield from _afterwards(facts)
    yield from _jobs(facts)
    over = facts.messages["HANDED_OVER"]
    if over:
        done = words.count(over, "message was", "messages were")
        yield Told("st-confirmed", f"{done} handed over; stopping calls none of them back.", tone="c-known")
    if facts.unknown:
        yield Told("st-unknown", f"{words.count(facts.unknown, 'effect')} still unknown.", tone="c-unknown")
    yield from _silent(facts)
    if facts.run.ungateable:
        tools = words.count(len(facts.run.ungateable), "tool runs", "tools run")
        yield Told("lock", f"{tools} at the provider and cannot be refused by us.")


def _afterwards(facts: Facts) -> Iterable[Told]:
    """Of what already happened: what can't be called back, and what has a compensation declared."""
    found = sorted_out(facts.effects)
    of = "Of the effects shown on its page, " if facts.settlements.total() > len(facts.effects) else ""
    if found.never:
        lead = f"{len(found.never)} of what already happened can’t be called back"
        yield Told("st-refused", f"{of}{lead}: {names(found.never)}.", tone="c-flight")
    begun = {row.effect_id for row in facts.compensations} if found.planned else set()
    planned = [effect for effect in found.planned if effect.pk not in begun]
    if planned:
        has = f"{len(planned)} {'has' if len(planned) == 1 else 'have'}"
        then = f"{'It' if len(planned) == 1 else 'Each'} would be a new action, which people decide on."
        yield Told("st-comp", f"{of}{has} a declared compensation: {names(planned)}. {then}")
    if taken := [effect for effect in found.planned if effect.pk in begun]:
        lead = f"{words.count(len(taken), 'compensation was', 'compensations were')} already proposed"
        yield Told("st-comp", f"{of}{lead}: of {names(taken)}.")
    if found.neither:
        has = "has" if len(found.neither) == 1 else "have"
        lead = f"{len(found.neither)} {has} no compensation declared"
        yield Told("st-none", f"{of}{lead}: {names(found.neither)}.")


def _jobs(facts: Facts) -> Iterable[Told]:
    """What goes on at a provider, whatever is stopped here."""
    going = [one for one in facts.effects if job_says(one) and is_asked_about(one)]
    for effect in going[:NAMED]:
        yield Told("st-flight", f"“{words.brief(effect.title)}”: {job_says(effect)}. It goes on there.")
    if len(going) > NAMED:
        yield Told("st-flight", f"{len(going) - NAMED} more jobs go on at their providers.")


def _forwards(facts: Facts) -> Iterable[Told]:
    """Whom a cancel asks to cancel."""
    rows = [one for one in facts.effects if one.on_stop and one.settlement in forwards.SENT]
    asked = [one for one in rows if one.job_state not in jobs.OVER and one.kind]
    if not asked:
        return
    if not rules_of(facts.run.workspace_id).forward_stops:
        text = f"Nobody is asked to cancel {names(asked)}: the rules forward no stop to a provider."
        yield Told("st-none", text)
        return
    whom = words.listed(sorted({forwards.asked_of(one.kind) for one in asked if one.kind}))
    yield Told("st-stopping", f"{whom} will be asked to cancel {names(asked)}. Asked is not cancelled.")


def _silent(facts: Facts) -> Iterable[Told]:
    """Workers of whom nothing was heard: few by name, many by number."""
    silent = [w for w in facts.workers if (facts.now - w.last_heard_at).total_seconds() > SILENT_S]
    if len(silent) > NAMED:
        least = "At least " if facts.workers_total > len(facts.workers) else ""
        text = f"{least}{len(silent)} workers not heard for {SILENT_S} s. {words.SILENCE_OF_MANY}"
        yield Told("clock", text)
        return
    for worker in silent:
        since = clock(worker.last_heard_at)
        yield Told("clock", f"{words.brief(worker.name)} not heard since {since}. {words.SILENCE}")


def _in_flight(facts: Facts) -> Told:
    number = facts.open_permits
    if not number:
        return Told("st-flight", "Nothing is in flight at this moment.")
    acts = words.count(number, "action is", "actions are")
    latest = _latest(facts)
    which = f", the latest: {latest}" if latest and number > 1 else f", {latest}" if latest else ""
    end = "They may still complete." if number > 1 else "It may still complete."
    return Told("st-flight", f"{acts} in flight{which}. {end}", bold=True, tone="c-flight")


def _latest(facts: Facts) -> str:
    """The newest open permit by its effect or step, and since when; empty when it has just ended."""
    last = next((permit for permit in reversed(facts.permits) if permit.state == PermitState.OPEN), None)
    if last is None:
        return ""
    titles = {effect.key: effect.title for effect in facts.effects}
    steps = {step.pk: step.name for step in facts.steps}
    name = titles.get(last.effect_key) or steps.get(last.step_id) or last.effect_key
    return f"{words.brief(name)}, since {clock(last.opened_at)}"
