"""What a verdict makes of an effect, a delivery or a compensation: moves of one locked run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from runs.access import Actor
from runs.evidence import Line
from runs.models import Run

from . import contradictions, delivery_moves, repair_moves, settle
from .models import Compensation, Delivery, Effect, Ground, Matter, Verdict
from .unknowns import ACCEPTED, UNKNOWN, state_of

MEANS: dict[str, str] = {
    Verdict.HAPPENED: "happened",
    Verdict.PARTLY: "partly",
    Verdict.DID_NOT: "did not happen",
}
Told = Mapping[str, Any]


def ground_of(matter: str, row: Any) -> str:
    """On what ground it is settled."""
    if matter == Matter.DELIVERY:
        return str(row.ground or Ground.REPORTED)
    return str(row.ground)


def says_already(row: Any, verdict: str) -> bool:
    """Whether it stands as this verdict would have it."""
    state = state_of(row)
    if verdict == Verdict.CANNOT_TELL:
        return state == ACCEPTED
    stands = contradictions.AS_EFFECT.get(state, state)
    if stands in contradictions.NEVER:
        return verdict == Verdict.DID_NOT
    return stands == contradictions.SAYS[MEANS[verdict]]


def doubt(run: Run, matter: str, row: Any, actor: Actor, why: str, told: Told) -> list[Line]:
    """Settled → UNKNOWN: a second person says otherwise. ACCEPTED_UNKNOWN can be settled as it is."""
    was = state_of(row)
    if was == ACCEPTED:
        return []
    if matter == Matter.DELIVERY:
        delivery_moves.contradict(run, row, why)
        return [delivery_moves.line_of(row, actor.id, ground=Ground.DECIDED, was=was, why=why, **told)]
    settle.contradict(row, why)
    return [settle.line_of(row, actor.id, {"was": was, "why": row.why_unknown, **told}, Ground.DECIDED)]


def apply(run: Run, matter: str, row: Any, verdict: str, items: Any, actor: Actor, told: Told) -> list[Line]:
    """UNKNOWN (or ACCEPTED_UNKNOWN) → what the verdict says; `told` goes into the line."""
    return _APPLY[matter](run, row, verdict, items, actor, told)


def _effect(run: Run, row: Effect, verdict: str, items: Any, actor: Actor, told: Told) -> list[Line]:
    was = row.settlement
    facts = {"items": items} if verdict == Verdict.PARTLY else {}
    if verdict == Verdict.CANNOT_TELL:
        Effect.accept_unknown(row)
    else:
        _EFFECT[verdict](row, Ground.DECIDED, **facts)
    settle.happened(row)
    line = settle.line_of(row, actor.id, {"was": was, **told}, Ground.DECIDED)
    return [line, *settle.settle_step(run, row.step, actor.id)]


_EFFECT: dict[str, Callable[..., int]] = {
    Verdict.HAPPENED: Effect.confirm,
    Verdict.PARTLY: Effect.confirm_partly,
    Verdict.DID_NOT: Effect.deny,
}


def _delivery(run: Run, row: Delivery, verdict: str, items: Any, actor: Actor, told: Told) -> list[Line]:
    was = row.state
    if verdict == Verdict.CANNOT_TELL:
        Delivery.accept_unknown(row)
    else:
        move = Delivery.hand_over if verdict == Verdict.HAPPENED else Delivery.fail
        move(row, ground=Ground.DECIDED)
        if row.permit is not None:
            delivery_moves.end_step(row.permit.step_id, row.state)
    return [delivery_moves.line_of(row, actor.id, ground=Ground.DECIDED, was=was, **told)]


def _compensation(
    run: Run, row: Compensation, verdict: str, items: Any, actor: Actor, told: Told
) -> list[Line]:
    was = row.state
    if verdict == Verdict.CANNOT_TELL:
        Compensation.accept_unknown(row)
        return [repair_moves.settled_line(row, actor.id, {"was": was, **told}, Ground.DECIDED)]
    facts = {"items": items} if verdict == Verdict.PARTLY else {}
    return repair_moves.settle(run, row, MEANS[verdict], Ground.DECIDED, actor, facts)


_APPLY: dict[str, Callable[..., list[Line]]] = {
    Matter.EFFECT: _effect,
    Matter.DELIVERY: _delivery,
    Matter.COMPENSATION: _compensation,
}


def is_open(row: Any) -> bool:
    """Whether it is unknown now."""
    return state_of(row) == UNKNOWN
