"""What a stop would meet now, told before it is asked for. It may fail; the button beside it may not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from dashboard import words
from dashboard.pages.facts import Facts
from dashboard.pages.stages import clock
from runs.models import PermitState, StepStatus

SILENT_S, NAMED = 30, 3


@dataclass(frozen=True)
class Told:
    """One line of the preview."""

    icon: str
    text: str
    bold: bool = False
    tone: str = ""


@dataclass(frozen=True)
class Preview:
    """What a stop would meet now; things may change before the press."""

    lines: list[Told]
    queued: int
    now: datetime


def preview_of(facts: Facts) -> Preview:
    """From rows that were already read."""
    return Preview(list(_consequences(facts)), facts.queued, facts.now)


def _consequences(facts: Facts) -> Iterable[Told]:
    waiting = [words.count(facts.queued, "queued step")] if facts.queued else []
    retries = facts.step_counts[StepStatus.RETRY_WAIT]
    waiting += [words.count(retries, "retry", "retries")] if retries else []
    yield Told("st-refused", f"{words.listed(waiting) or 'Any new work'} will be refused.")
    yield _in_flight(facts)
    happened = facts.settlements["CONFIRMED"] + facts.settlements["PARTIAL"]
    if happened:
        done, them = words.count(happened, "effect"), "it" if happened == 1 else "them"
        yield Told("st-confirmed", f"{done} already happened; stopping does not undo {them}.", tone="c-known")
    if facts.unknown:
        yield Told("st-unknown", f"{words.count(facts.unknown, 'effect')} still unknown.", tone="c-unknown")
    yield from _silent(facts)
    if facts.run.ungateable:
        tools = words.count(len(facts.run.ungateable), "tool runs", "tools run")
        yield Told("lock", f"{tools} at the provider and cannot be refused by us.")


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
