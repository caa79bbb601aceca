"""The move of a chunk: many locked runs of one workspace are stopped by a stop of their scope, set by set.

Each run gets what `stops.request_stop` gives to one: a stop of its own with its number, press, list and
evidence, or a press on the stop that is there. A run that was stopped so is told from another only by
`scope_stop` (docs/decisions/0021-a-run-stopped-by-its-scope-has-a-stop-of-its-own.md). The number of
statements grows with neither runs nor lines beyond the slices of `AT_ONCE`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from django.db.models import OuterRef, Subquery

from . import children, cleanup, followers, steps
from .access import Actor
from .evidence import AT_ONCE, Line, record_many
from .models import (
    FINAL,
    InFlight,
    Mode,
    Permit,
    PermitState,
    Press,
    Result,
    Run,
    Step,
    StopPart,
    StopRequest,
)
from .policies import covered, match_of
from .presses import SUPERSEDED, Wish, due_at, next_number, not_over, wished
from .rows import Each, insert
from .stops import (
    BORN,
    FENCED,
    MOVES,
    STRONGER,
    line_of_join,
    lines_of_abandon,
    lines_of_stop,
    stronger_after_the_end,
    where_it_stands,
)
from .store import database_time, new_id

VIA = "scope"  # how a stop that came from a scope was pressed
REPLACES = (
    "ON CONFLICT (stop_id, run_id) DO UPDATE SET"
    " result = excluded.result, run_stop_id = excluded.run_stop_id, at = excluded.at"
)
Row = TypeVar("Row", Step, Permit)
Lines = dict[str, list[Line]]


@dataclass
class Chunk:
    """The runs of one transaction, all locked, each with its last seq; and what was written of each."""

    scope_stop: StopRequest
    last_seqs: Mapping[str, int]
    results: dict[str, tuple[str, StopRequest]] = field(default_factory=dict)
    lines: Lines = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self.actor, self.wish = as_pressed(self.scope_stop)


def as_pressed(scope_stop: StopRequest) -> tuple[Actor, Wish]:
    """Who stopped the scope stops each run of it: their right was asked for there."""
    wish = Wish(
        mode=scope_stop.mode,
        requested_mode=scope_stop.requested_mode,
        reason=scope_stop.reason,
        note=scope_stop.note,
        deadline_s=scope_stop.deadline_s,
        reported_at=scope_stop.reported_at,
        arrived_at=scope_stop.arrived_at,
        key=f"\N{RIGHTWARDS ARROW} {scope_stop.pk}",  # no caller can send such a key
    )
    return Actor(scope_stop.actor, via=VIA), wish


def stop_runs(scope_stop: StopRequest, runs: Sequence[Run], last_seqs: Mapping[str, int]) -> int:
    """Stop these locked runs, each as it stands now; keeps a part of each. Returns how many there were."""
    chunk = Chunk(scope_stop, last_seqs)
    moved = [run for run in runs if scope_stop.mode in STRONGER[run.status]]
    _fence(chunk, moved)
    _join(chunk, [run for run in runs if run.pk not in chunk.results])
    written = [(run, last_seqs.get(run.pk, 0), chunk.lines[run.pk]) for run in runs]
    record_many(scope_stop.workspace_id, written)
    _keep_parts(chunk)
    return len(runs)


# runs that the mode moves -------------------------------------------------------------------------


def _fence(chunk: Chunk, runs: Sequence[Run]) -> None:
    """Bump, hold or withhold, list what is in flight; weaker stops before it are superseded."""
    if not runs:
        return
    actor, wish, ids = chunk.actor, chunk.wish, [run.pk for run in runs]
    weaker = _newest(ids, open_ones=True)
    before = _move(runs, wish.mode)
    touched = _by_run(_touch(chunk, ids))
    now = database_time()
    columns = [_moved_columns(run, before[run.pk], wish, now) for run in runs]
    made = _record(chunk, runs, now, columns)
    permits = _list_in_flight(made)
    press = _press(chunk, made, dict.fromkeys(ids, "recorded"), now)
    superseded = _supersede(chunk, weaker, made)
    told = followers.followed_all(runs, made, chunk.scope_stop, actor)
    for pk, stop in made.items():
        lines = lines_of_stop(stop, press, touched[pk], permits[pk])
        ended = lines_of_abandon(stop) if stop.mode == Mode.ABANDON else []
        chunk.lines[pk] += [*lines, *superseded.get(pk, ()), *told.get(pk, ()), *ended]
        chunk.results[pk] = (Result.RECORDED, stop)


def _move(runs: Sequence[Run], mode: str) -> dict[str, int]:
    """One UPDATE for all; the rows in hand say what it did. Returns the versions before."""
    before = {run.pk: run.cancel_version for run in runs}
    rows: Any = Run.objects.filter(pk__in=list(before))
    if MOVES[mode](rows) != len(before):
        raise AssertionError("a locked run was not where it had to be")
    for run in runs:
        run.status, run.cancel_version = BORN[mode], before[run.pk] + 1
    return before


def _touch(chunk: Chunk, ids: Sequence[str]) -> list[Step]:
    if chunk.wish.mode == Mode.ABANDON:
        return steps.withhold_all(ids)
    but = cleanup.spared_among(ids, chunk.scope_stop.workspace_id)
    return (steps.hold_all if chunk.wish.mode == Mode.PAUSE else steps.withhold_all)(ids, but)


def _moved_columns(run: Run, before: int, wish: Wish, now: datetime) -> dict[str, Any]:
    over = {"closed_at": now, "closed_because": FENCED} if wish.mode == Mode.ABANDON else {}
    versions = {"version_before": before, "version_after": before + 1}
    return {"deadline_at": due_at(wish, now), **versions, **over}


def _list_in_flight(made: Mapping[str, StopRequest]) -> dict[str, list[Permit]]:
    states = [PermitState.OPEN, PermitState.LOST]
    permits = list(Permit.objects.filter(run__in=list(made), state__in=states).order_by("pk"))
    rows = (InFlight(stop=made[one.run_id], permit=one, state_then=one.state) for one in permits)
    InFlight.objects.bulk_create(rows, batch_size=AT_ONCE)
    return _by_run(permits)


# runs that are stopping already, or have finished --------------------------------------------------


def _join(chunk: Chunk, runs: Sequence[Run]) -> None:
    """Keep the press with the stop that is there; where there is none, or a milder one of a run that has
    finished, with one that says where the run stands."""
    if not runs:
        return
    stops, now = _newest([run.pk for run in runs]), database_time()
    bare = [run for run in runs if _needs_its_own(stops.get(run.pk), chunk.wish)]
    made = _record(chunk, bare, now, [where_it_stands(run, now) for run in bare]) if bare else {}
    superseded = _supersede(chunk, {pk: stops[pk] for pk in made if pk in stops}, made)
    told = followers.followed_all(bare, made, chunk.scope_stop, chunk.actor)
    stops |= made
    answers = {run.pk: "finished" if run.status in FINAL else "joined" for run in runs}
    _press(chunk, stops, answers, now)
    followers.joined_all(runs, stops, chunk.scope_stop)
    for run in runs:
        line = line_of_join(run, stops[run.pk], chunk.actor, chunk.wish)
        chunk.lines[run.pk] += [line, *superseded.get(run.pk, ()), *told.get(run.pk, ())]
        result = Result.FINISHED if run.status in FINAL else Result.JOINED
        chunk.results[run.pk] = (result, stops[run.pk])


def _needs_its_own(stop: StopRequest | None, wish: Wish) -> bool:
    return stop is None or stronger_after_the_end(stop, wish)


# runs that go on: a policy of effects --------------------------------------------------------------


def list_effects(scope_stop: StopRequest, runs: Sequence[Run], last_seqs: Mapping[str, int]) -> int:
    """Through the lock of each run: what was let through before its gate shut is in the list from here on.

    Nothing of the run moves. Only one with something in flight gets a line.
    """
    assert scope_stop.policy is not None
    states = [PermitState.OPEN, PermitState.LOST]
    rows: Any = Permit.objects.filter(run__in=[run.pk for run in runs], state__in=states)
    permits: list[Permit] = list(rows.filter(covered(match_of(scope_stop.policy))).order_by("pk"))
    listed = (InFlight(stop=scope_stop, permit=one, state_then=one.state) for one in permits)
    # compensations were listed when the gate shut (runs/halts.py)
    InFlight.objects.bulk_create(listed, batch_size=AT_ONCE, ignore_conflicts=True)
    found = _by_run(permits)
    lines = [
        (run, last_seqs.get(run.pk, 0), [_listed(scope_stop, found[run.pk])])
        for run in runs
        if run.pk in found
    ]
    record_many(scope_stop.workspace_id, lines)
    ids = [run.pk for run in runs]
    keep_parts(scope_stop, ids, [Result.LISTED] * len(ids), [None] * len(ids), database_time())
    return len(runs)


def _listed(scope_stop: StopRequest, permits: Sequence[Permit]) -> Line:
    in_flight = [{"permit": one.pk, "effect": one.effect_key, "state": one.state} for one in permits]
    return Line("stop.listed", scope_stop.actor, {"in_flight": in_flight}, stop_id=scope_stop.pk)


# rows ----------------------------------------------------------------------------------------------


def _newest(ids: Sequence[str], *, open_ones: bool = False) -> dict[str, StopRequest]:
    """The stop that holds each run, or that ended it; `open_ones`: that is in force."""
    rows = StopRequest.objects.filter(not_over(), run__in=ids, scope="run")
    rows = rows.filter(closed_at__isnull=True) if open_ones else rows
    return {stop.run_id: stop for stop in rows.order_by("number") if stop.run_id}


def _record(
    chunk: Chunk, runs: Sequence[Run], now: datetime, columns: Iterable[Mapping[str, Any]]
) -> dict[str, StopRequest]:
    first = next_number(chunk.scope_stop.workspace_id, len(runs))
    passed_on = set(children.outside([run.pk for run in runs], chunk.scope_stop))
    same = {**wished(chunk.actor, chunk.wish, now), "gate_at": now, "fenced_at": now}
    rows = [
        StopRequest(
            workspace_id=run.workspace_id,
            number=first + place,
            run=run,
            run_key=run.key,
            scope_stop=chunk.scope_stop,
            passed_on_at=None if run.pk in passed_on else now,
            **same,
            **own,
        )
        for place, (run, own) in enumerate(zip(runs, columns, strict=True))
    ]
    names = [field.attname for field in StopRequest._meta.concrete_fields]
    insert(StopRequest, {name: Each(getattr(row, name) for row in rows) for name in names})
    return {run.pk: stop for run, stop in zip(runs, rows, strict=True)}


def _press(
    chunk: Chunk, stops: Mapping[str, StopRequest], answers: Mapping[str, str], now: datetime
) -> Press:
    """A press on the stop of each run; what is alike in all of them."""
    wish, actor = chunk.wish, chunk.actor
    alike = {"at": now, "actor": actor.id, "via": actor.via, "key": wish.key, "mode": wish.mode}
    alike |= {"requested_mode": wish.requested_mode, "note": wish.note, "arrived_at": wish.arrived_at}
    each = {
        "id": Each(new_id("psh") for _ in answers),
        "stop_id": Each(stops[pk].pk for pk in answers),
        "answer": Each(answers.values()),
    }
    insert(Press, {**alike, **each})
    return Press(**alike)


def _supersede(chunk: Chunk, weaker: Mapping[str, StopRequest], made: Mapping[str, StopRequest]) -> Lines:
    """Close stops in favour of stronger ones of the same runs; the evidence of it, by run."""
    if not weaker:
        return {}
    rows = StopRequest.objects.filter(pk__in=[stop.pk for stop in weaker.values()])
    open_ones = rows.filter(closed_at__isnull=True)
    mine = StopRequest.objects.filter(run=OuterRef("run"), scope_stop=chunk.scope_stop)
    rows.update(superseded_by=Subquery(mine.values("pk")[:1]))
    open_ones.update(closed_at=database_time(), closed_because=SUPERSEDED)
    return {pk: [_superseded(stop, made[pk])] for pk, stop in weaker.items()}


def _superseded(weaker: StopRequest, stop: StopRequest) -> Line:
    told = {"by": stop.pk, "was": weaker.mode, "now": stop.mode}
    return Line("stop.superseded", stop.actor, told, stop_id=weaker.pk)


def _keep_parts(chunk: Chunk) -> None:
    """One row a run. A bulk stop has it already, as frozen with the press: it gets its result."""
    results = [result for result, _ in chunk.results.values()]
    stops = [stop.pk for _, stop in chunk.results.values()]
    keep_parts(chunk.scope_stop, list(chunk.results), results, stops, database_time())


def keep_parts(
    stop: StopRequest,
    run_ids: Sequence[str],
    results: Sequence[str],
    run_stops: Sequence[str | None],
    at: datetime | None,
) -> None:
    """Insert parts of a stop, or set their results."""
    kept = {"run_id": Each(run_ids), "result": Each(map(str, results)), "run_stop_id": Each(run_stops)}
    insert(StopPart, {"stop_id": stop.pk, "at": at, **kept}, then=REPLACES)


def _by_run(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row.run_id].append(row)
    return found
