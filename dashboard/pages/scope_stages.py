"""The five commitments of a stop wider than one run, from its moments and its parts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

from dashboard import words
from dashboard.pages.facts import DISPATCHED_EVER, KNOWN
from dashboard.pages.stages import DONE, LATER, NOW, Stage, clock
from runs.fanout import Progress
from runs.models import STANDING, StopRequest


@dataclass(frozen=True)
class Reached:
    """How far its runs are; `flying`: actions listed as in flight when it fenced them, and those open yet."""

    progress: Progress
    total: int = 0
    quiet: int = 0
    late: int = 0
    closed: int = 0
    effects: Counter[str] = field(default_factory=Counter)
    flying: tuple[int, int] = (0, 0)

    @property
    def sent(self) -> int:
        return sum(self.effects[state] for state in DISPATCHED_EVER)

    @property
    def known(self) -> int:
        return sum(self.effects[state] for state in KNOWN)


class Told(Protocol):
    """What the strip is computed from."""

    stop: StopRequest

    @property
    def reached(self) -> Reached: ...
    @property
    def of_effects(self) -> bool: ...


def scope_stages(page: Told) -> list[Stage]:
    """Acknowledge · establish · quiesce · reconcile · close."""
    stop, reached = page.stop, page.reached
    found = [_acknowledge(stop), _establish(stop, reached)]
    if not page.of_effects:
        found += [_quiesce(reached), _reconcile(reached)]
    return [*found, _close(stop, reached, page.of_effects)]


def _acknowledge(stop: StopRequest) -> Stage:
    over = stop.released_at or stop.superseded_by_id
    gate = "the gate was shut then" if over else "the gate is shut"
    note = gate if stop.scope in STANDING else "its list of runs is frozen"
    moment = stop.gate_at or stop.recorded_at
    return Stage("Acknowledge", DONE, "st-settled", clock(moment, ms=True), "", note, "#presses")


def _establish(stop: StopRequest, reached: Reached) -> Stage:
    progress = reached.progress
    listed, still = reached.flying
    if stop.fenced_at is None:
        value = (f"{progress.done:,}", f"of {progress.total:,} runs")
        return Stage("Establish", NOW, "st-stopping", *value, "what was in flight", "#runs")
    flying = f"{words.count(listed, 'action')} listed as in flight"
    note = f"{flying}, {still} still open" if listed else "nothing was in flight"
    value = (f"{progress.done:,}", words.count(progress.done, "run").partition(" ")[2])
    return Stage("Establish", DONE, "st-settled", *value, note, "#runs")


def _quiesce(reached: Reached) -> Stage:
    over = reached.quiet >= reached.total
    note = f"{reached.late} timed out" if reached.late else ""
    icon = "st-timeout" if reached.late and not over else "st-settled" if over else "st-quiet"
    return Stage(
        "Quiesce",
        DONE if over else NOW,
        icon,
        f"{reached.quiet:,}",
        f"of {reached.total:,} quiet",
        note,
        "#runs",
    )


def _reconcile(reached: Reached) -> Stage:
    if not reached.sent:
        return Stage("Reconcile", DONE, "st-settled", "", "Nothing was sent", "", "#runs")
    open_ones = reached.effects["DISPATCHED"] + reached.effects["UNKNOWN"]
    note = f"{reached.effects['UNKNOWN']} unknown" if reached.effects["UNKNOWN"] else ""
    value = (f"{reached.known:,}", f"of {reached.sent:,} known")
    icon = "st-quiet" if open_ones else "st-settled"
    return Stage("Reconcile", NOW if open_ones else DONE, icon, *value, note, "#runs")


def _close(stop: StopRequest, reached: Reached, of_effects: bool) -> Stage:
    if stop.closed_at:
        return Stage("Close", DONE, "st-settled", clock(stop.closed_at), "", stop.closed_because, "#presses")
    value = ("", "Not yet") if of_effects else (f"{reached.closed:,}", f"of {reached.total:,} closed")
    stands = stop.scope in STANDING and not stop.released_at
    note = "by a release" if stands else f"released {clock(stop.released_at)}" if stop.released_at else ""
    return Stage("Close", LATER, "st-before", *value, note, "#runs")
