"""The timeline: a lane per step, one stop line, and right of it only what may stand there.

Positions are percentages of the axis, so text never scales and no style is inline.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from dashboard import words
from dashboard.pages.axis import (
    NARROW,
    Axis,
    Flagged,
    Label,
    Span,
    StopLine,
    beside,
    flagged,
    percent,
    shorten,
    ticks,
)
from dashboard.pages.facts import Facts
from effects.models import Effect, Settlement
from runs.models import Permit, PermitState, Refusal, Step, StepStatus
from runs.stops import RESUMED

LABEL = 60  # signs of a stranger's text; a lane has room for less
NAME_PX = 420  # of a lane's name: two lines
FEW = 3  # this many withheld steps or fewer get a lane each
CLOSE, CLOSE_NARROW = 2.2, 9.0  # percent: nearer marks of one kind would cover each other
REFUSED_DRAWN = 6

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
    ("lookup", "look-up"),
    ("refused", "refused"),
    ("late", "late report"),
    ("leak", "dispatched after the stop"),
    ("bar", "in flight"),
    ("now", "now"),
)
RARE = {"denied", "partly", "late", "leak"}


@dataclass(frozen=True)
class Mark:
    """One sign at one moment, `dx` px beside it; `css` "wide": not where lanes are narrow."""

    kind: str
    x: str
    dx: int = 0
    css: str = ""


@dataclass(frozen=True)
class Bar:
    """A stretch of time in which something was under way."""

    css: str
    x: str
    width: str


@dataclass
class Lane:
    """One row: its name, what it is, the sentence that says it all, and its marks.

    `words`: the labels, with the size at which each is shown ("few": only where lanes are narrow).
    """

    name: str
    what: str
    href: str = ""
    says: list[str] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    words: list[tuple[str, Label]] = field(default_factory=list)
    taken: list[Span] = field(default_factory=list)
    wanted: list[tuple[str, Span]] = field(default_factory=list)

    @property
    def label(self) -> str:
        return ", ".join(self.says) or "nothing yet"

    @property
    def short_name(self) -> str:
        return shorten(self.name, NAME_PX)

    def mark(self, kind: str, at: float, dx: int = 0, css: str = "") -> None:
        self.marks.append(Mark(kind, percent(at), dx, css))
        self.taken.append((at, at))

    def stretch(self, css: str, begin: float, end: float) -> None:
        self.bars.append(Bar(css, percent(begin), percent(max(0.4, end - begin))))
        self.taken.append((begin, end))

    def tell(self, text: str, begin: float, end: float) -> None:
        """Words about what stands between these two; they are placed when all marks are known."""
        if text:
            self.wanted.append((text, (begin, end)))

    def place(self, lines: list[StopLine]) -> Lane:
        """Give the words their places, each beside what it tells of and across nothing else."""
        stops = [(line.at, line.at) for line in lines]
        for text, span in self.wanted:
            if found := beside(text, span, [*self.taken, *stops]):
                self.words.append(("", found[0]))
                self.taken.append(found[1])
        return self

    def count(self, text: str, at: float) -> None:
        """A number for narrow lanes, which have no room for words."""
        if text and (found := beside(text, (at, at), [], NARROW)):
            self.words.append(("few", found[0]))


@dataclass(frozen=True)
class Timeline:
    """What the template draws. `lines`: each stop and resume; `held`: when the gate was shut (x, width)."""

    lanes: list[Lane]
    left_out: int
    ticks: list[tuple[str, str, bool]]
    now_x: str | None
    lines: list[StopLine]
    held: list[tuple[str, str]]

    @property
    def flagged(self) -> list[Flagged]:
        return flagged(self.lines)

    @property
    def legend(self) -> list[tuple[str, str]]:
        """Every mark that may appear, and the rare ones only where they do."""
        drawn = {mark.kind for lane in self.lanes for mark in lane.marks}
        return [(kind, word) for kind, word in LEGEND if kind in drawn or kind not in RARE]


def timeline(facts: Facts) -> Timeline:
    """The lanes of a run, from rows that were already read."""
    axis = axis_of(facts)
    lines = list(_stop_lines(facts, axis))
    return Timeline(
        lanes=[lane.place(lines) for lane in _lanes(facts, axis)],
        left_out=max(0, sum(facts.step_counts.values()) - len(facts.steps)),
        ticks=list(ticks(axis)),
        now_x=None if facts.run.ended_at else percent(axis.at(facts.now)),
        lines=lines,
        held=[(percent(begin), percent(end - begin)) for begin, end in _held(facts, axis)],
    )


FLAG = {
    "pause": ("Pause effective", "Pause"),
    "cancel": ("Stop effective", "Stop"),
    "abandon": ("Abandoned",) * 2,
}


def _stop_lines(facts: Facts, axis: Axis) -> Iterable[StopLine]:
    """Each stop that took effect, and each resume, in their order."""
    for hold in facts.holds:
        for number, stop in enumerate(hold):
            assert stop.gate_at is not None  # of a hold
            at = axis.at(stop.gate_at)
            yield StopLine(at, stop.version_before, stop.version_after, *FLAG[stop.mode], first=not number)
        last = hold[-1]
        if last.closed_because == RESUMED and last.closed_at:
            at, version = axis.at(last.closed_at), (last.version_after or 0) + 1
            yield StopLine(at, last.version_after, version, "Resumed", "Resumed", resumes=True)


def _held(facts: Facts, axis: Axis) -> Iterable[tuple[float, float]]:
    """From where to where the run was held."""
    for hold in facts.holds:
        first, last = hold[0], hold[-1]
        resumed = last.closed_at if last.closed_because == RESUMED else None
        yield axis.at(first.gate_at or first.recorded_at), axis.at(resumed) if resumed else 100.0


def axis_of(facts: Facts) -> Axis:
    """From the first thing shown to a little after the last, or after now while the run goes on."""
    begins = [facts.run.admitted_at] if not facts.steps else [step.created_at for step in facts.steps]
    start = min([*begins, *(refusal.first_at for refusal in facts.refusals)])
    end = max(_moments(facts)) if facts.run.ended_at else facts.now
    length = max(end - start, timedelta(seconds=2))
    return Axis(start - length * 0.02, start + length * (1.06 if facts.run.ended_at else 1.16))


def _moments(facts: Facts) -> Iterable[datetime]:
    yield facts.run.ended_at or facts.now
    for stop in facts.stops:
        yield stop.gate_at or stop.recorded_at
    for effect in facts.effects:
        yield effect.settled_at or effect.declared_at
    for refusal in facts.refusals:
        yield refusal.last_at


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
        yield _with_refusals(lane, withheld, facts, axis)
    rest = [refusal for many in refusals.values() for refusal in many]
    if rest:
        kinds = sorted({words.REFUSED[refusal.boundary][1] for refusal in rest})
        yield _with_refusals(Lane(words.listed(kinds).capitalize(), "never begun", "#log"), rest, facts, axis)


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
            at = axis.at(permit.opened_at)
            lane.mark("leak", at)
            lane.tell("Dispatched after stop", at, at)
            lane.says.append("DISPATCHED AFTER THE STOP")
    if step.status == StepStatus.RETRY_WAIT and step.due_at is not None:
        lane.says.append(f"retry due {_clock(step.due_at)}")
        lane.tell(lane.says[-1], axis.at(facts.now), axis.at(facts.now))
    if not lane.says:
        lane.says.append(words.STEP[step.status].word.lower())
    return _with_refusals(lane, refusals, facts, axis)


def _draw_effect(lane: Lane, effect: Effect, facts: Facts, axis: Axis) -> None:
    term = words.SETTLEMENT[effect.settlement]
    declared = axis.at(effect.declared_at)
    lane.mark("intent", declared)
    if effect.dispatched_at is None or effect.settlement not in BAR:
        lane.says.append(f"intent recorded {_clock(effect.declared_at)}, {term.word.lower()}")
        return
    end = axis.at(effect.settled_at or facts.now)
    text = words.clean(short(effect))
    lane.stretch(BAR[effect.settlement], axis.at(effect.dispatched_at), end)
    lane.says.append(f"sent {_clock(effect.dispatched_at)}, {term.word.lower()}, {text}")
    _draw_lookups(lane, facts.lookups.get(effect.key, []), axis, end)
    lane.mark("late" if effect.late else END.get(effect.settlement, "flight"), end)
    lane.tell(text, declared, end)


def _draw_lookups(lane: Lane, moments: list[datetime], axis: Axis, end: float) -> None:
    """Each look-up that has room; the one that settled the effect stands beside the end that it brought."""
    drawn = narrow = end
    for place in sorted((axis.at(moment) for moment in moments), reverse=True):
        if place > end - CLOSE and drawn == end:
            lane.mark("lookup", end, -15, "wide")
            drawn = end - CLOSE
        elif place <= drawn - CLOSE:
            roomy = place <= narrow - CLOSE_NARROW
            lane.mark("lookup", place, 0, "" if roomy else "wide")
            drawn, narrow = place, place if roomy else narrow
    if moments:
        lane.says.append(f"looked up {words.count(len(moments), 'time')}, last {_clock(max(moments))}")


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
        css = {PermitState.OPEN: "bar-flight", PermitState.LOST: "bar-unknown"}.get(
            PermitState(permit.state), "bar-read"
        )
        lane.stretch(css, axis.at(permit.opened_at), axis.at(permit.ended_at or facts.now))
        lane.says.append(f"begun {_clock(permit.opened_at)}, {words.PERMIT[permit.state].word.lower()}")
    if permits:
        last = permits[-1]
        word = words.STEP[step.status].word.lower() if last.state == PermitState.REPORTED else ""
        text = word or words.PERMIT[last.state].word.lower()
        lane.tell(text, axis.at(permits[0].opened_at), axis.at(last.ended_at or facts.now))


def _with_refusals(lane: Lane, refusals: list[Refusal], facts: Facts, axis: Axis) -> Lane:
    """Refusals of a lane: a mark for each that has room, and their number beside the last."""
    if not refusals:
        return lane
    drawn: list[float] = []
    for refusal in refusals:
        at = axis.at(refusal.first_at)
        if not drawn or (at >= drawn[-1] + CLOSE and len(drawn) < REFUSED_DRAWN):
            lane.mark("refused", at, 0, "wide" if drawn else "")
            drawn.append(at)
    total = sum(refusal.count for refusal in refusals)
    text, few = _times(total, whole=not facts.refusals_left_out)
    lane.tell(text, drawn[0], drawn[-1])
    lane.count(few, drawn[0])
    lane.says.append(f"{text} from {_clock(refusals[0].first_at)}")
    return lane


def _times(total: int, *, whole: bool) -> tuple[str, str]:
    """How often, in words and as a few signs; not `whole`: rows were left out, so there may be more."""
    many = f"\N{MULTIPLICATION SIGN}{total}"
    if whole:
        return f"refused {words.count(total, 'time')}", many if total > 1 else ""
    return f"refused at least {words.count(total, 'time')}", f"{many}+"


def _clock(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%H:%M:%S")
