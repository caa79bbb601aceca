"""Ask about an unknown now, whenever its next look-up is due. The line says who asked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db import close_old_connections, transaction
from django.db.models import Q
from django.db.models.functions import Coalesce

from runs import wake
from runs.access import Actor, demand
from runs.evidence import Line, record
from runs.guard import lock_run
from runs.models import RunStatus
from runs.store import Now, after, verb

from . import lookup, reconcile, repair, repair_moves
from .care import each_one
from .models import Matter
from .reconcile import Answer, Asked
from .unknowns import MODELS, UNKNOWN, row_of, state_of
from .verdicts import Checked, NotResolved

TURN_S = 30.0


@dataclass(frozen=True)
class Turn:
    """A claimed question: about what, and as of when."""

    matter: str
    row: Any
    asked: Asked


def why_nobody(matter: str, row: Any) -> str:
    """Why nobody can be asked about it at once: a key of WHY_NOT, or ""."""
    if matter == Matter.DELIVERY:
        return "a_message"
    if row.run.status == RunStatus.ABANDONED:
        return "abandoned"
    if matter == Matter.COMPENSATION and row.kind is None:
        return "" if repair_moves.can_be_asked(row) else "no_look_up"
    if row.kind is None:
        return "no_kind"
    if not row.kind.lookup:
        return "no_look_up"
    return "polled" if row.kind.lookup.get("poll") else ""


def check_now(*, actor: Actor, subject_id: str) -> Checked | NotResolved:
    """Ask at once, outside any transaction; what it said is recorded, and settles what it settles.

    An agent may ask with the right to write, a person with that to resolve. Raises NotFound, NotAllowed.
    """
    turn = _take_turn(actor, subject_id)
    if isinstance(turn, NotResolved):
        return turn
    close_old_connections()  # a slow provider must not hold one of the pool's few
    answer = _ask(turn)
    state = _APPLY[turn.matter](subject_id, answer, actor=actor, asked=turn.asked)
    means = reconcile.meaning_of(turn.row, answer, turn.asked)
    return Checked(answer.answer, answer.detail, means, state)


_APPLY: dict[str, Any] = {
    Matter.EFFECT: reconcile.apply_answer,
    Matter.COMPENSATION: repair.apply_answer,
}


def _ask(turn: Turn) -> Answer:
    if turn.matter == Matter.COMPENSATION:
        return repair.ask_provider(turn.row)
    return lookup.ask(turn.row)


@verb
def _take_turn(actor: Actor, subject_id: str) -> Turn | NotResolved:
    """Claim the question, unless somebody is asking it: it may not be due, or its schedule may have ended."""
    matter, row = row_of(subject_id)
    demand(actor, "resolve" if actor.token is None else "write", row.run)
    if state_of(row) != UNKNOWN:
        return NotResolved("settled")
    why = why_nobody(matter, row)
    if why:
        return NotResolved(why)
    moved = {"turn_until": after(TURN_S), "next_check_at": after(TURN_S)}
    if not _free(matter, subject_id).update(check_until=Coalesce("check_until", Now()), **moved):
        return NotResolved("asking")
    if matter == Matter.COMPENSATION:
        return Turn(matter, *repair.read_for_look_up(subject_id))
    return Turn(matter, *reconcile.read_for_look_up(subject_id))


def _free(matter: str, subject_id: str) -> Any:
    """Its row, while it is unknown and nobody asks about it: own columns only, for a guarded UPDATE."""
    name = "settlement" if matter == Matter.EFFECT else "state"
    rows = MODELS[matter].objects.filter(pk=subject_id, **{name: UNKNOWN})
    return rows.filter(Q(turn_until__isnull=True) | Q(turn_until__lte=Now()))


def check_many(*, actor: Actor, subject_ids: Iterable[str]) -> dict[str, str]:
    """Have each asked as soon as possible: id → "" (it will be) or a key of WHY_NOT ("not_found" too)."""
    return {one: each_one(_ask_soon, actor, one) for one in dict.fromkeys(subject_ids)}


@verb
def _ask_soon(actor: Actor, subject_id: str) -> str:
    run = lock_run(row_of(subject_id)[1].run_id)
    demand(actor, "resolve" if actor.token is None else "write", run)
    matter, row = row_of(subject_id)
    why = "settled" if state_of(row) != UNKNOWN else why_nobody(matter, row)
    if why:
        return why
    if not _free(matter, subject_id).update(next_check_at=Now(), check_until=Coalesce("check_until", Now())):
        return "asking"
    record(run, Line("unknown.asked", actor.id, {"subject": subject_id}, effect_key=row.key))
    if matter == Matter.EFFECT:  # a compensation has its turn in the next pass
        transaction.on_commit(partial(wake.run_soon, "effects.tasks.check", subject_id), robust=True)
    return ""
