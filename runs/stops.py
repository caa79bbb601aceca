"""The verbs of stopping. The commit is the acknowledgement; once acknowledged, never lost."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, Q, QuerySet

from . import steps
from .access import SYSTEM, Actor, NotFound, demand, demand_workspace
from .evidence import AT_ONCE, Line, record
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
    StopCounter,
    StopRequest,
    Workspace,
)
from .store import database_time, stop_verb, verb

WAITS = timedelta(days=7)
DEADLINE_S = 60
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

# What rooms above do to their own rows in the transaction of a stop, also of a finished run; registered
# when they load, so that no caller can forget it. They return the lines of it, and touch no run or step.
Follower = Callable[[Run, StopRequest, Actor], list[Line]]
_followers: list[Follower] = []


def follow(follower: Follower) -> None:
    """Have `follower` called, under the run's lock, for each stop that is recorded; registered once."""
    if follower not in _followers:
        _followers.append(follower)


def _followed(run: Run, stop: StopRequest, actor: Actor) -> list[Line]:
    return [line for follower in _followers for line in follower(run, stop, actor)]


@dataclass(frozen=True)
class Wish:
    """One press, already made harmless: whatever could not be read stands in `ignored`."""

    mode: str = Mode.CANCEL
    requested_mode: str = ""
    reason: str = "other"
    note: str = ""
    deadline_s: int = DEADLINE_S
    key: str = ""
    reported_at: datetime | None = None
    ignored: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class StopAnswer:
    """What a press came to: recorded · joined · finished · waiting; `repeated`: same key again."""

    stop: StopRequest
    press: Press
    repeated: bool = False

    @property
    def answer(self) -> str:
        return self.press.answer


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
    key = wish.key or secrets.token_hex(16)
    if run_id:
        return _stop_run(actor, wish, key, run_id)
    found = Run.objects.filter(workspace_id=workspace_id, key=run_key).values_list("pk").first()
    if found is not None:
        return _stop_run(actor, wish, key, found[0])
    answer = _wait_for_run(actor, wish, key, workspace_id, run_key)
    if isinstance(answer, str):  # registered in between
        return _stop_run(actor, wish, key, answer)
    return answer


@stop_verb
def _stop_run(actor: Actor, wish: Wish, key: str, run_id: str) -> StopAnswer:
    run = Run.objects.select_for_update(no_key=True).filter(pk=run_id).first()
    if run is None:
        raise NotFound("run")
    demand(actor, "stop", run)
    again = _pressed_before(actor, key, Q(stop__run=run))
    if again is not None:
        return again
    if wish.mode in STRONGER[run.status]:
        return _fence(run, actor, wish, key)
    return _join(run, actor, wish, key)


def _pressed_before(actor: Actor, key: str, where: Q) -> StopAnswer | None:
    press = Press.objects.filter(where, actor=actor.id, key=key).select_related("stop").first()
    return StopAnswer(press.stop, press, repeated=True) if press else None


def _fence(run: Run, actor: Actor, wish: Wish, key: str) -> StopAnswer:
    """Bump, hold or withhold, list what is in flight, answer; a weaker stop before it is superseded."""
    before, weaker = run.cancel_version, open_stop(run)
    MOVES[wish.mode](run)
    touched = (steps.hold if wish.mode == Mode.PAUSE else steps.withhold)(run)
    stop = record_stop(run, actor, wish, database_time(), before)
    permits = list(Permit.objects.filter(run=run, state__in=[PermitState.OPEN, PermitState.LOST]))
    listed = (InFlight(stop=stop, permit=permit, state_then=permit.state) for permit in permits)
    InFlight.objects.bulk_create(listed, batch_size=AT_ONCE)
    press = record_press(stop, actor, wish, key, "recorded")
    lines = _lines_of_stop(stop, press, touched, permits)
    if weaker is not None:
        lines.append(_supersede(weaker, stop))
    lines += _followed(run, stop, actor)
    if wish.mode == Mode.ABANDON:
        lines.append(_closed(stop, "fenced"))
    record(run, *lines)
    return StopAnswer(stop, press)


def _supersede(weaker: StopRequest, stop: StopRequest) -> Line:
    StopRequest.objects.filter(pk=weaker.pk).update(superseded_by=stop)
    close(weaker, "superseded")
    told = {"by": stop.pk, "was": weaker.mode, "now": stop.mode}
    return Line("stop.superseded", stop.actor, told, stop_id=weaker.pk)


def _closed(stop: StopRequest, because: str) -> Line:
    close(stop, because)
    return Line("stop.closed", stop.actor, {"because": because}, stop_id=stop.pk)


def record_stop(run: Run, actor: Actor, wish: Wish, now: datetime, before: int) -> StopRequest:
    return StopRequest.objects.create(
        workspace_id=run.workspace_id,
        number=_next_number(run.workspace_id),
        run=run,
        run_key=run.key,
        version_before=before,
        version_after=before + 1,
        gate_at=now,
        fenced_at=now,
        deadline_at=now + timedelta(seconds=wish.deadline_s),
        **_wished(actor, wish, now),
    )


def _wished(actor: Actor, wish: Wish, now: datetime) -> dict[str, Any]:
    return {
        "mode": wish.mode,
        "requested_mode": wish.requested_mode,
        "reason": wish.reason,
        "note": wish.note,
        "actor": actor.id,
        "via": actor.via,
        "deadline_s": wish.deadline_s,
        "reported_at": wish.reported_at,
        "recorded_at": now,
    }


def _next_number(workspace_id: str) -> int:
    counter = StopCounter.objects.filter(workspace_id=workspace_id)
    if not counter.update(last=F("last") + 1):
        StopCounter.objects.get_or_create(workspace_id=workspace_id)
        counter.update(last=F("last") + 1)
    return counter.values_list("last", flat=True).get()


def record_press(stop: StopRequest, actor: Actor, wish: Wish, key: str, answer: str) -> Press:
    return Press.objects.create(
        stop=stop,
        at=database_time(),
        actor=actor.id,
        via=actor.via,
        address=actor.address,
        key=key,
        mode=wish.mode,
        requested_mode=wish.requested_mode,
        note=wish.note,
        ignored=wish.ignored,
        answer=answer,
    )


def _lines_of_stop(stop: StopRequest, press: Press, touched: list[Step], permits: list[Permit]) -> list[Line]:
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
    stop = StopRequest.objects.filter(run=run, superseded_by__isnull=True).order_by("-number").first()
    finished, after = run.status in FINAL, []
    if stop is None:
        stop = _record_after_the_end(run, actor, wish)
        after = _followed(run, stop, actor)
    press = record_press(stop, actor, wish, key, "finished" if finished else "joined")
    line = Line(
        "stop.after_end" if finished else "stop.joined",
        actor.id,
        {"requested_mode": wish.requested_mode, "note": wish.note, "ignored": wish.ignored},
        stop_id=stop.pk,
        current_version=run.cancel_version,
    )
    record(run, line, *after)
    return StopAnswer(stop, press)


def _record_after_the_end(run: Run, actor: Actor, wish: Wish) -> StopRequest:
    now = database_time()
    return StopRequest.objects.create(
        workspace_id=run.workspace_id,
        number=_next_number(run.workspace_id),
        run=run,
        run_key=run.key,
        finished_before=True,
        closed_at=now,
        closed_because="the run had finished before",
        version_before=run.cancel_version,
        version_after=run.cancel_version,
        gate_at=now,
        fenced_at=now,
        **_wished(actor, wish, now),
    )


# a stop that comes before its run ---------------------------------------------------------------


@stop_verb
def _wait_for_run(actor: Actor, wish: Wish, key: str, workspace_id: str, run_key: str) -> StopAnswer | str:
    """Under the workspace's lock, which admission takes too: the run is there, or the stop waits."""
    locked = Workspace.objects.select_for_update(no_key=True)
    workspace = locked.filter(pk=workspace_id).first()
    demand_workspace(actor, "stop", workspace_id)
    assert workspace is not None
    ids = Run.objects.filter(workspace=workspace, key=run_key).values_list("pk", flat=True)
    found: str | None = ids.first()
    if found is not None:
        return found
    unbound = Q(stop__run__isnull=True, stop__run_key=run_key, stop__workspace=workspace)
    again = _pressed_before(actor, key, unbound)
    if again is not None:
        return again
    _end_waiting(workspace, run_key=run_key)
    stop = waiting_for(workspace, run_key).first()
    kind = "stop.joined" if stop else "stop.waiting"
    stop = stop or _record_waiting(workspace, actor, wish, run_key)
    press = record_press(stop, actor, wish, key, "waiting")
    told = {"run_key": run_key, "note": wish.note, "ignored": wish.ignored}
    record(workspace, Line(kind, actor.id, told, stop_id=stop.pk))
    return StopAnswer(stop, press)


def _record_waiting(workspace: Workspace, actor: Actor, wish: Wish, run_key: str) -> StopRequest:
    now = database_time()
    return StopRequest.objects.create(
        workspace=workspace,
        number=_next_number(workspace.pk),
        run_key=run_key,
        ends_at=now + WAITS,
        **_wished(actor, wish, now),
    )


def waiting_for(workspace: Workspace, run_key: str) -> QuerySet[StopRequest]:
    """The stop that waits for a run with this key, unless its own end date has passed."""
    return StopRequest.objects.filter(
        workspace=workspace,
        run__isnull=True,
        run_key=run_key,
        closed_at__isnull=True,
        ends_at__gt=database_time(),
    )


def bind(stop: StopRequest, run: Run) -> Line:
    """A waiting stop meets its run, inside the admission: the run is born stopping."""
    now = database_time()
    StopRequest.objects.filter(pk=stop.pk).update(
        run=run,
        gate_at=now,
        fenced_at=now,
        version_after=run.cancel_version,
        deadline_at=now + timedelta(seconds=stop.deadline_s),
    )
    if stop.mode == Mode.ABANDON:
        close(stop, "fenced")
    return Line(
        "stop.bound",
        stop.actor,
        {"waited_since": stop.recorded_at.isoformat()},
        stop_id=stop.pk,
        current_version=run.cancel_version,
    )


def close(stop: StopRequest, because: str) -> None:
    """Set the moment a stop closed, once."""
    StopRequest.objects.filter(pk=stop.pk, closed_at__isnull=True).update(
        closed_at=database_time(), closed_because=because
    )


@stop_verb
def force_deadline(*, actor: Actor, run_id: str) -> StopRequest | None:
    """Let the deadline of the stop in force pass now; the next drain acts on it.

    None when no stop is in force, or its deadline passed before. Raises NotFound, NotAllowed.
    """
    run = Run.objects.select_for_update(no_key=True).filter(pk=run_id).first()
    if run is None:
        raise NotFound("run")
    demand(actor, "stop", run)
    stop, now = open_stop(run), database_time()
    rows = StopRequest.objects.filter(pk=stop.pk if stop else "", deadline_at__gt=now)
    if stop is None or not rows.update(deadline_at=now):
        return None
    was = stop.deadline_at.isoformat() if stop.deadline_at else ""
    record(run, Line("stop.deadline_forced", actor.id, {"was": was}, stop_id=stop.pk))
    return StopRequest.objects.get(pk=stop.pk)


def open_stop(run: Run) -> StopRequest | None:
    """The stop in force on a run, or None."""
    return (
        StopRequest.objects.filter(run=run, superseded_by__isnull=True, closed_at__isnull=True)
        .order_by("-number")
        .first()
    )


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
        close(stop, "its run never came")
        told = {"because": "its run never came", "run_key": stop.run_key}
        record(workspace, Line("stop.closed", SYSTEM.id, told, stop_id=stop.pk))
