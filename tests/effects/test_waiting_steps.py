"""Steps of several effects, some of which people decide about: how they end, and which reviews stay open."""

from __future__ import annotations

from typing import Any

import pytest

from effects import approvals, intents
from effects.drain import drain_run
from effects.models import Approval, Effect, Review
from effects.reconcile import PRESENT, Answer, apply_answer
from effects.resume import plan
from runs import gate
from runs.access import Actor
from runs.guard import Opened, Refusal, Waiting
from runs.models import Evidence, Run, Step
from tests.worlds import World, fresh, intention

pytestmark = pytest.mark.django_db


def ask(world: World, step: Step, key: str, needed: int = 0) -> Any:
    """The holder of a step asks to send an effect of it, and wants so many people to decide first."""
    return intents.dispatch(world.ask_of(step), intention(key, approvals=needed))


def wait(world: World, step: Step, key: str, needed: int = 1) -> Review:
    answer = ask(world, step, key, needed)
    assert isinstance(answer, Waiting)
    return Review.objects.get(pk=answer.review.pk)


def approve(review: Review, by: Actor) -> Any:
    return approvals.approve(actor=by, review_id=review.pk, digest=fresh(review).digest, signed_in_s=5.0)


def answers(run: Run) -> dict[str, str]:
    return {item.key: item.answer for item in plan(fresh(run))}


# --- A step never says that it was withheld while something of it may have happened ----------------------


@pytest.mark.parametrize("end", ["cancel", "reject"])
def test_a_step_with_an_unknown_effect_is_not_withheld_by_what_waits_beside_it(
    world: World, end: str
) -> None:
    run = world.run()
    step = world.claimed(run)
    first = world.opened(run, "charge:1", step_id=step.pk, claim_token=step.claim_token)
    world.report(first, "unknown")
    review = wait(world, step, "charge:2")
    assert Effect.objects.get(key="charge:1").settlement == "UNKNOWN"
    if end == "cancel":
        world.stop(run)
    else:
        approvals.reject(actor=world.bob, review_id=review.pk, reason="no")
    assert fresh(step).status != "WITHHELD", "its first effect may have happened"
    apply_answer(first.subject.pk, Answer(PRESENT))
    world.finish(step)
    assert Effect.objects.get(key="charge:1").settlement == "CONFIRMED"
    assert fresh(step).status == "SUCCEEDED"


# --- No review stays open on a step that has ended ---------------------------------------------------------


def test_a_no_to_one_effect_of_a_step_closes_what_its_others_were_asked(world: World) -> None:
    run = world.run()
    step = world.claimed(run)
    first, second = wait(world, step, "charge:1"), wait(world, step, "charge:2")
    approvals.reject(actor=world.bob, review_id=first.pk, reason="no")
    assert fresh(step).status == "WITHHELD"
    assert (fresh(first).closed_as, fresh(second).closed_as) == ("rejected", "ended")
    assert approve(second, world.carol).reason == "closed"


@pytest.mark.parametrize("result", ["succeeded", "partial"])
def test_a_step_that_its_worker_ends_closes_what_was_asked_for_it(world: World, result: str) -> None:
    run = world.run()
    step = world.claimed(run)
    first = world.opened(run, "charge:1", step_id=step.pk, claim_token=step.claim_token)
    review = wait(world, step, "charge:2")
    world.report(first)
    world.finish(step, result)
    assert (fresh(review).closed_as, fresh(review).reason) == ("ended", "its step ended")
    assert Evidence.objects.filter(stream=run.pk, kind="review.ended").count() == 1


def test_a_step_that_failed_may_be_tried_again_and_keeps_its_question(world: World) -> None:
    run = world.run()
    step = world.claimed(run)
    first = world.opened(run, "charge:1", step_id=step.pk, claim_token=step.claim_token)
    review = wait(world, step, "charge:2")
    world.report(first, "not_applied")
    world.finish(step, "failed")
    assert fresh(review).closed_at is None


# --- One effect's approval taken back is not another's ------------------------------------------------------


def test_a_yes_taken_back_does_not_send_a_step_to_wait_that_another_yes_queued(world: World) -> None:
    run = world.run()
    step = world.claimed(run)
    first, second = wait(world, step, "charge:1"), wait(world, step, "charge:2", needed=2)
    approve(second, world.bob)
    approve(first, world.carol)
    assert fresh(step).status == "PENDING"
    approvals.revoke(actor=world.bob, review_id=second.pk)
    assert fresh(step).status == "PENDING", "the first effect of it is still granted"
    claimed = gate.claim(world.ask(run, step_id=step.pk))
    assert isinstance(claimed, Step)
    assert isinstance(ask(world, claimed, "charge:1"), Opened)
    wait(world, claimed, "charge:2", needed=2)


def test_a_yes_that_a_refused_revocation_found_void_leaves_its_line(world: World) -> None:
    run = world.run()
    review = wait(world, world.claimed(run), "charge:1", needed=2)
    approve(review, world.bob)
    world.stop(run, by=world.bob, mode="pause")
    answer = approvals.revoke(actor=Actor(world.carol.id, user=world.carol.user), review_id=review.pk)
    assert answer.reason == "token"  # type: ignore[union-attr]
    assert Approval.objects.get().state == "VOID"
    assert Evidence.objects.filter(stream=run.pk, kind="approval.voided").count() == 1


# --- What a resume may say of them --------------------------------------------------------------------------


def test_the_plan_of_a_resume_calls_nothing_safe_that_people_still_decide_or_said_no_to(world: World) -> None:
    run = world.run()
    keys = ("charge:asked", "charge:granted", "charge:refused", "charge:free")
    for key in keys[:3]:
        review = wait(world, world.claimed(run, key), key)
        if key == "charge:granted":
            approve(review, world.bob)
        if key == "charge:refused":
            approvals.reject(actor=world.bob, review_id=review.pk, reason="no")
    free = world.opened(run, keys[3])
    world.report(free, "not_applied")
    world.stop(run, mode="pause")
    assert drain_run(run.pk) == "PAUSED"
    assert answers(run) == {
        "charge:asked": "waits for approval",
        "charge:granted": "safe to run",
        "charge:refused": "skip, not approved",
        "charge:free": "safe to run",
    }
    assert isinstance(ask(world, Step.objects.get(key="charge:asked"), "charge:asked"), Refusal)


def test_a_no_that_finds_its_step_claimed_withholds_it_when_its_worker_asks(world: World) -> None:
    run = world.run()
    answer = intents.dispatch(world.ask(run, step_key="pay"), intention("charge:1", approvals=1))
    assert isinstance(answer, Waiting)
    approve(answer.review, world.bob)
    claimed = gate.claim(world.ask(run, step_id=answer.step.pk))
    assert isinstance(claimed, Step)
    approvals.reject(actor=world.carol, review_id=answer.review.pk, reason="no")
    assert fresh(claimed).status == "CLAIMED", "its worker may be about to ask"
    refused = ask(world, claimed, "charge:1")
    assert isinstance(refused, Refusal)
    assert (refused.reason, fresh(claimed).status) == ("not_approved", "WITHHELD")
    assert Evidence.objects.filter(stream=run.pk, kind="step.withheld", step_id=claimed.pk).count() == 1
