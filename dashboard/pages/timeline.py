"""The timeline: a lane per step, one stop line, and right of it only what may stand there.

Positions are percentages of the axis, so text never scales and no style is inline.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from dashboard import words
from dashboard.pages.facts import Facts
from effects.models import Effect, Settlement
from runs.models import Permit, PermitState, Refusal, Step, StepStatus

TICKS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 43_200, 86_400)
TICKS_WANTED = 5
LABEL = 26
FEW = 3  # this many withheld steps or fewer get a lane each

BAR: dict[str, str] = {
    Settlement.CONFIRMED: "bar-known",
    Settlement.NOT_APPLIED: "bar-read",
    Settlement.PARTIAL: "bar-partial",
    Settlement.UNKNOWN: "bar-unknown",
    Settlement.ACCEPTED_UNKNOWN: "bar-unknown",
    Settlement.DISPATCHED: "bar-flight",
}
END: dict[str, str] = {
    Settlement.CONFIRMED: "confirmed",
    Settlement.NOT_APPLIED: "denied",
    Settlement.PARTIAL: "partly",
    Settlement.UNKNOWN: "unknown",
    Settlement.ACCEPTED_UNKNOWN: "unknown",
}
LEGEND = (
    ("intent", "intent recorded"),
    ("confirmed", "confirmed"),
    ("denied", "not applied"),
    ("partly", "partly"),
    ("unknown", "unknown"),
    ("refused", "refused"),
    ("late", "late report"),
    ("leak", "dispatched after the stop"),
    ("bar", "in flight"),
    ("now", "now"),
)
RARE = {"denied", "partly", "late", "leak"}


@dataclass(frozen=True)
class Axis:
    """From start to end; `x` maps a moment to a percentage of the width."""

    start: datetime
    end: datetime

    def at(self, moment: datetime) -> float:
        share = (moment - self.start) / (self.end - self.start)
        return min(100.0, max(0.0, share * 100))

    def x(self, moment: datetime) -> str:
        return f"{self.at(moment):.2f}%"

    def width(self, begin: datetime, end: datetime) -> str:
        return f"{max(0.4, self.at(end) - self.at(begin)):.2f}%"


@dataclass(frozen=True)
class Mark:
    """One sign at one moment; `text` stands beside it, `few` replaces it where there is no room."""

    kind: str
    x: str
    text: str = ""
    few: str = ""


@dataclass(frozen=True)
class Bar:
    """A stretch of time in which something was under way."""

    css: str
    x: str
    width: str


@dataclass
class Lane:
    """One row: its name, what it is, the sentence that says it all, and its marks."""

    name: str
    what: str
    href: str = ""
    says: list[str] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)

    @property
    def label(self) -> str:
        return ", ".join(self.says) or "nothing yet"


@dataclass(frozen=True)
class Timeline:
    """What the template draws. `stop_x` is None before a stop; `flag_right`: no room on its left."""

    lanes: list[Lane]
    left_out: int
    ticks: list[tuple[str, str, bool]]
    now_x: str | None
    stop_x: str | None
    after: str | None
    version: int | None
    version_before: int | None
    flag_right: bool

    @property
    def legend(self) -> list[tuple[str, str]]:
        """Every mark that may appear, and the rare ones only where they do."""
        drawn = {mark.kind for lane in self.lanes for mark in lane.marks}
        return [(kind, word) for kind, word in LEGEND if kind in drawn or kind not in RARE]


def timeline(facts: Facts) -> Timeline:
    """The lanes of a run, from rows that were already read."""
    axis = axis_of(facts)
    stop = facts.stop if facts.stop and facts.stop.gate_at and not facts.stop.finished_before else None
    stop_at = axis.at(stop.gate_at) if stop and stop.gate_at else None
    return Timeline(
        lanes=list(_lanes(facts, axis)),
        left_out=max(0, sum(facts.step_counts.values()) - len(facts.steps)),
        ticks=list(_ticks(axis, stop_at)),
        now_x=None if facts.run.ended_at else axis.x(facts.now),
        stop_x=None if stop_at is None else f"{stop_at:.2f}%",
        after=None if stop_at is None else f"{100 - stop_at:.2f}%",
        version=stop.version_after if stop else None,
        version_before=stop.version_before if stop else None,
        flag_right=stop_at is not None and stop_at < 52,
    )


def axis_of(facts: Facts) -> Axis:
    """From the first thing shown to a little after the last, or after now while the run goes on."""
    begins = [facts.run.admitted_at] if not facts.steps else [step.created_at for step in facts.steps]
    start = min([*begins, *(refusal.first_at for refusal in facts.refusals)])
    end = max(_moments(facts)) if facts.run.ended_at else facts.now
    length = max(end - start, timedelta(seconds=2))
    return Axis(start - length * 0.02, start + length * (1.06 if facts.run.ended_at else 1.16))


def _moments(facts: Facts) -> Iterable[datetime]:
    yield facts.run.ended_at or facts.now
    if facts.stop:
        yield facts.stop.gate_at or facts.stop.recorded_at
    for effect in facts.effects:
        yield effect.settled_at or effect.declared_at
    for refusal in facts.refusals:
        yield refusal.last_at


def _ticks(axis: Axis, stop_at: float | None) -> Iterable[tuple[str, str, bool]]:
    """(x, time, narrow too): round times, none under the edge or under the stop line's foot."""
    length = (axis.end - axis.start).total_seconds()
    pace = next((s for s in TICKS_S if length / s <= TICKS_WANTED), TICKS_S[-1])
    first = (int(axis.start.timestamp()) // pace + 1) * pace
    written = -100.0
    for second in range(first, int(axis.end.timestamp()) + 1, pace):
        moment = datetime.fromtimestamp(second, UTC)
        at = axis.at(moment)
        narrow = at - written > 34 and 12 < at < 88
        written = at if narrow else written
        text = moment.strftime("%-d %b %H:%M" if pace >= 3600 else "%H:%M:%S")
        yield f"{at:.2f}%", text if 5 < at < 95 else "", narrow


def _lanes(facts: Facts, axis: Axis) -> Iterable[Lane]:
    permits, effects, refusals = _by_step(facts)
    idle = [s for s in facts.steps if _never_began(s) and not permits[s.pk]]
    grouped = {step.pk for step in idle} if len(idle) > FEW else set()
    for step in facts.steps:
        if step.pk not in grouped:
            yield _lane(step, permits[step.pk], effects[step.pk], refusals.pop(step.key, []), facts, axis)
    if grouped:
        withheld = [refusal for step in idle for refusal in refusals.pop(step.key, [])]
        lane = Lane(words.count(len(idle), "queued step"), "withheld", "#steps")
        lane.says.append("withheld by the stop")
        yield _with_refusals(lane, withheld, axis)
    rest = [refusal for many in refusals.values() for refusal in many]
    if rest:
        kinds = sorted({words.REFUSED[refusal.boundary][1] for refusal in rest})
        yield _with_refusals(Lane(words.listed(kinds).capitalize(), "never begun", "#log"), rest, axis)


def _never_began(step: Step) -> bool:
    return step.status == StepStatus.WITHHELD and step.dispatched_at is None


def _by_step(
    facts: Facts,
) -> tuple[dict[str, list[Permit]], dict[str, list[Effect]], dict[str, list[Refusal]]]:
    permits: dict[str, list[Permit]] = defaultdict(list)
    effects: dict[str, list[Effect]] = defaultdict(list)
    refusals: dict[str, list[Refusal]] = defaultdict(list)
    for permit in facts.permits:
        permits[permit.step_id].append(permit)
    for effect in facts.effects:
        effects[effect.step_id].append(effect)
    for refusal in facts.refusals:
        refusals[refusal.step_key].append(refusal)
    return permits, effects, refusals


def _lane(
    step: Step,
    permits: list[Permit],
    effects: list[Effect],
    refusals: list[Refusal],
    facts: Facts,
    axis: Axis,
) -> Lane:
    href = f"#{effects[0].pk}" if effects else "#steps"
    lane = Lane(words.clean(step.name), words.CLASS[step.op_class], href)
    for effect in effects:
        _draw_effect(lane, effect, facts, axis)
    if not effects:
        _draw_permits(lane, step, permits, facts, axis)
    for permit in permits:
        if permit.pk in facts.leaks:
            lane.marks.append(Mark("leak", axis.x(permit.opened_at), "Dispatched after stop"))
            lane.says.append("DISPATCHED AFTER THE STOP")
    if not lane.says:
        lane.says.append(words.STEP[step.status].word.lower())
    return _with_refusals(lane, refusals, axis)


def _draw_effect(lane: Lane, effect: Effect, facts: Facts, axis: Axis) -> None:
    term = words.SETTLEMENT[effect.settlement]
    lane.marks.append(Mark("intent", axis.x(effect.declared_at)))
    if effect.dispatched_at is None or effect.settlement not in BAR:
        lane.says.append(f"intent recorded {_clock(effect.declared_at)}, {term.word.lower()}")
        return
    end = effect.settled_at or facts.now
    text = words.clean(short(effect))
    lane.bars.append(
        Bar(BAR[effect.settlement], axis.x(effect.dispatched_at), axis.width(effect.dispatched_at, end))
    )
    kind = END.get(effect.settlement, "flight")
    lane.marks.append(Mark("late" if effect.late else kind, axis.x(end), text))
    lane.says.append(f"sent {_clock(effect.dispatched_at)}, {term.word.lower()}, {text}")


def short(effect: Effect) -> str:
    """The few words beside the end of an effect's bar."""
    if effect.late:
        return "late report, kept"
    if effect.settlement == Settlement.DISPATCHED:
        return "in flight"
    if effect.settlement == Settlement.UNKNOWN:
        return clip(effect.why_unknown or "no answer")
    return clip(effect.provider_ref or effect.ground or words.SETTLEMENT[effect.settlement].word.lower())


def clip(text: str) -> str:
    """At most LABEL characters, with a sign that there was more."""
    return text if len(text) <= LABEL else text[: LABEL - 1] + "…"


def _draw_permits(lane: Lane, step: Step, permits: list[Permit], facts: Facts, axis: Axis) -> None:
    """A step without effects: reads and model turns."""
    for permit in permits:
        end = permit.ended_at or facts.now
        css = {PermitState.OPEN: "bar-flight", PermitState.LOST: "bar-unknown"}.get(
            PermitState(permit.state), "bar-read"
        )
        lane.bars.append(Bar(css, axis.x(permit.opened_at), axis.width(permit.opened_at, end)))
        lane.says.append(f"begun {_clock(permit.opened_at)}, {words.PERMIT[permit.state].word.lower()}")
    if permits:
        last = permits[-1]
        word = words.STEP[step.status].word.lower() if last.state == PermitState.REPORTED else ""
        text = word or words.PERMIT[last.state].word.lower()
        lane.marks.append(Mark("text", axis.x(last.ended_at or facts.now), text))


def _with_refusals(lane: Lane, refusals: list[Refusal], axis: Axis) -> Lane:
    """Refusals of a lane: a mark each, one text beside the last."""
    total = sum(refusal.count for refusal in refusals)
    for number, refusal in enumerate(refusals[:6], 1):
        last = number == min(6, len(refusals))
        text = f"refused {words.count(total, 'time')}" if last else ""
        few = f"\N{MULTIPLICATION SIGN}{total}" if number == 1 and total > 1 else ""
        lane.marks.append(Mark("refused", axis.x(refusal.first_at), text, few))
    if refusals:
        lane.says.append(f"refused {words.count(total, 'time')} from {_clock(refusals[0].first_at)}")
    return lane


def _clock(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%H:%M:%S")
