"""From the gate to the fence: a stop of a scope, or of many runs, reaches each run of it.

The gate's commit is the acknowledgement. Each chunk of runs is then stopped in a transaction of its own, the
request's first and the sweep's after it, by any process, from rows alone: a run that was reached has a part
of the stop. Rows that somebody else holds are passed over, and waited for in the last pass.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from django.db.models import Count, Exists, OuterRef, Q, QuerySet, Subquery

from . import children, fences, scopes, wake
from .access import SYSTEM
from .evidence import Line, record
from .models import (
    FINAL,
    STANDING,
    Evidence,
    Permit,
    PermitState,
    Reach,
    Result,
    Run,
    RunStatus,
    ScopeKind,
    StopPart,
    StopRequest,
    Workspace,
)
from .policies import covered, match_of
from .presses import StopAnswer, close
from .store import alongside, database_time, stop_verb, verb

log = logging.getLogger(__name__)

CHUNK = 500  # runs a transaction
A_PASS = 20_000  # ids that are read at once
THE_LAST = 100  # runs that are reached while no admission goes on
IN_REQUEST_S = 1.0  # so long the request of a stop goes on with it; the sweep does the rest
IN_SWEEP_S = 10.0
AGAIN_S = 0.01  # between two looks at rows that somebody else holds
OVER = "its runs are closed"  # why a scope stop was closed


def fence(stop_id: str, within_s: float = IN_REQUEST_S, *, patient: bool = False) -> bool:
    """Stop every run of a scope stop or a bulk stop that was not reached yet; whether all were reached.

    At least one chunk, and no further one once `within_s` have passed. Any number of processes may do it
    at once, and die in between. `patient`: wait for rows that others hold, as the sweep does; a person who
    pressed is not kept waiting by a dispatcher that is stuck, so a request only asks for them again.
    """
    end, waits, few = time.monotonic() + within_s, False, 0
    with alongside(lambda result: None):  # the caller's answer is that of its own stop
        while (ids := _next(stop_id)) is not None:
            if len(ids) <= few and _fenced(stop_id):
                children.pass_on_all(stop_id, end)
                return True
            reached = _one_pass(stop_id, ids, end, waits=waits)
            if time.monotonic() > end:
                return False
            few = THE_LAST
            waits = patient and not reached  # whoever was passed over is waited for now
            if not (reached or waits):
                time.sleep(AGAIN_S)
    return True


def _one_pass(stop_id: str, ids: Sequence[str], end: float, *, waits: bool) -> int:
    """How many of these runs were reached. A chunk that can't be stopped keeps no other from it."""
    reached, wrong = 0, None
    for some in _slices(ids):
        try:
            reached += _stop_chunk(stop_id, some, waits=waits)
        except Exception as error:
            log.warning("stop %s has not reached %d runs from %s on: %s", stop_id, len(some), some[0], error)
            wrong = error
        if time.monotonic() > end:
            break
    if wrong is not None and not reached:
        raise wrong
    return reached


def carried_on(answer: StopAnswer) -> StopAnswer:
    """After the commit of a bulk stop, in its request; what it does not reach, the sweep does."""
    if answer.stop.fenced_at is not None:
        return answer
    try:
        done = fence(answer.stop.pk)
        answer = replace(answer, stop=StopRequest.objects.get(pk=answer.stop.pk))
    except Exception:
        log.exception("stop %s has not reached all its runs yet; the sweep goes on", answer.stop.pk)
        done = False
    if not done:
        wake.run_soon("effects.tasks.sweep")
    return answer


def carry_on(stop_id: str, within_s: float = IN_SWEEP_S) -> None:
    """The sweep's part of it."""
    if not fence(stop_id, within_s, patient=True):
        wake.run_soon("effects.tasks.sweep")


def to_carry_on(limit: int = 100) -> list[str]:
    """Ids of stops that have not reached all their runs, oldest first; a moment old, so that the request
    which recorded them is not met."""
    early = database_time() - timedelta(seconds=IN_REQUEST_S)
    rows = unfenced().filter(recorded_at__lte=early)
    return list(rows.order_by("recorded_at").values_list("pk", flat=True)[:limit])


def unfenced() -> QuerySet[StopRequest]:
    """Stops of scopes, and bulk stops, that have still to reach runs."""
    rows = StopRequest.objects.filter(run__isnull=True, scope__in=[*STANDING, ScopeKind.BULK])
    rows = rows.filter(released_at__isnull=True, closed_at__isnull=True, superseded_by__isnull=True)
    return rows.filter(fenced_at__isnull=True).exclude(observes=True)


def _next(stop_id: str) -> list[str] | None:
    """Runs whose turn is still to come, in key order; None when this stop reaches no more."""
    stop = unfenced().filter(pk=stop_id).first()
    if stop is None:
        return None
    return list(_left(stop).order_by("pk").values_list("pk", flat=True)[:A_PASS])


def _slices(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), CHUNK):
        yield ids[start : start + CHUNK]


def _left(stop: StopRequest) -> QuerySet[Run]:
    """Runs of the stop that have no part of it yet; of a bulk stop, whose part is still to be done."""
    parts = StopPart.objects.filter(stop=stop, run=OuterRef("pk"))
    if stop.scope == ScopeKind.BULK:
        return Run.objects.filter(Exists(parts.filter(_undone())))
    rows = scopes.in_scope(stop).filter(~Exists(parts))
    return rows.filter(_may_send(stop)) if lists_only(stop) else rows.exclude(status__in=FINAL)


def _may_send(stop: StopRequest) -> Q:
    """Of a policy of effects: runs that go on, and those with something of its kinds in flight."""
    assert stop.policy is not None
    rows = Permit.objects.filter(covered(match_of(stop.policy)), run__workspace_id=stop.workspace_id)
    flying, lost = (
        Q(pk__in=rows.filter(state=state).values("run")) for state in (PermitState.OPEN, PermitState.LOST)
    )
    return Q(status=RunStatus.ACTIVE) | flying | (lost & ~Q(status__in=FINAL))


def _undone() -> Q:
    """Of a bulk stop: PENDING, or FINISHED when it was pressed and without the stop that says so."""
    return Q(result=Result.PENDING) | Q(result=Result.FINISHED, run_stop__isnull=True)


def lists_only(stop: StopRequest) -> bool:
    """Whether it withholds effects alone: its runs go on, and what is in flight of those is listed."""
    return stop.policy is not None and stop.policy.reach == Reach.EFFECTS


@stop_verb
def _stop_chunk(stop_id: str, ids: Sequence[str], *, waits: bool) -> int:
    """Stop those of these runs that were not reached yet; how many that were."""
    return _reach(stop_id, ids, waits=waits)


def _reach(stop_id: str, ids: Sequence[str], *, waits: bool) -> int:
    """Lock, then look."""
    locked = Run.objects.select_for_update(no_key=True, skip_locked=not waits).filter(pk__in=ids)
    held = list(locked.order_by("pk").values_list("pk", flat=True))
    stop = unfenced().select_related("policy").filter(pk=stop_id).first()
    if stop is None or not held:
        return 0
    lines = Evidence.objects.filter(stream=OuterRef("pk")).order_by("-seq").values("seq")[:1]
    rows = _left(stop).filter(pk__in=held).annotate(last_seq=Subquery(lines)).order_by("pk")
    runs: list[Any] = list(rows)
    if not runs:
        return 0
    reach = fences.list_effects if lists_only(stop) else fences.stop_runs
    return reach(stop, runs, {run.pk: run.last_seq or 0 for run in runs})


@stop_verb
def _fenced(stop_id: str) -> bool:
    """Every run was reached: say so, once. Under the workspace's lock, which every admission takes too.

    A policy of effects refuses no admission: the runs that came meanwhile are reached under that lock, else
    there would be new ones for ever.
    """
    workspace_id = StopRequest.objects.values_list("workspace_id", flat=True).get(pk=stop_id)
    workspace = Workspace.objects.select_for_update(no_key=True).get(pk=workspace_id)
    stop = unfenced().select_related("policy").filter(pk=stop_id).first()
    if stop is None:
        return True
    if lists_only(stop):
        _reach(stop_id, list(_left(stop).order_by("pk").values_list("pk", flat=True)[:CHUNK]), waits=False)
    if _left(stop).exists():
        return False
    found = _results(stop)
    rows = StopRequest.objects.filter(pk=stop_id, fenced_at__isnull=True)
    rows.update(fenced_at=database_time(), runs_n=sum(found.values()))
    record(workspace, Line("stop.fenced", SYSTEM.id, {"runs": dict(found)}, stop_id=stop_id))
    return True


# reading, closing ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Progress:
    """`done` of `total` runs were reached, and what it came to: how many of each Result."""

    done: int
    total: int
    results: Counter[str] = field(default_factory=Counter)


def progress(stop: StopRequest) -> Progress:
    """How far a scope stop or a bulk stop has come: two queries, whatever the number of runs."""
    found = _results(stop)
    pending = found.pop(Result.PENDING, 0)
    done = sum(found.values())
    if stop.fenced_at is None and stop.scope != ScopeKind.BULK and not stop.observes:
        pending = _left(stop).count()
    return Progress(done, done + pending, found)


def _results(stop: StopRequest) -> Counter[str]:
    rows = StopPart.objects.filter(stop=stop).order_by().values_list("result").annotate(n=Count("pk"))
    return Counter(dict(rows))


def _open_parts() -> QuerySet[StopPart]:
    return StopPart.objects.filter(
        stop=OuterRef("pk"), run_stop__isnull=False, run_stop__closed_at__isnull=True
    )


def _closable() -> QuerySet[StopRequest]:
    """Fenced, each run's part closed, and released where it stands."""
    rows = StopRequest.objects.filter(run__isnull=True, closed_at__isnull=True, fenced_at__isnull=False)
    let_go = Q(scope=ScopeKind.BULK) | Q(scope__in=STANDING, released_at__isnull=False)
    return rows.filter(let_go).filter(~Exists(_open_parts()))


def to_close(limit: int = 100) -> list[str]:
    """Ids of scope stops and bulk stops that are over, oldest first."""
    return list(_closable().order_by("recorded_at").values_list("pk", flat=True)[:limit])


@verb
def close_if_over(stop_id: str) -> bool:
    """Close a stop whose runs are all closed; again changes nothing. Whether it is closed."""
    workspace_id = StopRequest.objects.values_list("workspace_id", flat=True).get(pk=stop_id)
    workspace = Workspace.objects.select_for_update(no_key=True).get(pk=workspace_id)
    stop = _closable().filter(pk=stop_id).first()
    if stop is not None:
        close(stop, OVER)
        record(workspace, Line("stop.closed", SYSTEM.id, {"because": OVER}, stop_id=stop_id))
    return StopRequest.objects.filter(pk=stop_id, closed_at__isnull=False).exists()
