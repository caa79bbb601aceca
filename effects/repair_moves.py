"""What becomes of a compensation that was dispatched: its holder's word, a lost lease, an answer, a verdict.

Moves of one locked run. What leads to the dispatch stands in compensation_moves.py, the verbs in repair.py.
A holder's "applied" proves nothing here: it is done, and being verified, until a look-up says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.db.models import Q

from runs import counts
from runs.access import Actor
from runs.compensating import AT_REST
from runs.evidence import Line
from runs.halts import COMPENSATE, Kinds
from runs.models import Evidence, EvidencePayload, Permit, PermitState, Run, RunStatus, Step, StepStatus
from runs.store import after

from . import compensation_moves
from .compensation import IN_DOUBT, RESTORE_FILES
from .models import Compensation, CompensationState, Ground, Settlement

FIRST_CHECK_S = 2.0
FILES_FOR_S = 86_400.0  # how long put-back files are looked at: no kind says so
HAPPENED, PARTLY, DID_NOT = "happened", "partly", "did not happen"  # as reconcile.meaning_of says
SAID = ("webhook.received", "compensation.looked_up", "permit.reported_late")
DONE = ("applied", "partial")  # a holder's word
NOT_DONE = (CompensationState.FAILED, CompensationState.NOT_NEEDED)  # the second also where none was sent
NOT_VERIFIED = "reported done, not verified"
KNOWN = (Settlement.CONFIRMED, Settlement.PARTIAL)  # only what happened is compensated


def of_permit(permit: Permit) -> Compensation | None:
    """The compensation that a permit was given for."""
    if permit.guard != COMPENSATE:
        return None
    rows = Compensation.objects.select_related("effect", "kind")
    found: Compensation | None = rows.filter(permit=permit).first()
    return found


def answered(permit: Permit) -> Kinds:
    """Kind and class of the effect that a permit's compensation answers, for the policies that cover it."""
    rows = Compensation.objects.filter(permit=permit)
    return list(rows.values_list("effect__kind_name", "effect__op_class"))


# its holder's word --------------------------------------------------------------------------------


def by_report(
    run: Run, compensation: Compensation, permit: Permit, told: Any, late: bool, actor: Actor
) -> list[Line]:
    """Move a compensation, and the step of this attempt, by its holder's word (settle.Told).

    What is settled stays so; not_sent is proposed again, its approvals used up; nothing is sent again.
    """
    facts = {
        "result": told.result,
        "provider_ref": told.provider_ref[:300],
        "items": told.items,
        "late": late,
    }
    if compensation.state not in IN_DOUBT:
        return []
    in_flight = compensation.state == CompensationState.DISPATCHED
    if told.outcome == "applied":
        return _done(run, compensation, actor, facts)
    if told.outcome == "not_sent" and in_flight:
        return _taken_back(run, compensation, actor)
    if told.outcome == "unknown":
        why = told.detail or "the worker could not say"
        return lose(compensation, why, actor.id) if in_flight else []
    meaning = PARTLY if told.outcome == "partial" else DID_NOT
    return settle(run, compensation, meaning, Ground.REPORTED, actor, facts)


def _done(run: Run, compensation: Compensation, actor: Actor, facts: Mapping[str, Any]) -> list[Line]:
    """Its holder says that it is done: it is verified by its own look-up, or it is unknown."""
    next_check_at, check_until = _schedule(run, compensation)
    rows = Compensation.objects.filter(pk=compensation.pk)
    rows.update(**facts, next_check_at=next_check_at, check_until=check_until)
    Step.lose(_step_of(compensation), NOT_VERIFIED)
    line = compensation_moves.line_of(
        compensation, "compensation.reported", actor.id, permit_id=compensation.permit_id or ""
    )
    if compensation.state == CompensationState.UNKNOWN:
        rows.update(why_unknown=NOT_VERIFIED)
        return [line]
    return [line] if next_check_at is not None else [line, *lose(compensation, NOT_VERIFIED, actor.id)]


def _taken_back(run: Run, compensation: Compensation, actor: Actor) -> list[Line]:
    """Nothing was sent. It is proposed again, unless what it stood on is gone meanwhile."""
    from . import proposals, reviews  # they know the providers, which know how a report settles

    permit_id = compensation.permit_id or ""
    Step.withhold(_step_of(compensation))
    Compensation.take_back(compensation)
    line = compensation_moves.line_of(compensation, "compensation.not_sent", actor.id, permit_id=permit_id)
    why = what_is_gone(run, compensation)
    if why:
        return [line, *reviews.void_compensation(run, compensation, why)]
    return [line, *proposals.ask(run, compensation)]


def what_is_gone(run: Run, compensation: Compensation) -> str:
    """Why an undecided or approved compensation can't be sent any more, ever: in words, or ""."""
    if run.status == RunStatus.ABANDONED:
        return "its run was abandoned"
    if run.cancel_version != compensation.run_version or run.status not in AT_REST:
        return "its run has another version"
    if why := earlier_did(compensation):
        return why
    effect = type(compensation.effect).objects.get(pk=compensation.effect_id)
    return "" if effect.settlement in KNOWN else "what it answers is not known to have happened any more"


def earlier_did(compensation: Compensation) -> str:
    """Why an earlier one for the same effect leaves nothing to be done that would not be done twice."""
    rows = Compensation.objects.filter(effect=compensation.effect_id, number__lt=compensation.number)
    reasons = {"in_part": "an earlier one was done in part"}
    reasons["after_all"] = "an earlier one may have happened after all"
    return next((reasons[why] for one in rows.order_by("number") if (why := not_twice(one))), "")


def not_twice(earlier: Compensation) -> str:
    """Why another one would do again what a failed one did: "in_part" · "after_all" · "".

    "after_all": something came after it was settled that says that it happened, at least in part: its
    holder's late word, or its provider's. Files are looked at before they are put back: none of them twice.
    """
    if earlier.state not in NOT_DONE or not earlier.settled_at or earlier.kind_name == RESTORE_FILES:
        return ""
    if _step_of(earlier).filter(status=StepStatus.PARTIAL).exists():
        return "in_part"
    told = Evidence.objects.filter(stream=earlier.run_id, effect_key=earlier.key, at__gt=earlier.settled_at)
    seqs = list(told.filter(kind__in=SAID).values_list("seq", flat=True))
    kept = EvidencePayload.objects.filter(stream=earlier.run_id, seq__in=seqs)
    said = [json.loads(body) for body in kept.values_list("body", flat=True) if body]
    happened = any(one.get("means") in (HAPPENED, PARTLY) or one.get("outcome") in DONE for one in said)
    return "after_all" if happened else ""


# nobody says --------------------------------------------------------------------------------------


def lose(compensation: Compensation, why: str, actor: str, *, ask: bool = True) -> list[Line]:
    """DISPATCHED → UNKNOWN, with the schedule of its look-ups where its kind has one and `ask` is true."""
    schedule = _schedule(compensation.run, compensation) if ask else (None, None)
    Compensation.lose(compensation, why[:200], *schedule)
    counts.compensated("unknown")
    Step.lose(_step_of(compensation), why[:200])
    told = {"why": why[:200]}
    permit_id = compensation.permit_id or ""
    return [
        compensation_moves.line_of(compensation, "compensation.unknown", actor, told, permit_id=permit_id)
    ]


def lose_all(run: Run, why: str, actor: str, *, ask: bool = True) -> list[Line]:
    """Every compensation in progress becomes UNKNOWN at once; with `ask` false, nobody is asked any more."""
    rows = Compensation.objects.filter(run=run)
    if not ask:
        rows.filter(next_check_at__isnull=False).update(next_check_at=None)
    flying = rows.filter(state=CompensationState.DISPATCHED).select_related("effect", "kind", "run")
    return [line for one in flying.order_by("pk") for line in lose(one, why, actor, ask=ask)]


def alive(run_ids: Sequence[str]) -> Any:
    """Those of these runs with a compensation that an abandon would end, or of which it stops asking."""
    flying = Q(state=CompensationState.DISPATCHED) | Q(next_check_at__isnull=False)
    return Compensation.objects.filter(flying, run__in=run_ids).order_by().values_list("run_id", flat=True)


def _schedule(run: Run, compensation: Compensation) -> tuple[Any, Any]:
    """When to look up first, and until when; None twice where nobody can be asked, or nobody asks."""
    if run.status == RunStatus.ABANDONED or not can_be_asked(compensation):
        return None, None
    kind = compensation.kind
    return after(FIRST_CHECK_S), after(FILES_FOR_S if kind is None else kind.check_for_s)


def can_be_asked(compensation: Compensation) -> bool:
    """Whether there is a look-up that can verify it: ours, or that of an agent which comes for it."""
    if compensation.kind_name == RESTORE_FILES:
        return True
    return compensation.kind is not None and bool(compensation.kind.lookup)


# it is known --------------------------------------------------------------------------------------


def settle(
    run: Run,
    compensation: Compensation,
    meaning: str,
    ground: str,
    actor: Actor,
    facts: Mapping[str, Any] | None = None,
) -> list[Line]:
    """happened → VERIFIED; partly (`items`) and did not happen → FAILED. Nothing of what is settled.

    `meaning` is one of happened · partly · did not happen; `facts`: items, provider_ref, result. While its
    holder may still send, only that it happened is believed.
    """
    if compensation.state not in IN_DOUBT or (meaning != HAPPENED and is_in_flight(compensation)):
        return []
    was = compensation.state
    move = Compensation.verify if meaning == HAPPENED else Compensation.fail
    move(compensation, ground, **(facts or {}))
    end = {HAPPENED: Step.succeed, PARTLY: Step.finish_partly}.get(meaning, Step.fail)
    end(_step_of(compensation))
    counts.compensated("verified" if meaning == HAPPENED else "failed")
    told = {"was": was, "means": meaning, "items": compensation.items}
    return [settled_line(compensation, actor.id, {k: v for k, v in told.items() if v}, ground)]


def settled_line(compensation: Compensation, actor: str, told: Mapping[str, Any], ground: str) -> Line:
    """`compensation.verified`, `compensation.failed`, … as it stands now, on its ground."""
    kind = f"compensation.{compensation.state.lower()}"
    permit_id = compensation.permit_id or ""
    line = compensation_moves.line_of(compensation, kind, actor, told, permit_id=permit_id)
    return replace(line, ground=ground)


def is_in_flight(compensation: Compensation) -> bool:
    """Its permit is open: its holder may be about to send it."""
    return Permit.objects.filter(pk=compensation.permit_id, state=PermitState.OPEN).exists()


def _step_of(compensation: Compensation) -> Any:
    """The step of its newest attempt, which ends with it."""
    step_id = Permit.objects.filter(pk=compensation.permit_id).values_list("step_id", flat=True).first()
    return Step.objects.filter(pk=step_id)
