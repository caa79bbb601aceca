"""Look-ups that an agent comes for: a list of what is due, each given to one of them for 30 seconds.

Effects and compensations have their turns beside each other. Nobody asks in the agent's place. Where nobody
comes, the schedule ends as it says, and what was asked about stays unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q

from runs.access import Actor, NotFound, demand
from runs.models import RunStatus
from runs.store import Now, database_time

from . import compensation, reconcile, repair
from .models import Compensation, Effect, Matter, Settlement
from .providers.own import POLL
from .reconcile import Answer, Asked

TURN_S = 30


class NoTurn(LookupError):
    """This look-up is not yours any more, or never was. Ask for the list again; nothing was changed."""


@dataclass(frozen=True)
class Turn:
    """One look-up that the caller has until `until`. `id` goes back with the answer."""

    row: Effect | Compensation
    id: str
    until: datetime

    @property
    def matter(self) -> str:
        return str(Matter.COMPENSATION if isinstance(self.row, Compensation) else Matter.EFFECT)


IN_DOUBT: dict[Any, Q] = {
    Effect: Q(settlement=Settlement.UNKNOWN),
    Compensation: Q(state__in=compensation.IN_DOUBT),  # one that its holder reported done is being verified
}


def take(actor: Actor, workspace_id: str, kind: str = "", limit: int = 10) -> list[Turn]:
    """What is due and now the caller's, the longest due first. A token of one run gets that run's alone."""
    mine = {"run__workspace_id": workspace_id}
    if actor.token is not None and actor.token.run_id is not None:
        mine["run_id"] = actor.token.run_id
    if kind:
        mine["kind__name"] = kind
    due = [one for model in IN_DOUBT for one in _due(model, mine, limit)]
    due.sort(key=lambda one: (one[0], one[1]))
    return [turn for _, pk, model in due[:limit] if (turn := _claim(model, pk))]


def _due(model: Any, mine: dict[str, str], limit: int) -> list[tuple[datetime, str, Any]]:
    rows = model.objects.filter(IN_DOUBT[model], **mine, kind__lookup__poll=True, next_check_at__lte=Now())
    rows = rows.exclude(run__status=RunStatus.ABANDONED).order_by("next_check_at")
    return [(at, pk, model) for at, pk in rows.values_list("next_check_at", "pk")[:limit]]


def _claim(model: Any, subject_id: str) -> Turn | None:
    """Move its time on, so that no other has it meanwhile."""
    rows = model.objects.filter(IN_DOUBT[model], pk=subject_id, next_check_at__lte=Now())
    until = database_time() + timedelta(seconds=TURN_S)
    if not rows.update(next_check_at=until, turn_until=until):
        return None
    row = model.objects.select_related("kind").defer("body").get(pk=subject_id)
    return Turn(row, f"{row.attempt}.{until.isoformat()}", until)


def answer(*, actor: Actor, effect_id: str, turn: str, said: Answer) -> str:
    """Record what the caller saw; returns the settlement afterwards. It counts as of when its turn began.

    Raises NotFound, NotAllowed, NoTurn.
    """
    return _answer(Effect, reconcile.apply_answer, actor, effect_id, turn, said)


def answer_of_compensation(*, actor: Actor, compensation_id: str, turn: str, said: Answer) -> str:
    """The same of a compensation: what is there under its own key. Returns its state afterwards."""
    return _answer(Compensation, repair.apply_answer, actor, compensation_id, turn, said)


def _answer(model: Any, apply: Any, actor: Actor, subject_id: str, turn: str, said: Answer) -> str:
    row = model.objects.select_related("run", "kind").defer("body").filter(pk=subject_id).first()
    if row is None:
        raise NotFound(model._meta.model_name)
    demand(actor, "write", row.run)
    attempt, until = _read(turn)
    rows = model.objects.filter(pk=subject_id, turn_until=until, attempt=attempt)
    polled = row.kind is not None and row.kind.lookup.get(POLL)
    if not polled or not rows.filter(turn_until__gt=Now()).update(turn_until=None):
        raise NoTurn(subject_id)
    asked = Asked(until - timedelta(seconds=TURN_S), attempt)
    return str(apply(subject_id, replace(said, answered_by=actor.id), actor, asked=asked))


def _read(turn: str) -> tuple[int, datetime]:
    number, _, moment = turn.partition(".")
    try:
        until = datetime.fromisoformat(moment)
    except ValueError as error:
        raise NoTurn(turn[:80]) from error
    if not (number.isascii() and number.isdecimal() and len(number) < 10 and until.tzinfo):
        raise NoTurn(turn[:80])
    return int(number), until
