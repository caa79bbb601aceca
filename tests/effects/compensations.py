"""An effect that happened, its declared refund, and the rule that permits it, for tests of compensations."""

from __future__ import annotations

import json
from typing import Any

from effects import approvals, compensate, ends, intents
from effects.approvals import Decided, NotDecided
from effects.compensate import NotDone, NotProposed
from effects.drain import drain_run
from effects.intents import plan_bytes
from effects.models import Compensation, Effect, Review
from runs import access, rules
from runs.access import Actor
from runs.guard import Opened
from runs.models import Run
from runs.rules import CompensationRule, Rules
from tests.worlds import World, a_kind, fresh, intention

BANK = {"url": "https://bank.example/charges"}
REFUND = plan_bytes(kind="bank.refund", title="Refund Ada", body='{"charge": "{ref}", "amount": 100}')


def allow(world: World, kind: str = "bank.refund", **rule: Any) -> None:
    """A rule that permits compensations of this kind, also after a stop unless told otherwise."""
    given = {"after_a_stop": True, **rule}
    version = rules.standing(world.workspace.pk).version
    wanted = Rules(compensations=(CompensationRule(kind=kind, **given),))
    rules.change_rules(actor=access.SET_UP, workspace_id=world.workspace.pk, version=version, rules=wanted)


def kinds(world: World, **charge: Any) -> None:
    """A charge, and a refund with its own address."""
    a_kind(world.workspace, "bank.charge", provider="http", send=BANK, **charge)
    a_kind(world.workspace, "bank.refund", provider="http", send={"url": "https://bank.example/refunds"})


def charged(world: World, run: Run, plan: bytes = REFUND, outcome: str = "applied", **fields: Any) -> Effect:
    """A charge of this run, sent and reported."""
    key = fields.pop("key", "charge:7")
    given = {"amount": "€100.00", "target": "Ada", "plan": plan, **fields}
    opened = intents.dispatch(world.ask(run, step_key=key), intention(key, **given))
    assert isinstance(opened, Opened)
    world.report(opened, outcome, provider_ref="ch_1", result={"id": "ch_1", "net": 97.5, "who": 'A"da'})
    effect: Effect = Effect.objects.get(run=run, key=key)
    return effect


def brought_to(world: World, run: Run, status: str) -> Run:
    """The run at rest in this status, by the verb that leads there; Alice presses."""
    if status == "COMPLETED":
        ends.complete(actor=world.agent, run_id=run.pk, seen=run.cancel_version)
    elif status == "FAILED":
        ends.fail(actor=world.agent, run_id=run.pk)
    else:
        mode = {"PAUSED": "pause", "CANCELLED": "cancel", "UNKNOWN": "cancel", "ABANDONED": "abandon"}[status]
        world.stop(run, mode=mode)
        drain_run(run.pk)
    run = fresh(run)
    assert run.status == status
    return run


def a_charge(world: World, status: str = "COMPLETED", plan: bytes = REFUND, **fields: Any) -> Effect:
    """With kinds and rule, of a run at rest."""
    kinds(world)
    allow(world)
    run = world.run()
    effect = charged(world, run, plan, **fields)
    brought_to(world, run, status)
    return fresh(effect)


def proposed(effect: Effect, by: Actor) -> Compensation:
    made = compensate.propose(actor=by, effect_id=effect.pk)
    assert isinstance(made, Compensation), made
    return made


def review_of(compensation: Compensation) -> Review:
    """Its newest review."""
    found: Review = Review.objects.filter(subject_id=compensation.pk).order_by("-pk")[0]
    return found


def approve(compensation: Compensation, by: Actor, digest: str = "", **more: Any) -> Decided | NotDecided:
    review = review_of(compensation)
    given = {"digest": digest or review.digest, "signed_in_s": 5.0, **more}
    return approvals.approve(actor=by, review_id=review.pk, **given)


def edit(compensation: Compensation, by: Actor, **new: Any) -> Compensation | NotDone:
    given = {"digest": review_of(compensation).digest, "amount": "€50.00", **new}
    return compensate.edit(actor=by, compensation_id=compensation.pk, **given)


def said(told: Any) -> str:
    """The answer, or the reason of none."""
    if isinstance(told, NotProposed | NotDone | NotDecided):
        return told.reason
    return told.answer if isinstance(told, Decided) else str(told.state)


def body_of(compensation: Compensation) -> Any:
    return json.loads(bytes(fresh(compensation).body))
