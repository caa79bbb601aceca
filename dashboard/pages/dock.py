"""The sticky control of a run: what is in force, since when, and what a person may do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.urls import reverse

from dashboard import words
from dashboard.pages.facts import Facts
from dashboard.pages.stages import clock, presses
from runs import gates
from runs.models import FINAL, RunStatus, StopRequest
from runs.stops import STRONGER, WAITS_FOR_WORK


@dataclass(frozen=True)
class Button:
    """A way to a form of its own; nothing happens by following it. `short`: its word on a phone."""

    word: str
    href: str
    icon: str = ""
    css: str = ""
    short: str = ""


@dataclass(frozen=True)
class Dock:
    """What is in force in two lines, and the buttons for this person."""

    head: str
    sub: str
    buttons: list[Button]


def dock(facts: Facts, may: frozenset[str] | set[str]) -> Dock:
    """Before a stop: what it would meet. After: who asked, how, until when."""
    stop, buttons = facts.stop, list(_buttons(facts, may))
    if stop is None:
        return Dock(*_without_a_stop(facts), buttons)
    mode = f"{stop.mode.capitalize()}, this run"
    pressed = f", pressed {words.count(presses(stop), 'time')}" if presses(stop) > 1 else ""
    head = f"Stop #{stop.number} recorded by {facts.who(stop)}, {clock(stop.recorded_at)}"
    parts = [f"{mode}{pressed}.", was(facts), _until(facts, stop)]
    return Dock(head, " ".join(part for part in parts if part), buttons)


def _without_a_stop(facts: Facts) -> tuple[str, str]:
    run = facts.run
    if run.status == RunStatus.PAUSED:
        return "This run is held by a stop above it", "Resumes only by a new decision."
    ended = f"Ended {clock(run.ended_at)}." if run.ended_at else ""
    flying = words.count(facts.settlements["DISPATCHED"], "effect")
    begun = f"{words.count(facts.queued, 'step')} queued, {flying} in flight."
    head = "This run may start new work" if run.status == RunStatus.ACTIVE else "This run has ended"
    if gates.holds_back(run.workspace, run):
        head = "Every gate refuses this run"
    return head, " ".join(part for part in (ended or begun, _resumed(facts)) if part)


def _resumed(facts: Facts) -> str:
    line = facts.resumed
    if line is None:
        return ""
    who = words.clean(facts.names.get(line.actor, line.actor))
    return f"Resumed by {who}, {clock(line.at)}."


def was(facts: Facts) -> str:
    """ "Was paused by Alice 15:02:13, then cancelled." Empty for a stop that superseded none.

    A run that has not ended is not called cancelled.
    """
    chain = facts.chain
    if len(chain) < 2 or chain[-1].finished_before:  # what came after the end moved nothing of it
        return ""
    first = chain[0]
    ended = facts.run.status in FINAL
    then = words.listed([words.WAS[stop.mode] if ended else f"asked to {stop.mode}" for stop in chain[1:]])
    return f"Was {words.WAS[first.mode]} by {facts.who(first)} {clock(first.recorded_at)}, then {then}."


def _until(facts: Facts, stop: StopRequest) -> str:
    if stop.finished_before:
        held = facts.messages["WITHHELD"]
        kept = f"; {words.count(held, 'queued message')} withheld" if held else ""
        return f"The run had already finished; no work was left to refuse{kept}."
    if facts.run.status == RunStatus.PAUSED:
        late = (
            f" Its deadline passed {clock(stop.timed_out_at)}; leases were fenced."
            if stop.timed_out_at
            else ""
        )
        return f"Resumes only by a new decision.{late}"
    if stop.closed_at:
        return f"Closed {clock(stop.closed_at)}."
    if stop.quiet_at:
        return f"Quiet since {clock(stop.quiet_at)}."
    if stop.timed_out_at:
        return f"Timed out {clock(stop.timed_out_at)}; new work stays refused."
    if stop.deadline_at is None:
        return ""
    return _deadline(facts, stop)


def _deadline(facts: Facts, stop: StopRequest) -> str:
    assert stop.deadline_at is not None
    seconds = int((stop.deadline_at - facts.now).total_seconds())
    if seconds <= 0:
        return f"Its deadline passed {clock(stop.deadline_at)}."
    when = f"{clock(stop.deadline_at)}, in {words.span(seconds)}, if work in flight does not end"
    if facts.run.status == RunStatus.PAUSING:
        return f"Leases are fenced at {when}."
    return f"Times out at {when}."


def _buttons(facts: Facts, may: frozenset[str] | set[str]) -> Iterable[Button]:
    run, stop = facts.run, facts.stop
    if run.status == RunStatus.ACTIVE and "stop" in may:
        return  # the page has the dialog
    if run.status == RunStatus.PAUSED and "resume" in may:
        yield Button("Resume…", reverse("resume", args=[run.pk]), "st-running", "btn-ink")
    if "stop" in may and STRONGER[run.status]:
        yield Button("Escalate…", reverse("stop", args=[run.pk]), "stop", "btn-stop")
    if "stop" in may and stop is not None and may_force(facts, stop):
        href = reverse("deadline", args=[run.pk])
        yield Button("Force the deadline now…", href, "clock", short="Deadline…")
    alone = run.status in (*FINAL, RunStatus.ACTIVE)
    yield Button("Report", reverse("report", args=[run.pk]), "file-text", "" if alone else "opt")


def may_force(facts: Facts, stop: StopRequest) -> bool:
    """Whether something still waits for the deadline of this stop."""
    ahead = stop.deadline_at is not None and stop.deadline_at > facts.now
    return facts.run.status in WAITS_FOR_WORK and ahead and stop.closed_at is None
