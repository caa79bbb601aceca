"""A step is claimed, released, and tried again when nothing of it happened."""

from __future__ import annotations

from dataclasses import replace

import pytest

from effects import intents, settle
from effects.intents import may_retry
from effects.models import Effect
from runs import gate
from runs.guard import Known, Opened, Refusal
from runs.models import Step
from tests.worlds import (
    World,
    a_permit,
    a_run,
    a_step,
    an_effect,
    fresh,
    in_seconds,
    intention,
    kinds_of,
)

pytestmark = pytest.mark.django_db


def test_a_released_step_is_free_for_the_next_worker(world: World) -> None:
    run = world.run()
    step = world.claimed(run)
    assert isinstance(gate.release(world.ask_of(step)), Step)
    assert (fresh(step).status, fresh(step).claim_token) == ("PENDING", "")
    again = world.claimed(run)
    assert (again.pk, again.attempt, again.claim_token == step.claim_token) == (step.pk, 2, False)


@pytest.mark.parametrize("state", ["OPEN", "REPORTED", "LOST", "NOT_SENT"])
def test_a_dispatched_step_is_released_only_if_nothing_was_sent_under_it(world: World, state: str) -> None:
    step = a_step(a_run(workspace=world.workspace), "DISPATCHED")
    a_permit(step, state)
    a_permit(step, "NOT_SENT")
    answer = gate.release(world.ask_of(step))
    assert isinstance(answer, Step) == (state == "NOT_SENT")
    assert fresh(step).status == ("PENDING" if state == "NOT_SENT" else "DISPATCHED")


@pytest.mark.parametrize(("happened", "ends"), [(False, "WITHHELD"), (True, "PARTIAL")])
def test_a_step_given_back_under_a_cancel_is_withheld_not_queued(
    world: World, happened: bool, ends: str
) -> None:
    step = a_step(a_run("CANCELLING", workspace=world.workspace), "DISPATCHED", happened=happened)
    a_permit(step, "NOT_SENT")
    assert isinstance(gate.release(world.ask_of(step)), Step)
    assert fresh(step).status == ends


def test_a_step_that_ends_with_its_effect_takes_no_second_one(world: World) -> None:
    run = world.run()
    first = world.opened(run, "charge:7")
    settle.report(
        actor=world.agent,
        permit_id=first.permit.pk,
        token=first.permit.token,
        told=settle.Told("not_sent"),
    )
    ask = replace(world.ask(run), step_key=first.step.key)
    with pytest.raises(intents.StepTaken):
        intents.dispatch(ask, intention("charge:8"))
    with pytest.raises(intents.StepTaken):
        intents.declare(ask, intention("charge:8"))
    assert Effect.objects.count() == 1
    assert isinstance(intents.dispatch(ask, intention("charge:7")), Opened)  # its own effect: again


def test_a_claim_of_somebody_else_can_not_be_released(world: World) -> None:
    step = world.claimed(world.run())
    for token in ("", "forged"):
        answer = gate.release(replace(world.ask_of(step), claim_token=token))
        assert isinstance(answer, Refusal)
        assert answer.reason == "lost_claim"
    assert fresh(step).status == "CLAIMED"


RETRIES = [
    ([], False),
    (["NOT_APPLIED"], True),
    (["DECLARED", "NOT_APPLIED"], True),
    (["NOT_APPLIED", "UNKNOWN"], False),
    (["NOT_APPLIED", "DISPATCHED"], False),
    (["NOT_APPLIED", "CONFIRMED"], False),
    (["PARTIAL"], False),
    (["ACCEPTED_UNKNOWN"], False),
    (["NOT_STARTED"], False),
]


@pytest.mark.invariant("I6")
@pytest.mark.parametrize(("settlements", "allowed"), RETRIES)
def test_a_retry_is_scheduled_only_when_every_effect_is_known_not_to_have_happened(
    world: World, settlements: list[str], allowed: bool
) -> None:
    step = a_step(a_run(workspace=world.workspace), "FAILED")
    for settlement in settlements:
        an_effect(step, settlement)
    answer = gate.retry(world.ask(step.run, step_id=step.pk), due_in_s=5, allowed=may_retry())
    assert isinstance(answer, Step) == allowed
    assert fresh(step).status == ("RETRY_WAIT" if allowed else "FAILED")


def waiting_retry(world: World) -> Step:
    step = a_step(a_run(workspace=world.workspace), "FAILED")
    an_effect(step, "NOT_APPLIED")
    gate.retry(world.ask(step.run, step_id=step.pk), due_in_s=5, allowed=may_retry())
    return step


@pytest.mark.invariant("I6")
def test_a_retry_asks_the_gate_again_when_it_is_due(world: World) -> None:
    step = waiting_retry(world)
    ask = world.ask(step.run, step_id=step.pk)
    assert isinstance(gate.fall_due(ask), Known)  # not yet
    assert fresh(step).status == "RETRY_WAIT"
    Step.objects.filter(pk=step.pk).update(due_at=in_seconds(-1))
    assert isinstance(gate.fall_due(ask), Step)
    assert fresh(step).status == "PENDING"


@pytest.mark.invariant("I6")
def test_a_retry_timer_that_fires_after_a_stop_leaves_its_own_refusal(world: World) -> None:
    step = waiting_retry(world)
    world.stop(step.run)
    assert fresh(step).status == "WITHHELD"
    Step.objects.filter(pk=step.pk).update(due_at=in_seconds(-1))
    refusal = gate.fall_due(world.ask(step.run, step_id=step.pk))
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.boundary) == ("stopped", "retry")
    assert "retry.refused" in kinds_of(step.run)
    assert fresh(step).status == "WITHHELD"
