"""A stop that comes before its run: it waits for the run's key, and meets it at the admission."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.db.models import Q, QuerySet

from . import redaction
from .access import SYSTEM, Actor, demand_workspace
from .evidence import Line, record
from .models import Mode, Run, StopRequest, Workspace
from .presses import (
    NEVER_CAME,
    STRENGTH,
    SUPERSEDED,
    StopAnswer,
    Wish,
    close,
    next_number,
    pressed_before,
    record_press,
    wished,
)
from .store import database_time, stop_verb, verb

WAITS = timedelta(days=7)


def without_secret(wish: Wish, run_key: str) -> tuple[Wish, str]:
    """No run may have such a key, and no stop is refused for one: it is recorded without the secret."""
    clean = redaction.text(run_key)
    if clean == run_key:
        return wish, run_key
    told = "run_key: it looks like a secret, which no run's key may; recorded without it"
    return replace(wish, ignored=[*wish.ignored, told]), clean[:200]


@stop_verb
def wait_for_run(actor: Actor, wish: Wish, run_key: str, key: str, workspace_id: str) -> StopAnswer | str:
    """Under the workspace's lock, which admission takes too: the stop waits, or the run is there.

    Its id is returned then.
    """
    locked = Workspace.objects.select_for_update(no_key=True)
    workspace = locked.filter(pk=workspace_id).first()
    demand_workspace(actor, "stop", workspace_id)
    assert workspace is not None
    ids = Run.objects.filter(workspace=workspace, key=run_key).values_list("pk", flat=True)
    found: str | None = ids.first()
    if found is not None:
        return found
    unbound = Q(stop__run__isnull=True, stop__run_key=run_key, stop__workspace=workspace)
    _end_waiting(workspace, run_key=run_key)
    stop = waiting_for(workspace, run_key).first()
    moves = stop is not None and STRENGTH[wish.mode] > STRENGTH[stop.mode]
    again = pressed_before(actor, key, unbound, wish.mode, moves=moves)
    if again is not None:
        return again
    if stop is not None and not moves:
        return _join(actor, wish, key, stop)
    return _wait(actor, wish, key, workspace, run_key, stop)


def _join(actor: Actor, wish: Wish, key: str, stop: StopRequest) -> StopAnswer:
    press = record_press(stop, actor, wish, key, "waiting")
    record(stop.workspace, Line("stop.joined", actor.id, _told(wish, stop.run_key), stop_id=stop.pk))
    return StopAnswer(stop, press)


def _wait(
    actor: Actor, wish: Wish, key: str, workspace: Workspace, run_key: str, weaker: StopRequest | None
) -> StopAnswer:
    """The first stop for this key, or one that supersedes the weaker one that waits."""
    if weaker is not None:
        close(weaker, SUPERSEDED)  # first: of one key there is one that waits
    stop = _record(workspace, actor, wish, run_key)
    lines = [Line("stop.waiting", actor.id, _told(wish, run_key), stop_id=stop.pk)]
    if weaker is not None:
        lines.append(supersede(weaker, stop))
    press = record_press(stop, actor, wish, key, "waiting")
    record(workspace, *lines)
    return StopAnswer(stop, press, weaker=weaker)


def _told(wish: Wish, run_key: str) -> dict[str, Any]:
    return {"run_key": run_key, "mode": wish.mode, "note": wish.note, "ignored": wish.ignored}


def supersede(weaker: StopRequest, stop: StopRequest) -> Line:
    """Close a stop in favour of a stronger one; the evidence of it."""
    StopRequest.objects.filter(pk=weaker.pk).update(superseded_by=stop)
    close(weaker, SUPERSEDED)
    told = {"by": stop.pk, "was": weaker.mode, "now": stop.mode}
    return Line("stop.superseded", stop.actor, told, stop_id=weaker.pk)


def _record(workspace: Workspace, actor: Actor, wish: Wish, run_key: str) -> StopRequest:
    now = database_time()
    return StopRequest.objects.create(
        workspace=workspace,
        number=next_number(workspace.pk),
        run_key=run_key,
        ends_at=now + WAITS,
        **wished(actor, wish, now),
    )


def waiting_for(workspace: Workspace, run_key: str) -> QuerySet[StopRequest]:
    """The stop that waits for a run with this key, unless its own end date has passed."""
    return StopRequest.objects.filter(
        workspace=workspace,
        scope="run",
        run__isnull=True,
        run_key=run_key,
        closed_at__isnull=True,
        ends_at__gt=database_time(),
    )


def bind(stop: StopRequest, run: Run) -> list[Line]:
    """A waiting stop meets its run, inside the admission: the run is born stopping.

    The weaker ones that it superseded come with it, so that the run shows every press.
    """
    now, version = database_time(), run.cancel_version
    mine = {"run": run, "version_after": version}
    rows = StopRequest.objects.filter(pk=stop.pk)
    rows.update(gate_at=now, fenced_at=now, deadline_at=now + timedelta(seconds=stop.deadline_s), **mine)
    for _ in Mode:
        weaker = StopRequest.objects.filter(run__isnull=True, scope="run", superseded_by__run=run)
        StopRequest.objects.filter(pk__in=list(weaker.values_list("pk", flat=True))).update(**mine)
    told = {"waited_since": stop.recorded_at.isoformat(), "mode": stop.mode}
    named: dict[str, Any] = {"stop_id": stop.pk, "current_version": version}
    lines = [Line("stop.bound", stop.actor, told, **named)]
    if stop.mode == Mode.ABANDON:
        close(stop, "fenced")
        lines.append(Line("run.abandoned", stop.actor, **named))
        lines.append(Line("stop.closed", stop.actor, {"because": "fenced"}, stop_id=stop.pk))
    return lines


def waiting_over(limit: int = 200) -> list[str]:
    """Ids of waiting stops whose own end date has passed."""
    ids = _over().order_by("ends_at").values_list("pk", flat=True)
    return list(ids[:limit])


def _over() -> QuerySet[StopRequest]:
    waiting = StopRequest.objects.filter(run__isnull=True, scope="run", closed_at__isnull=True)
    return waiting.filter(ends_at__lte=database_time())


@verb
def end_waiting(stop_id: str) -> None:
    """Close a waiting stop whose own end date has passed; again changes nothing."""
    workspace_id = StopRequest.objects.values_list("workspace_id", flat=True).get(pk=stop_id)
    workspace = Workspace.objects.select_for_update(no_key=True).get(pk=workspace_id)
    _end_waiting(workspace, pk=stop_id)


def _end_waiting(workspace: Workspace, **those: Any) -> None:
    """Under the workspace's lock, which an admission takes too."""
    for stop in _over().filter(workspace=workspace, **those):
        close(stop, NEVER_CAME)
        told = {"because": NEVER_CAME, "run_key": stop.run_key}
        record(workspace, Line("stop.closed", SYSTEM.id, told, stop_id=stop.pk))
