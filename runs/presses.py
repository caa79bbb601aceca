"""A press of Stop and the stop that keeps it: the rows that the verbs of stopping write."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django.db import DatabaseError, InterfaceError
from django.db.models import F, Q, QuerySet

from .access import Actor
from .models import Mode, Press, Run, StopCounter, StopRequest
from .store import database_time

DEADLINE_S = 60
RESUMED = "resumed"
SUPERSEDED, RELEASED, NEVER_CAME = "superseded", "released", "its run never came"
LET_GO = (RESUMED, RELEASED, NEVER_CAME)  # why a stop was closed that holds nothing any more
STRENGTH: dict[str, int] = {mode: place for place, mode in enumerate(Mode.values)}


@dataclass(frozen=True)
class Wish:
    """One press, already made harmless: whatever could not be read stands in `ignored`.

    `review_at`, `ends_at`, `observe` are for a scope that stands: when people look at it again, when it ends
    by itself, and whether it only counts what it would refuse.
    """

    mode: str = Mode.CANCEL
    requested_mode: str = ""
    reason: str = "other"
    note: str = ""
    deadline_s: int = DEADLINE_S
    key: str = ""
    reported_at: datetime | None = None
    ignored: list[str] = field(default_factory=list)
    parent_stop_id: str | None = None  # the stop of the parent run that was passed on
    review_at: datetime | None = None
    ends_at: datetime | None = None
    observe: bool = False
    arrived_at: datetime | None = None  # by the database's clock; of the press, also where it is carried on


ONLY_A_SCOPE = "{name}: only a stop of a scope has that; recorded as a stop without it"


def arrived(wish: Wish) -> Wish:
    """A press that has just reached this server, before it waits for a lock.

    No stop waits for a clock that can't be read: the moment is not kept then, and the verb itself finds out
    whether the database answers.
    """
    try:
        return replace(wish, arrived_at=database_time())
    except (DatabaseError, InterfaceError):
        return wish


def of_no_scope(wish: Wish) -> Wish:
    """The wish for a stop that does not stand: what only those have is named, and left out."""
    told = [name for name in ("review_at", "ends_at", "observe") if getattr(wish, name)]
    if not told:
        return wish
    ignored = [*wish.ignored, *(ONLY_A_SCOPE.format(name=name) for name in told)]
    return replace(wish, ignored=ignored, review_at=None, ends_at=None, observe=False)


@dataclass(frozen=True)
class StopAnswer:
    """What a press came to: recorded · joined · finished · waiting; `repeated`: same key again.

    `weaker`: a stop that this press superseded.
    """

    stop: StopRequest
    press: Press
    repeated: bool = False
    weaker: StopRequest | None = None

    @property
    def answer(self) -> str:
        return self.press.answer

    @property
    def milder(self) -> bool:
        """Whether the press asked for less than the stop that it joined."""
        return STRENGTH[self.press.mode] < STRENGTH[self.stop.mode]


def pressed_before(actor: Actor, key: str, where: Q, mode: str, *, moves: bool) -> StopAnswer | None:
    """The answer to this very press, if it was recorded before.

    The same key with a mode that `moves` the run on is a press of its own: what is there does not cover it.
    Nor does a stop that holds nothing any more, since a person ended it or its run never came: whoever
    presses again, by an old form or an old key, is never told of a stop that is over.
    """
    mine = Press.objects.filter(where, actor=actor.id, key=key).select_related("stop").order_by("-pk")
    presses = [press for press in mine if not holds_nothing(press.stop)]
    same = [press for press in presses if press.mode == mode] or ([] if moves else presses)
    return StopAnswer(same[0].stop, same[0], repeated=True) if same else None


def holds_nothing(stop: StopRequest) -> bool:
    """Whether people ended it, or its run never came; or so it went with the one that took its place."""
    while stop.superseded_by is not None:
        stop = stop.superseded_by
    return stop.released_at is not None or stop.closed_because in LET_GO


def record_stop(run: Run, actor: Actor, wish: Wish, now: datetime, **versions: Any) -> StopRequest:
    """Insert a stop of a run that takes effect now."""
    return StopRequest.objects.create(
        workspace_id=run.workspace_id,
        number=next_number(run.workspace_id),
        run=run,
        run_key=run.key,
        gate_at=now,
        fenced_at=now,
        **versions,
        **wished(actor, wish, now),
    )


def wished(actor: Actor, wish: Wish, now: datetime) -> dict[str, Any]:
    """The columns of a stop that its first press fills."""
    return {
        "mode": wish.mode,
        "requested_mode": wish.requested_mode,
        "reason": wish.reason,
        "note": wish.note,
        "actor": actor.id,
        "via": actor.via,
        "deadline_s": wish.deadline_s,
        "reported_at": wish.reported_at,
        "arrived_at": wish.arrived_at,
        "recorded_at": now,
        "parent_stop_id": wish.parent_stop_id,
    }


def due_at(wish: Wish, now: datetime) -> datetime:
    """When the deadline of this wish passes."""
    return now + timedelta(seconds=wish.deadline_s)


def next_number(workspace_id: str, many: int = 1) -> int:
    """The workspace's next stop number; the first of `many` that are taken together."""
    counter = StopCounter.objects.filter(workspace_id=workspace_id)
    if not counter.update(last=F("last") + many):
        StopCounter.objects.get_or_create(workspace_id=workspace_id)
        counter.update(last=F("last") + many)
    return counter.values_list("last", flat=True).get() - many + 1


def record_press(stop: StopRequest, actor: Actor, wish: Wish, key: str, answer: str) -> Press:
    """Keep a press with its stop: who, when, from where, and the answer that it got."""
    return Press.objects.create(
        stop=stop,
        at=database_time(),
        arrived_at=wish.arrived_at,
        actor=actor.id,
        via=actor.via,
        address=actor.address,
        key=key,
        mode=wish.mode,
        requested_mode=wish.requested_mode,
        note=wish.note,
        ignored=wish.ignored,
        answer=answer,
        parent_stop_id=wish.parent_stop_id,
    )


def close(stop: StopRequest, because: str) -> None:
    """Set the moment a stop closed, once."""
    StopRequest.objects.filter(pk=stop.pk, closed_at__isnull=True).update(
        closed_at=database_time(), closed_because=because
    )


def not_over() -> Q:
    """Stops of a run that were neither superseded nor ended by a resume: there is one. None of a step."""
    return Q(scope="run", superseded_by__isnull=True) & ~Q(closed_because=RESUMED)


def stop_of(run: Run) -> StopRequest | None:
    """The stop that holds a run, or that ended it; None after a resume."""
    return stops_in_order(run).filter(not_over()).first()


def open_stop(run: Run) -> StopRequest | None:
    """The stop in force on a run, or None."""
    return stops_in_order(run).filter(not_over(), closed_at__isnull=True).first()


def stops_in_order(run: Run) -> QuerySet[StopRequest]:
    """The stops of a run as a whole, the newest first."""
    return StopRequest.objects.filter(run=run, scope="run").order_by("-number")
