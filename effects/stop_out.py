"""Stops on the wire: one with all that is told of it, or a page of them in a bounded number of queries."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from django.db.models import Count, IntegerField, Model, OuterRef, QuerySet, Subquery, Sum, Value
from django.db.models.functions import Coalesce

from runs import children, fanout
from runs.children import Reach
from runs.fanout import Progress
from runs.models import (
    STANDING,
    InFlight,
    Press,
    Refusal,
    Result,
    ScopeKind,
    StopPart,
    StopRequest,
    WouldRefuse,
)
from runs.stop_schemas import RunsOfStop, StopOut, children_out, in_flight_out

from .stop_words import Pressed, scope_name, sentence

READ_WITH = ("run", "step", "session", "policy", "workspace")
OF_RUNS = (*STANDING, ScopeKind.BULK)  # scopes that go on to several runs
NOBODY = Pressed()


def rows(stops: QuerySet[StopRequest], *, counted: bool = True) -> QuerySet[Any, Any]:
    """Stops with the rows that they are of, and their counts; `counted`: of what may be many, too."""
    refused = _number(Refusal, Sum("count")) + _number(Refusal, Sum("count"), "stop__scope_stop")
    would = _number(WouldRefuse, Sum("count"))
    return stops.select_related(*READ_WITH).annotate(
        presses_n=_number(Press, Count("pk")),
        refused_n=refused if counted else Value(0),
        would_refuse_n=would if counted else Value(0),
    )


def _number(model: type[Model], number: Any, of: str = "stop") -> Coalesce:
    mine = model._default_manager.filter(**{of: OuterRef("pk")}).order_by().values(of)
    return Coalesce(Subquery(mine.annotate(n=number).values("n")), 0, output_field=IntegerField())


def one(stop_id: str, pressed: Pressed = NOBODY, *, counted: bool = True) -> dict[str, Any]:
    """A stop as it stands now, and what a press came to.

    Its runs and what it refused are told where they are `counted`: no commit of a stop waits for that.
    """
    stop = rows(StopRequest.objects.filter(pk=stop_id), counted=counted).get()
    goes_on = stop.scope in OF_RUNS and not stop.observes
    progress = fanout.progress(stop) if counted and goes_on else None
    return stop_out(stop, in_flight([stop_id])[stop_id], pressed, progress, children.reach_of(stop))


def many(stops: Sequence[Any]) -> list[dict[str, Any]]:
    """A page of `rows`, in two further queries; children are not counted in a list."""
    ids = [stop.pk for stop in stops]
    permits, parts = in_flight(ids), _results([stop.pk for stop in stops if stop.scope in OF_RUNS])
    return [stop_out(stop, permits[stop.pk], NOBODY, _progress(stop, parts.get(stop.pk))) for stop in stops]


def _results(stop_ids: list[str]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {stop_id: Counter() for stop_id in stop_ids}
    parts = StopPart.objects.filter(stop__in=stop_ids).order_by().values_list("stop", "result")
    for stop_id, result, number in parts.annotate(n=Count("pk")) if stop_ids else ():
        found[stop_id][result] = number
    return found


def _progress(stop: StopRequest, results: Counter[str] | None) -> Progress | None:
    """In a list the runs that a scope stop is still to reach are not counted: its total is 0 until then."""
    if results is None or stop.observes:
        return None
    done = sum(n for result, n in results.items() if result != Result.PENDING)
    results.pop(Result.PENDING, None)
    return Progress(done, stop.runs_n or 0, results)


def in_flight(stop_ids: Iterable[str]) -> dict[str, list[InFlight]]:
    """What was in flight by each of these stops."""
    found: dict[str, list[InFlight]] = defaultdict(list)
    listed = InFlight.objects.filter(stop_id__in=list(stop_ids)).select_related("permit")
    for row in listed.order_by("permit_id"):
        found[row.stop_id].append(row)
    return found


def stop_out(
    stop: Any,
    permits: list[InFlight],
    pressed: Pressed = NOBODY,
    progress: Progress | None = None,
    reach: Reach | None = None,
) -> dict[str, Any]:
    """A stop of `rows` on the wire; `pressed` is of one press."""
    whole = progress if progress is None or stop.fenced_at or progress.total else None
    derived = {
        "created": pressed.created,
        "joined": pressed.joined,
        "already_finished": pressed.finished or stop.finished_before,
        "waiting": stop.scope == ScopeKind.RUN and stop.run_id is None and stop.closed_at is None,
        "presses": stop.presses_n,
        "refused": stop.refused_n,
        "would_refuse": stop.would_refuse_n,
        "observes": bool(stop.observes),
        "scope_name": scope_name(stop),
        "runs": _runs_out(stop, progress),
        "in_flight": [in_flight_out(row) for row in permits],
        "children": children_out(reach),
        "ignored": pressed.ignored,
        "sentence": sentence(stop, pressed, whole, reach),
    }
    told = {name: getattr(stop, name) for name in StopOut.model_fields if name not in derived}
    return StopOut.model_validate(told | derived).wire()


def _runs_out(stop: StopRequest, progress: Progress | None) -> RunsOfStop | None:
    if progress is None:
        return None
    known = stop.fenced_at is not None or progress.total > 0
    return RunsOfStop(
        done=progress.done, total=progress.total if known else None, results=dict(progress.results)
    )
