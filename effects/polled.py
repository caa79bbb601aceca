"""Look-ups that an agent comes for: a list of what is due, each given to one of them for 30 seconds.

Nobody asks in its place. Where nobody comes, the schedule ends as it says, and the effect stays unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet

from runs.access import Actor, NotFound, demand
from runs.models import RunStatus
from runs.store import Now, database_time

from . import reconcile
from .models import Effect, Settlement
from .providers.own import POLL
from .reconcile import Answer, Asked

TURN_S = 30


class NoTurn(LookupError):
    """This look-up is not yours any more, or never was. Ask for the list again; nothing was changed."""


@dataclass(frozen=True)
class Turn:
    """One look-up that the caller has until `until`. `id` goes back with the answer."""

    effect: Effect
    id: str
    until: datetime


def take(actor: Actor, workspace_id: str, kind: str = "", limit: int = 10) -> list[Turn]:
    """What is due and now the caller's, the longest due first. A token of one run gets that run's alone."""
    rows = _due(workspace_id)
    if actor.token is not None and actor.token.run_id is not None:
        rows = rows.filter(run_id=actor.token.run_id)
    if kind:
        rows = rows.filter(kind__name=kind)
    ids = list(rows.order_by("next_check_at").values_list("pk", flat=True)[:limit])
    return [turn for effect_id in ids if (turn := _claim(effect_id))]


def _due(workspace_id: str) -> QuerySet[Effect]:
    mine = Effect.objects.filter(run__workspace_id=workspace_id, kind__lookup__poll=True)
    due = mine.filter(settlement=Settlement.UNKNOWN, next_check_at__lte=Now())
    return due.exclude(run__status=RunStatus.ABANDONED)


def _claim(effect_id: str) -> Turn | None:
    """Move its time on, so that no other has it meanwhile."""
    rows = Effect.objects.filter(pk=effect_id, settlement=Settlement.UNKNOWN, next_check_at__lte=Now())
    until = database_time() + timedelta(seconds=TURN_S)
    if not rows.update(next_check_at=until, turn_until=until):
        return None
    effect: Effect = Effect.objects.select_related("kind").defer("body").get(pk=effect_id)
    return Turn(effect, f"{effect.attempt}.{until.isoformat()}", until)


def answer(*, actor: Actor, effect_id: str, turn: str, said: Answer) -> str:
    """Record what the caller saw; returns the settlement afterwards. It counts as of when its turn began.

    Raises NotFound, NotAllowed, NoTurn.
    """
    effect: Any = Effect.objects.select_related("run", "kind").defer("body").filter(pk=effect_id).first()
    if effect is None:
        raise NotFound("effect")
    demand(actor, "write", effect.run)
    attempt, until = _read(turn)
    rows = Effect.objects.filter(pk=effect_id, turn_until=until, attempt=attempt)
    polled = effect.kind is not None and effect.kind.lookup.get(POLL)
    if not polled or not rows.filter(turn_until__gt=Now()).update(turn_until=None):
        raise NoTurn(effect_id)
    asked = Asked(until - timedelta(seconds=TURN_S), attempt)
    return reconcile.apply_answer(effect_id, replace(said, answered_by=actor.id), actor, asked=asked)


def _read(turn: str) -> tuple[int, datetime]:
    number, _, moment = turn.partition(".")
    try:
        until = datetime.fromisoformat(moment)
    except ValueError as error:
        raise NoTurn(turn[:80]) from error
    if not (number.isascii() and number.isdecimal() and len(number) < 10 and until.tzinfo):
        raise NoTurn(turn[:80])
    return int(number), until
