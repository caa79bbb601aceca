"""Child runs: a stop of a run reaches its registered children, and theirs.

The parent's commit is the acknowledgement; each child is then stopped in a transaction of its own, the
request's first and the sweep's after it, from rows alone. A child that is admitted later finds the stop
under its parent's lock and is born under it (docs/decisions/0014-a-stop-is-passed-on-from-rows.md).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet

from . import scopes, stops, wake
from .access import SYSTEM, Actor, NotFound, demand
from .evidence import Line, record
from .guard import ENDED
from .models import (
    FINAL,
    Mode,
    Press,
    Result,
    Run,
    RunStatus,
    ScopeKind,
    StopPart,
    StopRequest,
    Workspace,
)
from .presses import RESUMED, STRENGTH, StopAnswer, Wish, close, due_at, record_press, record_stop, stop_of
from .scopes import RESTORED
from .store import alongside, database_time, stop_verb
from .waiting import bind, supersede

log = logging.getLogger(__name__)

VIA = "parent"  # how a stop that was passed on was pressed
IN_REQUEST_S = 1.0  # so long the request of a stop goes on to the children; the sweep does the rest
SLICE = 200
DEEPEST = 32
_at_it: ContextVar[bool] = ContextVar("at_it", default=False)


# admission ----------------------------------------------------------------------------------------


class TooDeep(ValueError):
    """A run stands at most 32 levels below its oldest ancestor. Name a parent further up."""


def lock_ancestors(actor: Actor, workspace: Workspace, parent_id: str) -> list[Run]:
    """The parent and those above it, locked from the top: a stop of one of them comes before this
    admission, or finds the child. The parent is the last; empty without one.

    NotFound for a run of another workspace, as for one that is not there; TooDeep.
    """
    ids: list[str] = []
    above: str | None = parent_id or None
    while above is not None:
        ids.append(above)
        if len(ids) > DEEPEST:
            raise TooDeep(parent_id)
        above = Run.objects.filter(pk=above, workspace=workspace).values_list("parent_id", flat=True).first()
    locked = Run.objects.select_for_update(no_key=True)
    found = [run for pk in reversed(ids) if (run := locked.filter(pk=pk, workspace=workspace).first())]
    if ids and (not found or found[-1].pk != parent_id):
        raise NotFound("run")
    if found:
        demand(actor, "write", found[-1])
    return found


def inherited(ancestors: list[Run]) -> StopRequest | None:
    """The strongest stop that a run is born under: of its parent, or above a parent that has finished.

    A stop that was ended by a resume holds nobody. One further up that has not reached the parent yet
    finds the new run with it.
    """
    over: list[StopRequest] = []
    for run in reversed(ancestors):
        stop = stop_of(run) or _of_a_restore(run)
        over += [stop] if stop is not None else []
        if run.status not in FINAL:
            break
    return max(over, key=lambda stop: STRENGTH[stop.mode], default=None)


def _of_a_restore(run: Run) -> StopRequest | None:
    """What holds a run that a restore paused, which has no stop of its own."""
    if run.status != RunStatus.PAUSED:
        return None
    rows = StopRequest.objects.filter(workspace_id=run.workspace_id, scope=ScopeKind.WORKSPACE, via=RESTORED)
    return rows.order_by("-number").first()


def mode_at_birth(*over: StopRequest | None) -> str | None:
    """The strongest mode of the stops that a run is born under; None: it is born ACTIVE."""
    modes = [stop.mode for stop in over if stop is not None]
    return max(modes, key=lambda mode: STRENGTH[mode], default=None)


def born_under(run: Run, waiting: StopRequest | None, over: StopRequest | None) -> list[Line]:
    """Bind a new run to the stop that waited for its key, and to the one of its parent."""
    lines = bind(waiting, run) if waiting is not None else []
    if waiting is not None:
        _is_passed_on(waiting)
    if over is None:
        return lines
    actor, wish = _as_pressed(over)
    wish = replace(wish, arrived_at=None)  # nobody pressed: its parent was stopped before it was there
    if waiting is not None and STRENGTH[over.mode] <= STRENGTH[waiting.mode]:
        record_press(waiting, actor, wish, wish.key, "joined")
        return lines
    return lines + _born_stopping(run, actor, wish, waiting)


def _born_stopping(run: Run, actor: Actor, wish: Wish, weaker: StopRequest | None) -> list[Line]:
    now, version = database_time(), run.cancel_version
    moments = {"deadline_at": due_at(wish, now), "passed_on_at": now}
    stop = record_stop(run, actor, wish, now, version_before=version, version_after=version, **moments)
    record_press(stop, actor, wish, wish.key, "recorded")
    told = {"mode": stop.mode, "reason": stop.reason, "because": "its parent is stopped"}
    named: dict[str, Any] = {"stop_id": stop.pk, "current_version": version}
    lines = [Line("stop.acknowledged", stop.actor, told, **named)]
    if weaker is not None:
        lines.append(supersede(weaker, stop))
    if stop.mode == Mode.ABANDON:
        close(stop, "fenced")
        lines.append(Line("run.abandoned", stop.actor, **named))
        lines.append(Line("stop.closed", stop.actor, {"because": "fenced"}, stop_id=stop.pk))
    return lines


# passing a stop on --------------------------------------------------------------------------------


def follow(run: Run, stop: StopRequest, actor: Actor) -> list[Line]:
    """In the transaction of a stop: without children there is nobody to pass it on to.

    A stop of a scope (a restore's, for one) reaches each run by itself.
    """
    if stop.run_id is None:
        return []
    children = Run.objects.filter(parent=run)
    if not children.exists():
        _is_passed_on(stop)
        return []
    if not _at_it.get():
        transaction.on_commit(partial(_at_once, stop.pk), robust=True)
    return [_registered(stop, actor, children.count())]


def _registered(stop: StopRequest, actor: Actor, children: int) -> Line:
    return Line("stop.has_children", actor.id, {"registered": children}, stop_id=stop.pk)


def follow_many(
    stops: Mapping[str, StopRequest], scope_stop: StopRequest, actor: Actor
) -> dict[str, list[Line]]:
    """The same in a chunk of a scope stop, which reaches the children that are in the scope by itself: only
    stops with children outside are passed on, after the chunk (`passed_on_at` was set when it was recorded).
    """
    under = Run.objects.filter(parent__in=list(stops)).order_by()
    found = under.values_list("parent_id").annotate(n=Count("pk"))
    return {pk: [_registered(stops[pk], actor, n)] for pk, n in found}


def outside(run_ids: Sequence[str], scope_stop: StopRequest) -> list[str]:
    """Those of these runs with a child that a stop of their scope may not reach by itself."""
    children = Run.objects.filter(parent__in=run_ids).filter(
        (~Q(status__in=FINAL) & ~_reached_by(scope_stop)) | _has_children()
    )
    return list(children.order_by().values_list("parent_id", flat=True).distinct())


def _has_children() -> Q:
    """Finished ones with children: these stand for them (`_finished_below`), wherever they are."""
    return Q(Exists(Run.objects.filter(parent=OuterRef("pk"))), status__in=FINAL)


def _reached_by(scope_stop: StopRequest, let_go: Q | None = None) -> Q:
    """Runs that a stop of a scope reaches by itself, or of a bulk stop: that are on its list.

    `let_go`: not those whose stop was ended by a resume since.
    """
    parts = StopPart.objects.filter(stop=scope_stop, run=OuterRef("pk"))
    if scope_stop.scope == ScopeKind.BULK:
        mine = Q(Exists(parts.exclude(result=Result.NOT_PERMITTED)))
    else:
        mine = Q(pk__in=scopes.in_scope(scope_stop).values("pk"))
    if let_go is None:
        return mine
    free = StopRequest.objects.filter(let_go, pk=OuterRef("run_stop_id"))
    return mine & ~Q(Exists(parts.filter(Exists(free))))


def again(run: Run, stop: StopRequest) -> None:
    """Another press of a stop that was passed on: a child that was resumed since is reached once more."""
    if stop.passed_on_at is None or not Run.objects.filter(parent=run).exists() or not _left(stop).exists():
        return
    StopRequest.objects.filter(pk=stop.pk).update(passed_on_at=None)
    if not _at_it.get():
        transaction.on_commit(partial(_at_once, stop.pk), robust=True)


def _is_passed_on(stop: StopRequest) -> None:
    StopRequest.objects.filter(pk=stop.pk, passed_on_at__isnull=True).update(passed_on_at=F("recorded_at"))


def pass_on_all(scope_stop_id: str, end: float) -> None:
    """After a chunk of a scope stop: on to children outside of its scope; the sweep does the rest."""
    rows = StopRequest.objects.filter(scope_stop=scope_stop_id, passed_on_at__isnull=True)
    for stop_id in rows.order_by("pk").values_list("pk", flat=True)[:SLICE]:
        left = end - time.monotonic()
        if left <= 0 or not pass_on(stop_id, within_s=left):
            return


def _at_once(stop_id: str) -> None:
    """After the commit, in the same request; what it does not reach, the sweep does."""
    try:
        done = pass_on(stop_id, within_s=IN_REQUEST_S)
    except Exception:
        log.exception("stop %s was not passed on to all children yet; the sweep goes on", stop_id)
        done = False
    if not done:
        wake.run_soon("effects.tasks.sweep")


def pass_on(stop_id: str, within_s: float = 60.0) -> bool:
    """Stop every child that was registered before this stop, and theirs; whether all were reached.

    Each child is a transaction of its own. Whoever dies in between is resumed from rows: a child that was
    reached has a press with this stop as its parent's, and is asked no second time.
    """
    end, open_ones, mark = time.monotonic() + within_s, [stop_id], _at_it.set(True)
    try:
        with alongside(lambda result: None):  # the caller's answer is that of its own stop
            while open_ones and time.monotonic() < end:
                open_ones = open_ones[:-1] + _one_slice(open_ones[-1], end)
    finally:
        _at_it.reset(mark)
    return not open_ones


def _one_slice(stop_id: str, end: float) -> list[str]:
    """Reach some children of a stop; the stops that have to be passed on after that."""
    stop = StopRequest.objects.get(pk=stop_id)
    found = list(_left(stop).order_by("pk").values_list("pk", flat=True)[:SLICE])
    if not found or stop.superseded_by_id:  # the stronger one has the same children, and is passed on too
        _reached_all(stop_id)
        return []
    below: list[str] = []
    for child_id in found:
        if time.monotonic() > end:
            break
        answer = _stop_child(stop_id, child_id)
        if answer is not None and answer.stop.passed_on_at is None:
            below.append(answer.stop.pk)
    return [stop_id, *below]


def _left(stop: StopRequest) -> QuerySet[Run]:
    """Children in motion that were registered before the stop and not reached by it yet.

    Before: by the version at which their parent admitted them. A child that has finished is passed by;
    its own children stand for it.
    """
    met = StopRequest.objects.filter(run=OuterRef("pk"), presses__parent_stop=stop)
    mine = Q(parent_id=stop.run_id)
    if not stop.finished_before:
        mine &= Q(parent_version__lte=stop.version_before or 0) | Q(Exists(met))
    rows = Run.objects.exclude(status__in=FINAL).filter(mine | Q(parent__in=_finished_below(stop)))
    rows = rows.filter(~Exists(met.exclude(_let_go(stop))))
    return rows if stop.scope_stop is None else rows.exclude(_reached_by(stop.scope_stop, _let_go(stop)))


def _let_go(stop: StopRequest) -> Q:
    """Stops of children that were ended by a resume before the newest press of this one: it reaches them
    again. Without another press the resume stands.
    """
    newest = Press.objects.filter(stop=stop).order_by("-at").values_list("at", flat=True).first()
    return Q(closed_because=RESUMED, closed_at__lte=newest) if newest else Q(pk__in=[])


def _finished_below(stop: StopRequest) -> list[str]:
    """Finished runs below that have children, through finished ones only."""
    found: list[str] = []
    parents: list[str | None] = [stop.run_id]
    while parents:
        children = Run.objects.filter(parent=OuterRef("pk"))
        rows = Run.objects.filter(Exists(children), parent__in=parents, status__in=FINAL)
        below = list(rows.values_list("pk", flat=True))
        found += below
        parents = [*below]
    return found


@stop_verb
def _stop_child(stop_id: str, run_id: str) -> StopAnswer | None:
    """The stop of the parent, pressed on one child. Again: the same answer, nothing is changed."""
    run = Run.objects.select_for_update(no_key=True).get(pk=run_id)
    above = StopRequest.objects.get(pk=stop_id)
    holding = StopRequest.objects.filter(run=run, scope="run").exclude(_let_go(above))
    press = Press.objects.filter(stop__in=holding, parent_stop=above).select_related("stop").first()
    if press is not None:
        return StopAnswer(press.stop, press, repeated=True)
    actor, wish = _as_pressed(above)
    answer = stops.pressed(run, actor, wish, wish.key)
    return StopAnswer(StopRequest.objects.get(pk=answer.stop.pk), answer.press)


def _as_pressed(stop: StopRequest) -> tuple[Actor, Wish]:
    """Who asked for the parent's stop asked for this one: no right is looked up a second time, since
    whoever may stop a run stops what it started."""
    wish = Wish(
        mode=stop.mode,
        reason=stop.reason,
        deadline_s=stop.deadline_s,
        key=f"\N{RIGHTWARDS ARROW} {stop.pk}",  # no caller can send such a key
        parent_stop_id=stop.pk if stop.run_id else None,
        arrived_at=stop.arrived_at,
    )
    return Actor(stop.actor, via=VIA), wish


@stop_verb
def _reached_all(stop_id: str) -> None:
    """Every child that was registered before the stop has been reached; later ones are born under it."""
    stop = StopRequest.objects.get(pk=stop_id)
    assert stop.run_id is not None
    run = Run.objects.select_for_update(no_key=True).get(pk=stop.run_id)
    rows = StopRequest.objects.filter(pk=stop_id, passed_on_at__isnull=True)
    left = stop.superseded_by_id is None and _left(stop).exists()
    if left or not rows.update(passed_on_at=database_time()):
        return
    told = {"children": reached(stop)}
    if told["children"]:
        record(run, Line("stop.passed_on", SYSTEM.id, told, stop_id=stop_id))


def to_pass_on(limit: int = 100) -> list[str]:
    """Ids of stops whose children were not all reached, oldest first; a moment old, so that the request
    which recorded them is not met."""
    rows = StopRequest.objects.filter(run__isnull=False, scope="run", passed_on_at__isnull=True)
    early = rows.filter(recorded_at__lte=database_time() - timedelta(seconds=2 * IN_REQUEST_S))
    return list(early.order_by("recorded_at").values_list("pk", flat=True)[:limit])


# reading ------------------------------------------------------------------------------------------


UNREGISTERED = "Runs that were started without naming this one as their parent."
FINISHED = "Messages queued by child runs that had finished: stop each such run to withhold its own."


@dataclass(frozen=True)
class Reach:
    """What a stop of a run reaches beside it: direct children, and how far it was passed on by now.

    `reached` counts those that it stopped or joined; `pending` are still to come. `items` are the first few.
    """

    registered: int
    reached: int
    pending: int
    items: list[Run]
    not_covered: list[str]


def reach_of(stop: StopRequest, most: int = 50) -> Reach | None:
    """None for a stop that is of no run (yet), or of one step alone."""
    if stop.run is None or stop.scope != "run":
        return None
    mine = Run.objects.filter(parent=stop.run)
    items = list(mine.order_by("pk")[:most])
    if not items:
        return Reach(0, 0, 0, [], not_covered(stop.run))
    pending = 0 if stop.passed_on_at else _left(stop).count()
    return Reach(mine.count(), reached(stop), pending, items, not_covered(stop.run))


def reached(stop: StopRequest) -> int:
    """To how many runs this stop was passed on by itself, or they were born under it."""
    return Press.objects.filter(parent_stop=stop).aggregate(n=Count("stop__run", distinct=True))["n"] or 0


def not_covered(run: Run) -> list[str]:
    """What a stop of this run does not reach, each in a sentence."""
    told = [UNREGISTERED]
    if Run.objects.filter(parent=run, status__in=ENDED).exists():
        told.append(FINISHED)
    if run.ungateable:
        told.append(f"Tools that run outside the gate: {', '.join(map(str, run.ungateable))}.")
    return told
