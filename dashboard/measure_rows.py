"""The rows behind the seven measures: set-based queries that end at MOST, the newest first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet, Subquery
from django.db.models.expressions import RawSQL

from effects.duplicates import TWICE
from effects.models import SETTLED, Compensation, Delivery, Effect, Settlement
from effects.models import Report as ReportRow
from runs.access import DRILLS
from runs.models import Evidence, InFlight, Permit, ScopeKind, StopPart, StopRequest
from runs.models.evidence import EFFECTIVE

MOST = 10_000
# Written out in the query, or SQLite could not use the index of just these lines: of a long run, each permit
# would be compared with every line before it.
HOLDING = [RawSQL(f"'{kind}'", []) for kind in EFFECTIVE]  # noqa: S611
SETTLING = tuple(f"effect.{value.lower()}" for value in Settlement.values)
UNKNOWN, ACCEPTED = Settlement.UNKNOWN, Settlement.ACCEPTED_UNKNOWN


@dataclass(frozen=True)
class Window:
    """Of which rows: from `since` (None: ever) up to `until`, of a workspace ("": all), of one run, or of one
    stop of many runs (`stop_id`): what it did, and how its runs stand.

    Of one run or stop its drills count, too: who reads that report knows that it is one.
    """

    until: datetime
    since: datetime | None = None
    workspace_id: str = ""
    run_id: str = ""
    stop_id: str = ""
    drills: bool = False

    def within(self, moment: str) -> Q:
        asked = {f"{moment}__lte": self.until}
        return Q(**asked, **({f"{moment}__gte": self.since} if self.since else {}))

    def of_run(self, path: str = "run__") -> Q:
        """Whose run counts; `path` leads to the run."""
        if self.run_id:
            return Q(**{f"{path}pk": self.run_id})
        if self.stop_id:
            return Q(**{f"{path}pk__in": StopPart.objects.filter(stop=self.stop_id).values("run")})
        asked = Q(**{f"{path}workspace_id": self.workspace_id}) if self.workspace_id else Q()
        return asked if self.drills else asked & Q(**{f"{path}drill": False})

    def of_stop(self, path: str = "") -> Q:
        """Whose stop counts, also one that is of no run; drills stop whole scopes in a place of their own."""
        if self.run_id:
            return Q(**{f"{path}run_id": self.run_id})
        if self.stop_id:
            return Q(**{f"{path}pk": self.stop_id}) | Q(**{f"{path}scope_stop": self.stop_id})
        asked = Q(**{f"{path}workspace_id": self.workspace_id}) if self.workspace_id else Q()
        if self.drills:
            return asked
        real = Q(**{f"{path}run__isnull": True}) | Q(**{f"{path}run__drill": False})
        return asked & real & ~Q(**{f"{path}workspace__slug": DRILLS})


@dataclass(frozen=True)
class Sample:
    """One thing that a measure is made of, and one row of the list behind it.

    `at`: the moment by which it counts. `seconds`: its length, None while there is none. `counts`: it is one
    of the n. `line`: the evidence line to look at. `stop`: the number of a stop.
    """

    at: datetime
    what: str
    state: str
    run_id: str = ""
    seconds: float | None = None
    counts: bool = True
    line: int | None = None
    stop: int | None = None


def _span(start: datetime, end: datetime) -> float:
    return max(0.0, (end - start).total_seconds())


# 1: from a request to its gate -----------------------------------------------------------------------


def acknowledged(window: Window) -> list[Sample]:
    """Stops that took effect, each with the time from the arrival of its press to its own gate.

    A stop that waited for its run has no such time, nor has one for which no arrival is kept: its row is from
    before there were any, or nobody pressed (a run was born under a stop). The runs of a scope that stands
    were refused by the gate of the scope: its own stop is measured, not theirs.
    """
    own = Q(scope_stop__isnull=True) | Q(scope_stop__scope=ScopeKind.BULK)
    rows = StopRequest.objects.filter(own, window.of_stop(), window.within("gate_at"))
    told = rows.order_by("-gate_at", "-pk").values_list(
        *("gate_at", "arrived_at", "scope", "ends_at", "number", "run_id", "run_key")
    )
    found = []
    for gate, arrived, scope, ends, number, run, key in told[:MOST]:
        state = "waited" if scope == ScopeKind.RUN and ends else "acknowledged" if arrived else "not kept"
        seconds = _span(arrived, gate) if state == "acknowledged" else None
        what = key or f"gate of a {scope}"
        found.append(Sample(gate, what, state, run or "", seconds, seconds is not None, stop=number))
    return found


# 2: new work behind a stop ---------------------------------------------------------------------------


def new_work(window: Window) -> list[Sample]:
    """The stops of runs that took effect, and what was opened behind one: by line and version, no clock."""
    stops = _effective(window)
    within = stops.filter(window.within("gate_at")).order_by("-gate_at", "-pk")
    told = within.values_list("gate_at", "run_key", "run_id", "number")[:MOST]
    held = [Sample(at, key, "stop", run or "", stop=number) for at, key, run, number in told if at]
    return [*_opened_behind(window, stops), *held]


def _effective(window: Window) -> QuerySet[StopRequest]:
    rows = StopRequest.objects.filter(window.of_stop(), scope=ScopeKind.RUN, run__isnull=False)
    return rows.filter(gate_at__isnull=False, finished_before=False)


def _opened_behind(window: Window, stops: QuerySet[StopRequest]) -> list[Sample]:
    """Also behind a stop that is older than the window: of the newest stops, whenever they were."""
    held = stops.order_by("-pk").values("run_id")[:MOST]
    ended = Evidence.objects.filter(
        stream=OuterRef("stream"),
        kind__in=HOLDING,
        seq__lt=OuterRef("seq"),
        current_version__gte=OuterRef("carried_version"),
    )
    other = Permit.objects.filter(pk=OuterRef("permit_id")).exclude(guard="ordinary")
    lines = Evidence.objects.filter(window.within("at"), kind="permit.opened", stream__in=Subquery(held))
    rows = lines.filter(Exists(ended), ~Exists(other)).order_by("-at", "stream", "-seq")
    told = rows.values_list("at", "effect_key", "step_id", "stream", "seq")[:MOST]
    return [Sample(at, key or step, "found", run, counts=False, line=seq) for at, key, step, run, seq in told]


# 3: what was in flight -------------------------------------------------------------------------------


def reconciled(window: Window) -> list[Sample]:
    """Effects in flight at a stop, each once: with the time from the first stop that listed it to its
    settlement. What had settled before was not active."""
    about = Effect.objects.filter(run=OuterRef("permit__run"), key=OuterRef("permit__effect_key"))
    facts = {name: Subquery(about.values(name)[:1]) for name in ("settlement", "settled_at", "title")}
    rows = InFlight.objects.filter(_listed(window), window.within("stop__gate_at"))
    told = rows.exclude(permit__effect_key="").annotate(**facts).order_by("-stop__gate_at", "-pk")
    found: dict[tuple[str, str], Sample] = {}
    columns = ("stop__gate_at", "stop__number", "permit__run_id", "permit__effect_key", *facts)
    for gate, number, run, key, state, settled, title in told.values_list(*columns)[:MOST]:
        known = state in SETTLED and settled is not None
        if state is None or (known and settled < gate):
            continue
        seconds = _span(gate, settled) if known else None
        found[run, key] = Sample(gate, title, state, run, seconds, stop=number)
    return list(found.values())


def _listed(window: Window) -> Q:
    """A policy of effects lists what is in flight of its runs on its own stop: asked by the permit's run."""
    if window.stop_id:
        parts = StopPart.objects.filter(stop=window.stop_id, run_stop__isnull=False)
        return Q(stop=window.stop_id) | Q(stop__in=parts.values("run_stop"))
    return window.of_run("permit__run__")


# 4: keys that a provider holds twice -----------------------------------------------------------------


def duplicates(window: Window) -> list[Sample]:
    """Keys that were counted at a provider, of what was retried, or sent by a run that was stopped."""
    stopped = StopRequest.objects.filter(
        run=OuterRef("run"), scope=ScopeKind.RUN, gate_at__isnull=False, finished_before=False
    )
    after = Q(attempt__gt=1) | Exists(stopped)
    looked = Q(counted__isnull=False) | Q(checks__gt=0)
    return _newest(
        _counted(model.objects.filter(looked, after, window.of_run(), window.within("dispatched_at")))
        for model in (Effect, Compensation)
    )


def _counted(rows: QuerySet[Any]) -> Iterable[Sample]:
    told = rows.order_by("-dispatched_at", "-pk").values_list("dispatched_at", "title", "run_id", "counted")
    for at, title, run, counted in told[:MOST]:
        state = "uncounted" if counted is None else "twice" if counted >= TWICE else "once"
        yield Sample(at, title, state, run, counts=counted is not None)


def _newest(parts: Iterable[Iterable[Sample]]) -> list[Sample]:
    found = [one for part in parts for one in part]
    return sorted(found, key=lambda one: one.at, reverse=True)[:MOST]


# 5: compensations that were sent ---------------------------------------------------------------------

CAME_TO = {
    "VERIFIED": "verified",
    "FAILED": "failed",
    "NOT_NEEDED": "failed",  # a failed one that a reviewer closed
    "UNKNOWN": "unknown",
    "ACCEPTED_UNKNOWN": "unknown",
    "DISPATCHED": "checking",
}


def compensations(window: Window) -> list[Sample]:
    """Those that were sent, by what they came to. One that was never sent is none of them."""
    closed = ~Q(state="NOT_NEEDED") | Q(settled_at__isnull=False)
    rows = Compensation.objects.filter(closed, window.of_run(), window.within("dispatched_at"))
    told = rows.filter(state__in=CAME_TO).order_by("-dispatched_at", "-pk")
    columns = told.values_list("dispatched_at", "title", "run_id", "state")[:MOST]
    return [
        Sample(at, title, CAME_TO[state], run, counts=state != "DISPATCHED")
        for at, title, run, state in columns
    ]


# 6: how long things stay unknown ---------------------------------------------------------------------


def unknown(window: Window) -> list[Sample]:
    """What is unknown now, the oldest first; then what became known in the window, by how long that took."""
    models = ((Effect, "settlement"), (Delivery, "state"), (Compensation, "state"))
    open_ones = [one for model, state in models for one in _open(model, state, window)]
    oldest = sorted(open_ones, key=lambda one: one.at)
    return [*oldest, *_newest(_closed(model, state, window) for model, state in models)][:MOST]


def _open(model: Any, state: str, window: Window) -> Iterable[Sample]:
    rows = model.objects.filter(window.of_run(), **{state: UNKNOWN}, unknown_since__lte=window.until)
    told = rows.order_by("unknown_since", "pk").values_list("unknown_since", "title", "run_id")[:MOST]
    for since, title, run in told:
        yield Sample(since, title, "open", run, _span(since, window.until), counts=False)


def _closed(model: Any, state: str, window: Window) -> Iterable[Sample]:
    once = Q(unknown_since__isnull=False, settled_at__isnull=False, settled_at__gte=F("unknown_since"))
    rows = model.objects.filter(once, window.of_run(), window.within("settled_at")).exclude(
        **{state: UNKNOWN}
    )
    told = rows.order_by("-settled_at", "-pk")
    columns = told.values_list("settled_at", "unknown_since", "title", "run_id", state)[:MOST]
    for settled, since, title, run, now in columns:
        word = "accepted" if now == ACCEPTED else "closed"
        yield Sample(settled, title, word, run, _span(since, settled), counts=now != ACCEPTED)


# 7: reports ------------------------------------------------------------------------------------------


def reports(window: Window) -> list[Sample]:
    """Issued versions, by whether each effect declared by then has a line of its settlement in it."""
    mine = Effect.objects.filter(run=OuterRef("run"), declared_at__lte=OuterRef("issued_at"))
    rows = ReportRow.objects.filter(window.of_run(), window.within("issued_at"))
    told = rows.annotate(some=Exists(mine), bare=Exists(mine.filter(_without_a_line())))
    columns = ("issued_at", "version", "run__key", "run_id", "some", "bare")
    return [
        Sample(at, f"{key} v{version}", _wholeness(some, bare), run, counts=some)
        for at, version, key, run, some, bare in told.order_by("-issued_at", "-pk").values_list(*columns)[
            :MOST
        ]
    ]


def _without_a_line() -> Any:
    lines = Evidence.objects.filter(
        stream=OuterRef("run_id"),
        effect_key=OuterRef("key"),
        kind__in=SETTLING,
        seq__lte=OuterRef(OuterRef("upto_seq")),
    )
    return ~Exists(lines)


def _wholeness(some: bool, bare: bool) -> str:
    return "without effects" if not some else "bare" if bare else "whole"


def effects_with_evidence(run_id: str) -> tuple[int, int]:
    """Of a run, as it stands: how many of its effects have a line of their settlement, of how many."""
    line = Evidence.objects.filter(stream=OuterRef("run_id"), effect_key=OuterRef("key"), kind__in=SETTLING)
    rows = Effect.objects.filter(run_id=run_id).annotate(told=Exists(line))
    counted = rows.aggregate(having=Count("pk", filter=Q(told=True)), of=Count("pk"))
    return counted["having"], counted["of"]
