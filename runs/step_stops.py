"""A stop of one step: nothing more of it may be sent, while its run goes on at the version it has.

It knows only cancel. What waits is withheld at the commit; what was dispatched is let no further permit, and
its second look is shut. Nothing lifts it: whoever wants the work after all registers another step.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from django.db.models import Q

from . import steps
from .access import SYSTEM, Actor, NotFound, demand
from .evidence import AT_ONCE, Line, record
from .guard import lock_run
from .models import (
    NOT_DISPATCHED,
    InFlight,
    Mode,
    Permit,
    PermitState,
    Press,
    Run,
    ScopeKind,
    Step,
    StepStatus,
    StopRequest,
)
from .presses import (
    StopAnswer,
    Wish,
    arrived,
    close,
    of_no_scope,
    pressed_before,
    record_press,
    record_stop,
)
from .store import database_time, stop_verb, verb

CANCELS = f"mode: recorded as {Mode.CANCEL}; a stop of a step knows no other"
OVER = "its step is over"
HOLDS = (StepStatus.CLAIMED, StepStatus.DISPATCHED, StepStatus.UNKNOWN)  # what such a stop waits for
MOVES = (*NOT_DISPATCHED, StepStatus.DISPATCHED)

# What rooms above do to their own rows when a step is stopped, under the run's lock; they return its lines.
Follower = Callable[[Run, StopRequest, Actor], list[Line]]
_followers: list[Follower] = []


def follow(follower: Follower) -> None:
    """Have `follower` called, under the run's lock, for each stop of a step; registered once."""
    if follower not in _followers:
        _followers.append(follower)


def request_step_stop(*, actor: Actor, wish: Wish, step_id: str) -> StopAnswer:
    """Stop one step of a run. Never refused for a formality; one stop a step, which later presses join.

    A step that has ended is answered "finished": it moves no more, and no retry of it may begin. Raises
    NotFound, NotAllowed; OperationalError when the database can't answer: NOT recorded, or not known.
    """
    wish = of_no_scope(arrived(wish))
    ignored = [*wish.ignored, CANCELS] if wish.mode != Mode.CANCEL else wish.ignored
    asked = wish.requested_mode or (wish.mode if wish.mode != Mode.CANCEL else "")
    meant = replace(wish, mode=Mode.CANCEL, requested_mode=asked, ignored=ignored)
    return _stop_step(actor, meant, wish.key or secrets.token_hex(16), step_id)


@stop_verb
def _stop_step(actor: Actor, wish: Wish, key: str, step_id: str) -> StopAnswer:
    run_id = Step.objects.filter(pk=step_id).values_list("run_id", flat=True).first()
    if run_id is None:
        raise NotFound("step")
    run = lock_run(run_id)
    demand(actor, "stop", run)
    mine = Q(stop__scope=ScopeKind.STEP, stop__step=step_id)
    again = pressed_before(actor, key, mine, wish.mode, moves=False)
    if again is not None:
        return again
    step: Step = Step.objects.select_for_update(no_key=True).get(pk=step_id)
    stop = stop_of_step(step)
    return _join(run, stop, step, actor, wish, key) if stop else _stop(run, step, actor, wish, key)


def stop_of_step(step: Step) -> StopRequest | None:
    """The stop of this step, if there is one."""
    return StopRequest.objects.filter(scope=ScopeKind.STEP, step=step).first()


def _stop(run: Run, step: Step, actor: Actor, wish: Wish, key: str) -> StopAnswer:
    """Mark it, withhold what waits, list what is in flight of it, answer."""
    was, now = step.status, database_time()
    ended = was not in (*MOVES, StepStatus.UNKNOWN)
    Step.objects.filter(pk=step.pk).update(stopped_at=now)
    touched = steps.withhold(run, but=~Q(pk=step.pk))
    named: dict[str, Any] = {"scope": ScopeKind.STEP, "step": step, "passed_on_at": now}
    stop = record_stop(run, actor, wish, now, finished_before=ended, **named)
    permits = list(Permit.objects.filter(step=step, state__in=[PermitState.OPEN, PermitState.LOST]))
    listed = (InFlight(stop=stop, permit=permit, state_then=permit.state) for permit in permits)
    InFlight.objects.bulk_create(listed, batch_size=AT_ONCE)
    press = record_press(stop, actor, wish, key, "finished" if ended else "recorded")
    told = {"was": was, "step": step.key, "name": step.name, "in_flight": _named(permits)}
    lines = [_line("step.stopped", run, stop, press, **told)]
    lines += [steps.withheld_line(actor.id, one, stop.pk, run.cancel_version) for one in touched]
    lines += [line for follower in _followers for line in follower(run, stop, actor)]
    record(run, *lines, *_end(stop))
    return StopAnswer(StopRequest.objects.get(pk=stop.pk), press)


def _named(permits: Iterable[Permit]) -> list[dict[str, str]]:
    return [{"permit": one.pk, "effect": one.effect_key, "state": one.state} for one in permits]


def _join(run: Run, stop: StopRequest, step: Step, actor: Actor, wish: Wish, key: str) -> StopAnswer:
    press = record_press(stop, actor, wish, key, "joined" if step.status in HOLDS else "finished")
    record(run, _line("stop.joined", run, stop, press, step=step.key))
    return StopAnswer(stop, press)


def _line(kind: str, run: Run, stop: StopRequest, press: Press, **told: Any) -> Line:
    said = {
        "mode": press.mode,
        "requested_mode": press.requested_mode,
        "reason": stop.reason,
        "note": press.note,
        "ignored": press.ignored,
    }
    named: dict[str, Any] = {"stop_id": stop.pk, "step_id": stop.step_id or ""}
    return Line(kind, press.actor, {**said, **told}, current_version=run.cancel_version, **named)


# closing ------------------------------------------------------------------------------------------


def _is_over() -> Q:
    return Q(scope=ScopeKind.STEP, closed_at__isnull=True) & ~Q(step__status__in=HOLDS)


def _end(stop: StopRequest) -> list[Line]:
    """Close it, if its step is where nothing is waited for any more."""
    if not StopRequest.objects.filter(_is_over(), pk=stop.pk).exists():
        return []
    because = "the step had ended before" if stop.finished_before else OVER
    close(stop, because)
    told = {"because": because}
    return [Line("stop.closed", SYSTEM.id, told, stop_id=stop.pk, step_id=stop.step_id or "")]


def to_close(limit: int = 200) -> list[str]:
    """Ids of the stops of steps that have come to their end since."""
    return list(StopRequest.objects.filter(_is_over()).order_by("pk").values_list("pk", flat=True)[:limit])


@verb
def close_if_over(stop_id: str) -> bool:
    """Close the stop of a step that has ended, under its run's lock; again changes nothing."""
    stop = StopRequest.objects.get(pk=stop_id)
    assert stop.run_id is not None  # a step is of a run
    run = lock_run(stop.run_id)
    lines = _end(stop)
    if lines:
        record(run, *lines)
    return bool(lines)
