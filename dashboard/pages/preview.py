"""What a stop would meet now, told before it is asked for. It may fail; the button beside it may not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from dashboard import words
from dashboard.pages.facts import Facts
from dashboard.pages.stages import clock
from runs.models import Permit, PermitState, StepStatus

SILENT_S = 30


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
    yield _in_flight([permit for permit in facts.permits if permit.state == PermitState.OPEN], facts)
    happened = facts.settlements["CONFIRMED"] + facts.settlements["PARTIAL"]
    if happened:
        done, them = words.count(happened, "effect"), "it" if happened == 1 else "them"
        yield Told("st-confirmed", f"{done} already happened; stopping does not undo {them}.", tone="c-known")
    if facts.unknown:
        yield Told("st-unknown", f"{words.count(facts.unknown, 'effect')} still unknown.", tone="c-unknown")
    for worker in facts.workers:
        if (facts.now - worker.last_heard_at).total_seconds() > SILENT_S:
            since = clock(worker.last_heard_at)
            yield Told("clock", f"{words.clean(worker.name)} not heard since {since}. {words.SILENCE}")
    if facts.run.ungateable:
        tools = words.count(len(facts.run.ungateable), "tool runs", "tools run")
        yield Told("lock", f"{tools} at the provider and cannot be refused by us.")


def _in_flight(open_permits: list[Permit], facts: Facts) -> Told:
    if not open_permits:
        return Told("st-flight", "Nothing is in flight at this moment.")
    last = open_permits[-1]
    titles = {effect.key: effect.title for effect in facts.effects}
    steps = {step.pk: step.name for step in facts.steps}
    name = words.clean(titles.get(last.effect_key) or steps.get(last.step_id, ""))
    many = len(open_permits) > 1
    acts = words.count(len(open_permits), "action is", "actions are")
    which = f"the latest: {name}" if many else name
    end = "They may still complete." if many else "It may still complete."
    text = f"{acts} in flight, {which}, since {clock(last.opened_at)}. {end}"
    return Told("st-flight", text, bold=True, tone="c-flight")
