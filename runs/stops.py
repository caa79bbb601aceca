"""The verbs of stopping. The commit is the acknowledgement; once acknowledged, never lost."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Q

from . import cleanup, steps, wake
from .access import Actor, NotFound, demand, demand_workspace
from .evidence import AT_ONCE, Line, record
from .followers import follow, followed, join, joined
from .models import (
    FINAL,
    InFlight,
    Mode,
    Permit,
    PermitState,
    Press,
    Run,
    RunStatus,
    Step,
    StopRequest,
)
from .presses import (
    DEADLINE_S,
    RESUMED,
    STRENGTH,
    StopAnswer,
    Wish,
    arrived,
    close,
    due_at,
    next_number,
    not_over,
    of_no_scope,
    open_stop,
    pressed_before,
    record_press,
    record_stop,
    stop_of,
    wished,
)
from .store import database_time, stop_verb
from .waiting import (
    bind,
    end_waiting,
    supersede,
    wait_for_run,
    waiting_for,
    waiting_over,
    without_secret,
)

__all__ = [
    "BORN",
    "DEADLINE_S",
    "RESUMED",
    "STRONGER",
    "WAITS_FOR_WORK",
    "Forced",
    "StopAnswer",
    "Wish",
    "bind",
    "close",
    "end_waiting",
    "follow",
    "followed",
    "force_deadline",
    "join",
    "next_number",
    "not_over",
    "open_stop",
    "pressed_before",
    "record_press",
    "record_stop",
    "request_stop",
    "stop_of",
    "waiting_for",
    "waiting_over",
    "wished",
]

BORN: dict[str, str] = {
    Mode.PAUSE: RunStatus.PAUSING,
    Mode.CANCEL: RunStatus.CANCELLING,
    Mode.ABANDON: RunStatus.ABANDONED,
}
MOVES: dict[str, Callable[[Run], int]] = {
    Mode.PAUSE: Run.pause,
    Mode.CANCEL: Run.cancel,
    Mode.ABANDON: Run.abandon,
}
# The modes that move a run on from where it stands; a weaker one joins the stop that is there.
STRONGER: dict[str, frozenset[str]] = {
    RunStatus.ACTIVE: frozenset({Mode.PAUSE, Mode.CANCEL, Mode.ABANDON}),
    RunStatus.PAUSING: frozenset({Mode.CANCEL, Mode.ABANDON}),
    RunStatus.PAUSED: frozenset({Mode.CANCEL, Mode.ABANDON}),
    RunStatus.CANCELLING: frozenset({Mode.ABANDON}),
    RunStatus.CANCELLING_TIMEOUT: frozenset({Mode.ABANDON}),
    RunStatus.UNKNOWN: frozenset({Mode.ABANDON}),
    **{status: frozenset() for status in FINAL},
}
FENCED = "fenced"  # why the stop of an abandoned run was closed
WAITS_FOR_WORK = (RunStatus.PAUSING, RunStatus.CANCELLING)  # where a deadline still decides something


def request_stop(
    *,
    actor: Actor,
    wish: Wish,
    run_id: str = "",
    workspace_id: str = "",
    run_key: str = "",
) -> StopAnswer:
    """Record a stop of a run, named by id or by (workspace, key); it may not be registered yet.

    Once this returns, the stop survives the death of every process. Never refused for a
    formality. Raises NotFound or NotAllowed for those who may not stop it; OperationalError
    when the database can't answer: NOT recorded, or not known; the same key converges.
    """
    key, wish = wish.key or secrets.token_hex(16), of_no_scope(arrived(wish))
    if run_id:
        return _stop_run(actor, wish, key, run_id)
    found = Run.objects.filter(workspace_id=workspace_id, key=run_key).values_list("pk").first()
    if found is not None:
        return _stop_run(actor, wish, key, found[0])
    answer = wait_for_run(actor, *without_secret(wish, run_key), key, workspace_id)
    if isinstance(answer, str):  # registered in between
        return _stop_run(actor, wish, key, answer)
    return answer


@stop_verb
def _stop_run(actor: Actor, wish: Wish, key: str, run_id: str) -> StopAnswer:
    run = Run.objects.select_for_update(no_key=True).filter(pk=run_id).first()
    if run is None:
        raise NotFound("run")
    demand(actor, "stop", run)
    moves = wish.mode in STRONGER[run.status]
    again = pressed_before(actor, key, Q(stop__run=run, stop__scope="run"), wish.mode, moves=moves)
    return again or pressed(run, actor, wish, key)


def pressed(run: Run, actor: Actor, wish: Wish, key: str) -> StopAnswer:
    """A press on a run whose row is locked, by somebody who was asked for the right to it before."""
    return (_fence if wish.mode in STRONGER[run.status] else _join)(run, actor, wish, key)


def _fence(run: Run, actor: Actor, wish: Wish, key: str) -> StopAnswer:
    """Bump, hold or withhold, list what is in flight, answer; a weaker stop before it is superseded."""
    before, weaker = run.cancel_version, open_stop(run)
    MOVES[wish.mode](run)
    but = None if wish.mode == Mode.ABANDON else cleanup.spared(run)
    touched = (steps.hold if wish.mode == Mode.PAUSE else steps.withhold)(run, but)
    now = database_time()
    versions = {"version_before": before, "version_after": before + 1}
    stop = record_stop(run, actor, wish, now, deadline_at=due_at(wish, now), **versions)
    flying = Permit.objects.filter(run=run, state__in=[PermitState.OPEN, PermitState.LOST])
    permits = list(flying.order_by("pk"))
    listed = (InFlight(stop=stop, permit=permit, state_then=permit.state) for permit in permits)
    InFlight.objects.bulk_create(listed, batch_size=AT_ONCE)
    press = record_press(stop, actor, wish, key, "recorded")
    lines = lines_of_stop(stop, press, touched, permits)
    if weaker is not None:
        lines.append(supersede(weaker, stop))
    lines += followed(run, stop, actor)
    record(run, *lines, *_end_at_once(stop))
    return StopAnswer(stop, press, weaker=weaker)


def _end_at_once(stop: StopRequest) -> list[Line]:
    """An abandon waits for nothing: the run has ended, and its stop is closed."""
    if stop.mode != Mode.ABANDON:
        return []
    close(stop, FENCED)
    return lines_of_abandon(stop)


def lines_of_abandon(stop: StopRequest) -> list[Line]:
    """The run ended with its stop, which is closed."""
    return [
        Line("run.abandoned", stop.actor, stop_id=stop.pk, current_version=stop.version_after),
        Line("stop.closed", stop.actor, {"because": FENCED}, stop_id=stop.pk),
    ]


def lines_of_stop(
    stop: StopRequest, press: Press, touched: Sequence[Step], permits: Sequence[Permit]
) -> list[Line]:
    """The evidence of a stop that moved its run: the press, each step that it held or withheld, the list."""
    told = {
        "mode": stop.mode,
        "requested_mode": stop.requested_mode,
        "reason": stop.reason,
        "note": stop.note,
        "ignored": press.ignored,
    }
    versions: dict[str, Any] = {"carried_version": stop.version_before, "current_version": stop.version_after}
    in_flight = [
        {"permit": permit.pk, "effect": permit.effect_key, "state": permit.state} for permit in permits
    ]
    line = steps.held_line if stop.mode == Mode.PAUSE else steps.withheld_line
    return [
        Line("stop.acknowledged", stop.actor, told, stop_id=stop.pk, **versions),
        *(line(stop.actor, step, stop.pk, stop.version_after) for step in touched),
        Line("stop.fenced", stop.actor, {"in_flight": in_flight}, stop_id=stop.pk, **versions),
    ]


def _join(run: Run, actor: Actor, wish: Wish, key: str) -> StopAnswer:
    """Already stopping, or finished: keep the press with the stop that is there."""
    stop, finished, after = stop_of(run), run.status in FINAL, []
    milder = stop if stop is not None and stronger_after_the_end(stop, wish) else None
    if stop is None or milder is not None:
        stop = _record_where_it_stands(run, actor, wish)
        after = [*([supersede(milder, stop)] if milder else []), *followed(run, stop, actor)]
    press = record_press(stop, actor, wish, key, "finished" if finished else "joined")
    joined(run, stop)
    record(run, line_of_join(run, stop, actor, wish), *after)
    return StopAnswer(stop, press)


def line_of_join(run: Run, stop: StopRequest, actor: Actor, wish: Wish) -> Line:
    """The evidence of a press that moved nothing."""
    told = {"mode": wish.mode, "requested_mode": wish.requested_mode, "note": wish.note}
    return Line(
        "stop.after_end" if run.status in FINAL else "stop.joined",
        actor.id,
        {**told, "ignored": wish.ignored},
        stop_id=stop.pk,
        current_version=run.cancel_version,
    )


def stronger_after_the_end(stop: StopRequest, wish: Wish) -> bool:
    """It moves the finished run no more than the milder one did, but the children of it that go on."""
    return stop.finished_before and STRENGTH[wish.mode] > STRENGTH[stop.mode]


def _record_where_it_stands(run: Run, actor: Actor, wish: Wish) -> StopRequest:
    """A stop that moves nothing: the run has finished, or a restore has left it paused without one."""
    now = database_time()
    return record_stop(run, actor, wish, now, **where_it_stands(run, now))


def where_it_stands(run: Run, now: datetime) -> dict[str, Any]:
    """The columns of a stop that moves nothing."""
    versions = {"version_before": run.cancel_version, "version_after": run.cancel_version}
    if run.status not in FINAL:
        return {**versions, "quiet_at": now}
    over = {"closed_at": now, "closed_because": "the run had finished before"}
    return {**versions, **over, "finished_before": True}


# the deadline -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Forced:
    """The stop as it stands now; `forced`: this call let its deadline pass, no earlier one did."""

    stop: StopRequest
    forced: bool


@stop_verb
def force_deadline(*, actor: Actor, stop_id: str) -> Forced:
    """Let a stop's deadline pass now; the next drain acts on it. Asked again, it changes nothing.

    Nor does it where nothing waits for that deadline: the run is quiet, the stop is closed or was
    superseded, or its run never came. Raises NotFound, NotAllowed.
    """
    found = StopRequest.objects.filter(pk=stop_id).first()
    if found is None:
        raise NotFound("stop")
    if found.run_id is None:
        demand_workspace(actor, "stop", found.workspace_id)
        return Forced(found, False)
    run = Run.objects.select_for_update(no_key=True).get(pk=found.run_id)
    demand(actor, "stop", run)
    return Forced(*_force(run, actor, stop_id))


def _force(run: Run, actor: Actor, stop_id: str) -> tuple[StopRequest, bool]:
    was, now = StopRequest.objects.get(pk=stop_id), database_time()
    rows = StopRequest.objects.filter(pk=stop_id, deadline_at__gt=now, closed_at__isnull=True)
    if run.status not in WAITS_FOR_WORK or not rows.update(deadline_at=now):
        return was, False
    before = was.deadline_at.isoformat() if was.deadline_at else ""
    record(run, Line("stop.deadline_forced", actor.id, {"was": before}, stop_id=stop_id))
    transaction.on_commit(partial(wake.run_soon, "effects.tasks.sweep"), robust=True)
    return StopRequest.objects.get(pk=stop_id), True
