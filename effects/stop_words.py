"""What a person should know of a stop, in a sentence or two: the answer of a press says it, as lists do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from runs.children import Reach as ReachOfRun
from runs.fanout import Progress, lists_only
from runs.models import Mode, Result, ScopeKind, StopRequest
from runs.scopes import RESTORED

MEANS: dict[str, str] = {
    Mode.PAUSE: "New work is held from version {version}; a resume is a decision of its own.",
    Mode.CANCEL: "New work is refused from version {version}.",
    Mode.ABANDON: "New work is refused from version {version}. We no longer wait or act.",
}
RESULTS: dict[str, str] = {
    Result.RECORDED: "stopped",
    Result.JOINED: "stopping before",
    Result.FINISHED: "finished before",
    Result.NOT_PERMITTED: "not yours to stop",
    Result.LISTED: "looked through",
}
HELD_BY_A_RESTORE = "Its runs were held by the restore."


@dataclass(frozen=True)
class Pressed:
    """What one press came to, beside the stop as it is: `asked` is its mode, "" when nobody pressed."""

    created: bool = False
    joined: bool = False
    finished: bool = False
    asked: str = ""
    ignored: list[str] = field(default_factory=list)


def sentence(stop: Any, pressed: Pressed, progress: Progress | None, reach: ReachOfRun | None) -> str:
    """The sentence of a stop, after a press or without one. `stop` has `would_refuse_n`."""
    if stop.scope == ScopeKind.RUN:
        return of_run(stop, pressed) + of_children(reach)
    if stop.scope == ScopeKind.STEP:
        return of_step(stop, pressed)
    if stop.scope == ScopeKind.BULK:
        return of_bulk(stop, pressed, progress or Progress(0, stop.runs_n or 0))
    return of_scope(stop, pressed, progress)


def of_run(stop: StopRequest, pressed: Pressed) -> str:
    """A stop of one run, which may not be registered yet."""
    name, joined = f"Stop #{stop.number}", pressed.joined
    if pressed.finished or stop.finished_before:
        done = f"Your request was added to {name.lower()}" if joined else f"{name} is recorded"
        rest = "no work was left to refuse, and no message that is still queued will be handed over"
        return f"The run had already finished. {done}; {rest}."
    if stop.run_id is None and stop.closed_at is None:
        return f"{name} ({stop.mode}) is recorded and waits for its run until {minute(stop.ends_at)}."
    if stop.run_id is None:
        return f"{name} has ended: {stop.closed_because}."
    if joined:
        since = f"Already stopping since {second(stop.recorded_at)}, in mode {stop.mode}."
        return f"{since} Added to {name.lower()}.{_milder(stop, pressed)}"
    return f"{name} is recorded. {MEANS[stop.mode].format(version=stop.version_after)}"


def _milder(stop: StopRequest, pressed: Pressed) -> str:
    """That a press which asked for less changes no mode."""
    if pressed.asked in ("", stop.mode):
        return ""
    return f" You asked for {pressed.asked}; the mode stays {stop.mode}."


def of_children(reach: ReachOfRun | None) -> str:
    """That it goes on to the children, where there are some."""
    if reach is None or not reach.registered:
        return ""
    return f" It is passed on to {counted(reach.registered, 'registered child run')}."


def of_step(stop: StopRequest, pressed: Pressed) -> str:
    """A stop of one step, whose run goes on."""
    name = f"Stop #{stop.number} of {scope_name(stop)}"
    if pressed.joined:
        return f"Already stopped since {second(stop.recorded_at)}. Added to {_lower(name)}; its run goes on."
    if stop.finished_before:
        rest = "no retry of it may begin, and its run goes on"
        return f"The step had already ended. {name} is recorded; {rest}."
    return f"{name} is recorded. Nothing more of it may be sent; its run goes on."


def of_bulk(stop: StopRequest, pressed: Pressed, progress: Progress) -> str:
    """A stop of a list of runs: how many were reached, and what it came to for them."""
    name = f"Stop #{stop.number} of {scope_name(stop)}"
    told = f"Added to {_lower(name)}." if pressed.joined else f"{name} is recorded."
    reached = f"{progress.done} of {progress.total} were reached" + (" so far" if _more(progress) else "")
    said = ", ".join(f"{n} {RESULTS[result]}" for result, n in sorted(progress.results.items()))
    return f"{told} {reached}{f': {said}' if said else ''}."


def _more(progress: Progress) -> bool:
    return progress.done < progress.total


def of_scope(stop: Any, pressed: Pressed, progress: Progress | None) -> str:
    """A stop of a session, workspace or policy, which stands until it is released."""
    name = f"Stop #{stop.number} of {scope_name(stop)}"
    over = _ended(stop, name)
    if over:
        return over
    if stop.observes:
        told = f"Added to {_lower(name)}" if pressed.joined else name
        return (
            f"{told}, which only observes: it refuses nothing, and would have refused {stop.would_refuse_n}."
        )
    since = f"Its gate is shut since {second(stop.gate_at)}"
    if pressed.joined:
        told = f"Already shut since {second(stop.gate_at)}. Added to {_lower(name)}.{_milder(stop, pressed)}"
        return f"{told} {_reached(stop, progress)}"
    return f"{name} is recorded. {since}; {_lower(_reached(stop, progress))}"


def _ended(stop: StopRequest, name: str) -> str:
    if stop.superseded_by_id:
        return f"{name} has ended: {stop.closed_because}."
    if stop.released_at is None:
        return ""
    if stop.observes:
        return f"{name} observed until {second(stop.released_at)}: it was ended."
    rest = "." if stop.closed_at else "; not all of its runs have come to their end."
    return (
        f"{name} held its gate from {second(stop.gate_at)} until {second(stop.released_at)}: released{rest}"
    )


def _reached(stop: StopRequest, progress: Progress | None) -> str:
    """ "3 of 4 runs are stopped so far." """
    if progress is None:
        return "It stands until it is released." if stop.fenced_at else "Its runs are being stopped."
    listed = lists_only(stop)
    done = "looked through" if listed else "stopped"
    goes_on = "; they go on, and effects of its kinds are refused" if listed else ""
    if _more(progress):
        return f"{progress.done} of {counted(progress.total, 'run')} are {done} so far{goes_on}."
    if not progress.total:
        return HELD_BY_A_RESTORE if stop.via == RESTORED else "No run was under way in it."
    verb = "is" if progress.total == 1 else "are"
    return f"{progress.done} of {counted(progress.total, 'run')} {verb} {done}{goes_on}."


# names and moments --------------------------------------------------------------------------------


NAMES: dict[str, Callable[[Any], str]] = {
    ScopeKind.STEP: lambda stop: f"step “{stop.step.name}”" if stop.step else "a step",
    ScopeKind.RUN: lambda stop: f"run “{stop.run.name if stop.run else stop.run_key}”",
    ScopeKind.SESSION: lambda stop: f"session “{stop.session.key}”" if stop.session else "a session",
    ScopeKind.WORKSPACE: lambda stop: f"workspace “{stop.workspace.name}”",
    ScopeKind.POLICY: lambda stop: f"policy “{stop.policy.name}”" if stop.policy else "a policy",
    ScopeKind.BULK: lambda stop: counted(stop.runs_n or 0, "selected run"),
}


def scope_name(stop: StopRequest) -> str:
    """What a stop is of: “session “nightly””. Reads the row of its scope unless it was read with it."""
    return NAMES[stop.scope](stop)


def counted(number: int, noun: str) -> str:
    """ "1 run", "2 runs"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def second(moment: datetime | None) -> str:
    """A moment to the second, in UTC."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC" if moment else "a moment that is not known"


def minute(moment: datetime | None) -> str:
    """A moment to the minute, in UTC."""
    return f"{moment:%Y-%m-%d %H:%M} UTC" if moment else "it is released"
