"""Guards taken away, one or more at a time: the machine has to find each of them, or a directed test does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from django.db.models import Exists, OuterRef, Q

from effects import approvals, four_eyes, reconcile, resume, settle
from effects.models import Approval, Effect, Review
from runs import gate
from runs.guard import STALE, STOPPED
from runs.models import Gate, Policy, Run, Session, StopRequest, Workspace

from .directed import A_DISPATCH

Patches = dict[str, Any]
look, why_not_resumed, calls = gate.look, resume._why_not, reconcile._calls
absence_proves = reconcile._absence_proves
by_report, approve = settle.settle_by_report, approvals.approve
SCHEMA, MACHINE = "schema", "machine of states"  # what refuses some of them before a promise is broken


@dataclass(frozen=True)
class Mutant:
    """`gone`: what is not asked any more. `killed_by`: the promises one of which it breaks; none for one that
    survives, because another guard makes up for it: `directed` names the pair or the test that kills it.
    """

    gone: str
    patches: Patches
    killed_by: tuple[str, ...] = ()
    directed: str = ""


def _stale(run: Any, seen: int) -> str | None:
    return STALE if run.cancel_version != seen else None


def _no_epochs(*asked: Any) -> Q:
    workspace_id, _, session_id, _, policies = asked
    gates = Q(Exists(Workspace.objects.filter(pk=workspace_id, gate=Gate.OPEN)))
    if session_id:
        gates &= Q(Exists(Session.objects.filter(pk=session_id, gate=Gate.OPEN)))
    for pk in policies:
        gates &= Q(Exists(Policy.objects.filter(pk=pk, gate=Gate.OPEN)))
    return gates


def _look_says(*words: str) -> Callable[..., Any]:
    def blind(permit_id: str, token: str) -> Any:
        told = look(permit_id, token)
        return replace(told, answer="open") if told.answer in words else told

    return blind


def _of_the_run_alone() -> Q:
    run = {"pk": OuterRef("run_id"), "cancel_version": OuterRef("seen_version"), "status": "ACTIVE"}
    return Q(Exists(Run.objects.filter(**run)))


def _resumed_in_spite_of(reason: str) -> Callable[..., Any]:
    def why_not(*asked: Any) -> Any:
        why = why_not_resumed(*asked)
        return None if why == reason else why

    return why_not


def _no_bump(rows: Run, epochs: dict[str, Any]) -> int:
    return Run.objects.filter(pk=rows.pk).advance({"status": "ACTIVE", **epochs})


def _settle_as(move: Callable[..., int]) -> Callable[..., Any]:
    return lambda effect, why, **how: move(effect, "reported")


def _of_a_kind_with(**named: int) -> Callable[..., bool]:
    def proves(effect: Any, answer: Any, asked: Any) -> bool:
        if effect.kind is None:
            return absence_proves(effect, answer, asked)
        with ExitStack() as stack:
            for name, value in named.items():
                stack.enter_context(patch.object(effect.kind, name, value))
            return absence_proves(effect, answer, asked)

    return proves


def _late_is_nothing(effect: Any, permit: Any, told: Any, actor: Any, late: bool) -> Any:
    return [] if late else by_report(effect, permit, told, actor, late)


def _any_digest(**said: Any) -> Any:
    return approve(**{**said, "digest": Review.objects.get(pk=said["review_id"]).digest})


def _never_over(review: Review, run: Any) -> list[Approval]:
    return list(four_eyes.given(review).filter(digest=review.digest))


def _used_when_over(rows: Any, permit: Any, digest: str) -> int:
    done: int = rows.filter(digest=digest).advance({"state": "CONSUMED", "permit": permit})
    return done


def nothing(*asked: Any, **named: Any) -> Any:
    return None


def empty(*asked: Any, **named: Any) -> Any:
    return []


def yes(*asked: Any, **named: Any) -> bool:
    return True


def no(*asked: Any, **named: Any) -> bool:
    return False


OPEN_ONLY = SimpleNamespace(OPEN="OPEN", LOST="OPEN")
TAKE_BACK: Patches = {"effects.reviews.take_back": empty}
REFRESH: Patches = {
    "effects.reviews.refresh": empty,
    "effects.reviews.stored": lambda review: (review.digest, review.evidence_seq),
    "effects.reviews.is_as_approved": yes,
}
EXPIRY: Patches = {
    "effects.reviews.is_over": no,
    "effects.four_eyes.is_over": no,
    "effects.four_eyes.counting": _never_over,
    "effects.reviews.counting": _never_over,
    "effects.approvals.over": empty,
}
EPOCH: Patches = {"runs.guard.scopes_at": _no_epochs}
UNFENCED: Patches = {"runs.releases._demand_fenced": nothing}
ORIGINAL: Patches = {"effects.repair_moves.what_is_gone": lambda run, one: ""}
VOIDED: Patches = {"effects.contradictions.follow": nothing}

GATE: dict[str, Mutant] = {
    "no status": Mutant(
        "whether the run is ACTIVE",
        {"runs.gate.why_not": lambda run, seen, is_open: _stale(run, seen) if is_open else STOPPED},
        ("I1",),
    ),
    "no version": Mutant(
        "the version that the worker saw",
        {
            "runs.gate.why_not": lambda run, seen, is_open: (
                None if is_open and run.status == "ACTIVE" else STOPPED
            )
        },
        ("I1",),
    ),
    "no gate": Mutant("status, version and scopes", {"runs.gate.why_not": nothing}, ("I1",)),
    "no scope": Mutant(
        "the gates above",
        {
            "runs.gate.why_not": lambda run, seen, is_open: (
                _stale(run, seen) if run.status == "ACTIVE" else STOPPED
            )
        },
        ("I1",),
    ),
    "no epoch": Mutant("the epoch of admission", EPOCH, directed=A_DISPATCH),
    # Without the fence a promise is broken before the epoch is asked: both gone say nothing more.
    "not fenced": Mutant("whether a stop reached its runs, before a release", UNFENCED, ("I19",)),
    "no policy": Mutant("policies of effects", {"runs.guard._withheld": nothing}, ("I1",)),
    "no step": Mutant("the stop of a step", {"runs.gate.why_not_step": nothing}, ("I1",)),
    "messages pass": Mutant("the gate of a message", {"runs.gate.why_not_deliver": nothing}, ("I1",)),
    "retries pass": Mutant("the gate of a retry", {"runs.retries.why_not": nothing}, ("I6",)),
    "no second look": Mutant("the look", {"runs.gate.look": _look_says("shut", "expired")}, ("I7",)),
    "no end of a permit": Mutant("its time", {"runs.gate.look": _look_says("expired")}, ("I7",)),
    "a look at the run": Mutant(
        "scopes and policies, in the look",
        {
            "runs.gate._gates_of_permit": _of_the_run_alone,
            "runs.gate._scopes_let": yes,
            "runs.gate._policy_above": nothing,
        },
        ("I7",),
    ),
    "settled is sent": Mutant("what is settled", {"effects.intents.SKIP": ()}, (MACHINE, "I6")),
    "doubt is sent": Mutant("what is in doubt", {"effects.intents.WAIT": ()}, (MACHINE, "I6")),
}
STOPS: dict[str, Mutant] = {
    "a press twice": Mutant("the key of a press", {"runs.stops.pressed_before": nothing}, ("I4", SCHEMA)),
    "lost ones unlisted": Mutant("LOST permits, in the list", {"runs.stops.PermitState": OPEN_ONLY}, ("I2",)),
    "no fan-out": Mutant(
        "the runs of a scope", {"runs.fanout._left": lambda stop: Run.objects.none()}, ("I19",)
    ),
    "a waiting stop": Mutant(
        "stops that wait for a key",
        {"runs.stops.waiting_for": lambda workspace, key: StopRequest.objects.none()},
        ("I17",),
    ),
    "no new version": Mutant("the version of a resume", {"runs.models.Run.resume": _no_bump}, (SCHEMA,)),
    "resumed in doubt": Mutant(
        "effects in doubt", {"effects.resume._why_not": _resumed_in_spite_of("must wait")}, ("I5",)
    ),
    "resumed when shut": Mutant(
        "the gates above", {"effects.resume._why_not": _resumed_in_spite_of("gate")}, ("I5",)
    ),
    "an old decision": Mutant("what the decision was about", {"effects.resume.Seen.is_old": no}, ("I17",)),
    "leases for ever": Mutant("ends of leases", {"runs.drain.lose_leases": empty}, ("I30",)),
    "closed and open": Mutant("open permits and steps", {"runs.drain.is_quiet": yes}, ("I12",)),
    "closed in doubt": Mutant("unknown effects", {"effects.close._unsettled": no}, ("I12",)),
    "a stranger": Mutant("membership", {"runs.stops.demand": nothing}, ("I28",)),
}
TRUTH: dict[str, Mutant] = {
    "absent is proof": Mutant(
        "window, holders, keys", {"effects.reconcile._absence_proves": yes}, ("I10", "I6")
    ),
    "no window": Mutant(
        "the settle window",
        {"effects.reconcile._absence_proves": _of_a_kind_with(settle_window_s=0)},
        ("I10", "I6"),
    ),
    "lost holders": Mutant(
        "who may still send",
        {"effects.reconcile._calls": lambda effect, at: (True, calls(effect, at)[1])},
        ("I10", "I6"),
    ),
    "forgotten keys": Mutant(
        "how long keys are known",
        {"effects.reconcile._absence_proves": _of_a_kind_with(key_retention_s=10**8)},
        ("I10", "I6", "I11"),
    ),
    "timeout is done": Mutant("doubt", {"effects.settle.lose": _settle_as(Effect.confirm)}, ("I9",)),
    "lost is done": Mutant(
        "doubt of a lost one", {"effects.drain.lose": _settle_as(Effect.confirm)}, ("I9",)
    ),
    "lost is not": Mutant(
        "doubt of a lost one", {"effects.drain.lose": _settle_as(Effect.deny)}, ("I10", "I6", "I11")
    ),
    "no line": Mutant("the evidence of a look-up", {"effects.reconcile.record": nothing}, ("I9",)),
    "late is nothing": Mutant(
        "late reports", {"effects.settle.settle_by_report": _late_is_nothing}, ("I11",)
    ),
    "no contradiction": Mutant("what speaks against it", {"effects.contradictions.disagrees": no}, ("I11",)),
    "no evidence": Mutant("evidence of a verdict", {"effects.backing.objection": lambda *asked: ""}, ("I9",)),
    "one's own word": Mutant("whose run it is", {"effects.backing.is_own": no}, ("I9",)),
    "the same person": Mutant("who agrees", {"effects.resolve._may_not_agree": lambda *asked: ""}, ("I9",)),
}
PEOPLE: dict[str, Mutant] = {
    "self-approval": Mutant(
        "who may not", {"effects.four_eyes.barred_from": lambda *a, **k: {}}, ("I14", SCHEMA)
    ),
    "any role": Mutant(
        "the role, when it is used",
        {"effects.four_eyes.MAY_APPROVE": ["viewer", "operator", "reviewer", "admin"]},
        ("I14",),
    ),
    "no expiry": Mutant("the end of an approval", EXPIRY, directed="no expiry, used when over"),
    "used when over": Mutant(
        "its end, when it is used",
        {"effects.models.Approval.consume": _used_when_over},
        directed="no expiry, used when over",
    ),
    "no expiry, used when over": Mutant(
        "both", EXPIRY | {"effects.models.Approval.consume": _used_when_over}, ("I14",)
    ),
    "an edit keeps": Mutant("that an edit ends approvals", TAKE_BACK, directed="an edit keeps, no digest"),
    "no digest": Mutant("what was approved", REFRESH, directed="an edit keeps, no digest"),
    "an edit keeps, no digest": Mutant("both", TAKE_BACK | REFRESH, ("I14",)),
    "any digest": Mutant("what the reviewer saw", {"effects.approvals.approve": _any_digest}, ("I15",)),
    "used twice": Mutant("that it is used up", {"effects.reviews._consume": empty}, ("I14",)),
    "no halt": Mutant("halts", {"runs.halts.over": nothing}, ("I18",)),
    "its original": Mutant("what it answers, when sent", ORIGINAL, directed="its original, not voided"),
    "not voided": Mutant("what it answers, when that changes", VOIDED, directed="its original, not voided"),
    "its original, not voided": Mutant("both", ORIGINAL | VOIDED, ("I14",)),
}
ALL: dict[str, Mutant] = {**GATE, **STOPS, **TRUTH, **PEOPLE}


# Where the search for a mutant begins: near to where its guard is asked. The others begin anywhere.
NEAR: dict[str, tuple[str, ...]] = {
    "no status": ("stopped", "done", "paused"),
    "no version": ("resumed", "stale"),
    "no gate": ("stopped", "paused", "shut"),
    "no scope": ("shut",),
    "no epoch": ("shut", "resumed"),
    "not fenced": ("shut",),
    "no policy": ("", "opened"),
    "no step": ("stepped",),
    "messages pass": ("message", "shut"),
    "retries pass": ("late", "stale"),
    "no second look": ("opened", "shut"),
    "no end of a permit": ("opened",),
    "a look at the run": ("shut", "opened"),
    "settled is sent": ("paused", "late", "resumed"),
    "doubt is sent": ("late", "lost"),
    "a press twice": ("resumed", "stale"),
    "lost ones unlisted": ("lost",),
    "no fan-out": ("opened", ""),
    "no new version": ("paused",),
    "resumed in doubt": ("late", "lost"),
    "resumed when shut": ("shut", "paused"),
    "an old decision": ("paused",),
    "leases for ever": ("opened", "looked"),
    "closed and open": ("opened", "looked"),
    "closed in doubt": ("late", "lost"),
    "a stranger": ("",),
    "absent is proof": ("lost", "looked", "late"),
    "no window": ("late",),
    "lost holders": ("long",),
    "forgotten keys": ("forgotten",),
    "timeout is done": ("opened", ""),
    "lost is done": ("opened", "looked"),
    "lost is not": ("looked", "lost"),
    "no line": ("late", "stopped"),
    "late is nothing": ("late", "lost"),
    "no contradiction": ("late", "stopped"),
    "no evidence": ("late", "stopped"),
    "one's own word": ("", "late"),
    "the same person": ("late", "stopped"),
    **dict.fromkeys(PEOPLE, ("proposed", "approved", "sent")),
}


@contextmanager
def gone(*mutants: Mutant) -> Iterator[None]:
    """These guards are gone in this block."""
    with ExitStack() as stack:
        for mutant in mutants:
            for target, instead in mutant.patches.items():
                stack.enter_context(patch(target, instead))
        yield
