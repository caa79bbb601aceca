"""What a stop of many runs would meet now, counted by the database and never run by run.

The number of queries is the same for ten runs and for ten thousand. Runs that have ended are left out: a
stop of a scope has nothing to do with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, F, Min, OuterRef, Q, QuerySet, Subquery

from dashboard import words
from dashboard.effect_words import HAPPENED
from dashboard.pages.facts import counted
from dashboard.pages.preview import ICON, MODES, SILENT_S, Preview, Told
from dashboard.pages.stages import clock
from effects import presets
from effects.models import Delivery, Effect, Settlement
from runs import policies
from runs.models import (
    FINAL,
    Permit,
    PermitState,
    Reach,
    Run,
    RunStatus,
    Step,
    StepStatus,
    StopRequest,
    Worker,
)
from runs.policies import Match
from runs.presses import STRENGTH

NAMED, PLANS, GROUPS = 3, 200, 100
ORDER = {False: 0, True: 1, None: 2}
QUEUED = (StepStatus.PENDING, StepStatus.CLAIMED, StepStatus.WAITING_APPROVAL)
MOVED = {  # the statuses from which a mode moves a run
    "pause": (RunStatus.ACTIVE,),
    "cancel": (RunStatus.ACTIVE, RunStatus.PAUSING, RunStatus.PAUSED),
    "abandon": (
        *(RunStatus.ACTIVE, RunStatus.PAUSING, RunStatus.PAUSED),
        *(RunStatus.CANCELLING, RunStatus.CANCELLING_TIMEOUT, RunStatus.UNKNOWN),
    ),
}
BECOME = {"pause": "paused", "cancel": "asked to end", "abandon": "abandoned"}


def many(number: int, one: str, others: str = "") -> str:
    """As `words.count`, with the thousands set apart."""
    return words.count(number, one, others).replace(str(number), f"{number:,}", 1)


def withheld(match: Match) -> str:
    """The kinds and classes that a policy of effects withholds, in words."""
    parts = [words.clean(kind) for kind in match.kinds]
    parts += [words.CLASS.get(name, name) for name in match.classes]
    return " or ".join(parts)


@dataclass
class Met:
    """What these runs are at, as of `now`: at most six queries, whatever their number.

    `match`: of a policy; one of effects narrows what counts as in flight to what it withholds.
    """

    runs: QuerySet[Run]
    now: datetime
    match: Match | None = None

    def __post_init__(self) -> None:
        self.live = self.runs.exclude(status__in=FINAL).order_by()
        self.mine: dict[str, Any] = {"run__in": self.live.values("pk")}
        self.of_effects = self.match is not None and self.match.reach == Reach.EFFECTS
        self.counts = self._counted()
        self.oldest = self._oldest()

    def _counted(self) -> dict[str, Counter[str]]:
        told: dict[str, Counter[str]] = {name: Counter() for name in COUNTED}
        effects, permits = self._effects(), self._open_permits()
        heard = self.now - timedelta(seconds=SILENT_S)
        silent = Worker.objects.filter(**self.mine, last_heard_at__lt=heard)
        tools = self.live.exclude(ungateable=[])
        more = (
            counted("step", Step.objects.filter(**self.mine), "status", Count("pk")),
            counted("delivery", Delivery.objects.filter(**self.mine), "state", Count("pk")),
            counted("effect", effects, "settlement", Count("pk")),
            counted("permit", permits, "state", Count("pk")),
            counted("silent", silent, "run__workspace", Count("pk")),
            counted("tools", tools, "workspace", Count("pk")),
        )
        for what, state, number in counted("run", self.live, "status", Count("pk")).union(*more, all=True):
            told[what][state] += number
        return told

    def _open_permits(self) -> QuerySet[Permit]:
        rows = Permit.objects.filter(**self.mine, state=PermitState.OPEN)
        return rows.filter(policies.covered(self.match)) if self.match and self.of_effects else rows

    def _effects(self) -> QuerySet[Effect]:
        rows = Effect.objects.filter(**self.mine)
        if self.match is None or not self.of_effects:
            return rows
        return rows.filter(Q(kind_name__in=self.match.kinds) | Q(op_class__in=self.match.classes))

    def _oldest(self) -> list[Any]:
        """The actions that are in flight the longest, by effect or step, and since when."""
        title = Effect.objects.filter(run=OuterRef("run"), key=OuterRef("effect_key")).values("title")[:1]
        rows = self._open_permits().annotate(title=Subquery(title), step_name=F("step__name"))
        return list(rows.order_by("opened_at", "pk").values("title", "step_name", "opened_at")[:NAMED])

    @property
    def runs_total(self) -> int:
        return self.counts["run"].total()

    @property
    def in_flight(self) -> int:
        return self.counts["permit"].total()

    @property
    def settled(self) -> Counter[str]:
        return self.counts["effect"]

    @property
    def queued(self) -> int:
        return sum(self.counts["step"][state] for state in QUEUED)

    @property
    def retries(self) -> int:
        return self.counts["step"][StepStatus.RETRY_WAIT]

    @property
    def messages(self) -> Counter[str]:
        return self.counts["delivery"]

    def irreversible(self) -> int:
        """In flight, and declared without a compensation: of the newest PLANS of them."""
        rows = self._effects().filter(settlement=Settlement.DISPATCHED)
        plans = rows.order_by("-pk").values_list("plan", flat=True)[:PLANS]
        return sum(b'"kind"' not in bytes(plan) for plan in plans)

    def afterwards(self) -> list[tuple[presets.Preset, int, list[str]]]:
        """What happened by what its kinds say of calling it back: how many effects, and of which kinds.

        Of the GROUPS kinds with the most of them; what can't be called back first, then the most.
        """
        done = self._effects().filter(settlement__in=HAPPENED, asks_about__isnull=True).order_by()
        said = done.values_list("kind_name", "kind__reversible", "kind__provider")
        found: dict[str, tuple[presets.Preset, int, list[str]]] = {}
        for name, reversible, provider, n in said.annotate(n=Count("pk")).order_by("-n", "kind_name")[
            :GROUPS
        ]:
            preset = presets.named(reversible or "", provider or "")
            _, before, names = found.get(preset.name, (preset, 0, []))
            found[preset.name] = (preset, before + n, [*names, name])
        return sorted(found.values(), key=lambda one: (ORDER[one[0].can], -one[1], one[0].name))

    def silent_names(self) -> list[str]:
        """Those heard of the longest time ago, by name."""
        heard = self.now - timedelta(seconds=SILENT_S)
        rows = Worker.objects.filter(**self.mine, last_heard_at__lt=heard)
        oldest = rows.values("name").annotate(at=Min("last_heard_at")).order_by("at", "name")[:NAMED]
        return [words.brief(row["name"]) for row in oldest]


COUNTED = ("run", "step", "delivery", "effect", "permit", "silent", "tools")


def preview_of_scope(met: Met, *, gated: str = "", stop: StopRequest | None = None, who: str = "") -> Preview:
    """The lines of the dialog for these runs. `gated`: what would stand, in words; `stop`: what stands."""
    modes = [(mode, list(_of_mode(met, mode, gated, stop))) for mode in MODES]
    before = None
    if stop is not None:
        verb = "observes" if stop.observes else "has already stopped"
        named = f"stop #{stop.number} ({stop.mode}), {clock(stop.recorded_at)}"
        before = Told("st-stopping", f"{who} {verb} {gated}: {named}.", bold=True)
    return Preview(modes, list(_consequences(met)), met.queued, met.now, before)


def _of_mode(met: Met, mode: str, gated: str, stop: StopRequest | None) -> Iterable[Told]:
    if stop is not None and not stop.observes:
        yield _beside(mode, stop)
        if STRENGTH[mode] <= STRENGTH[stop.mode]:
            return
    if met.match and met.of_effects:
        yield from _withheld(met, met.match, mode)
        return
    yield _moved(met, mode)
    if gated:
        yield Told("lock", "No new run of it is admitted until the stop is released.")
    yield Told(ICON[mode], _waiting(met, mode))
    flying = met.settled["DISPATCHED"]
    if mode == "abandon" and flying:
        are = many(flying, "effect in flight becomes", "effects in flight become")
        yield Told("st-abandoned", f"{are} unknown at once; nobody is asked any more.", tone="c-unknown")


def _beside(mode: str, stop: StopRequest) -> Told:
    """What a press does to the stop that stands already."""
    if STRENGTH[mode] > STRENGTH[stop.mode]:
        return Told("st-stopping", f"Your press will replace stop #{stop.number}.")
    milder = " A milder mode changes nothing." if STRENGTH[mode] < STRENGTH[stop.mode] else ""
    return Told("st-stopping", f"Your press will join stop #{stop.number}, and is kept with it.{milder}")


def _moved(met: Met, mode: str) -> Told:
    runs = met.counts["run"]
    moved, active = sum(runs[state] for state in MOVED[mode]), runs[RunStatus.ACTIVE]
    if not moved:
        return Told(ICON[mode], "No run of it may start new work now.")
    held = f" ({moved - active:,} of them held already)" if moved > active else ""
    verb = "will be" if mode != "cancel" else "will be refused new work and"
    text = f"{many(moved, 'run')}{held} {verb} {BECOME[mode]}."
    rest = met.runs_total - moved
    more = f" {many(rest, 'more is', 'more are')} stopping already." if rest else ""
    return Told(ICON[mode], text + more, bold=True)


def _withheld(met: Met, match: Match, mode: str) -> Iterable[Told]:
    text = f"{withheld(match)} is refused in {many(met.runs_total, 'run')}. The runs go on."
    yield Told("st-refused", text, bold=True)
    declared = met.settled["DECLARED"]
    if declared:
        yield Told("st-refused", f"{many(declared, 'declared effect')} will not be sent.")
    if mode != "pause":
        yield Told("st-paused", "A policy of effects holds and ends no run: it is recorded as pause.")


def _waiting(met: Met, mode: str) -> str:
    waiting = [many(met.queued, "queued step")] if met.queued else []
    waiting += [many(met.retries, "retry", "retries")] if met.retries else []
    queued = met.messages["QUEUED"]
    waiting += [many(queued, "queued message")] if queued else []
    named = words.listed(waiting) or "Any new work"
    if mode == "pause":
        return f"{named} will be held{' and kept in place' if waiting else ''}."
    return f"{named} will be refused."


def _consequences(met: Met) -> Iterable[Told]:
    yield _in_flight(met)
    if met.in_flight and met.settled["DISPATCHED"] and (without := met.irreversible()):
        least = "At least " if without == PLANS else ""
        them = many(without, "effect in flight has", "effects in flight have")
        yield Told("st-flight", f"{least}{them} no compensation declared.", tone="c-flight")
    happened = met.settled["CONFIRMED"] + met.settled["PARTIAL"]
    if happened:
        them = "it" if happened == 1 else "them"
        text = f"{many(happened, 'effect')} already happened; stopping does not undo {them}."
        yield Told("st-confirmed", text, tone="c-known")
        yield from _afterwards(met)
    if over := met.messages["HANDED_OVER"]:
        done = many(over, "message was", "messages were")
        yield Told("st-confirmed", f"{done} handed over; stopping calls none of them back.", tone="c-known")
    if unknown := met.settled["UNKNOWN"]:
        yield Told("st-unknown", f"{many(unknown, 'effect')} still unknown.", tone="c-unknown")
    yield from _unheard(met)
    if tools := met.counts["tools"].total():
        runs = many(tools, "run has tools", "runs have tools")
        yield Told("lock", f"Not covered: {runs} at the provider, which we cannot refuse.")


TOLD = {False: ("st-refused", "c-flight"), True: ("st-comp", ""), None: ("st-none", "")}


def _afterwards(met: Met) -> Iterable[Told]:
    """Of what already happened, by kind: what can be compensated, and what can't, because …"""
    for preset, number, kinds in met.afterwards():
        icon, tone = TOLD[preset.can]
        named = [words.brief(kind, 60) for kind in kinds[:NAMED]]
        named += [words.count(len(kinds) - NAMED, "more kind")] if len(kinds) > NAMED else []
        yield Told(icon, f"{many(number, 'effect')} of {words.listed(named)}: {_goes_on(preset)}", tone=tone)


def _goes_on(preset: presets.Preset) -> str:
    """Its sentence, after a colon; that a compensation is no undo is said with it."""
    said = preset.sentence[:1].lower() + preset.sentence[1:]
    return f"{said} That would be a new action, which people decide on." if preset.can else said


def _unheard(met: Met) -> Iterable[Told]:
    silent = met.counts["silent"].total()
    if not silent:
        return
    names = met.silent_names()
    named = f" ({'among them ' if silent > len(names) else ''}{words.listed(names)})"
    text = f"{many(silent, 'worker')}{named} not heard for {SILENT_S} s."
    means = words.SILENCE if silent == 1 else words.SILENCE_OF_MANY
    if met.of_effects:  # they are refused those effects, and nothing else
        means = f"{means.partition(';')[0]}."
    yield Told("clock", f"{text} {means}")


def _in_flight(met: Met) -> Told:
    number = met.in_flight
    if not number:
        return Told("st-flight", "Nothing is in flight at this moment.")
    acts = many(number, "action is", "actions are")
    named = [
        f"{words.brief(row['title'] or row['step_name'])}, since {clock(row['opened_at'])}"
        for row in met.oldest
    ]
    named += [f"and {number - len(named):,} more"] if named and number > len(named) else []
    which = f": {'; '.join(named)}" if named else ""
    end = "They may still complete." if number > 1 else "It may still complete."
    return Told("st-flight", f"{acts} in flight{which}. {end}", bold=True, tone="c-flight")
