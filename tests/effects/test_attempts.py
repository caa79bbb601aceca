"""Several attempts of one effect, and several effects or permits of one step: what each word counts for."""

from __future__ import annotations

from typing import Any

import pytest

from effects import intents
from effects.drain import drain_run
from effects.models import Effect
from runs import gate
from runs.guard import Opened, Refusal
from runs.models import Run, Step
from tests.worlds import World, a_kind, a_permit, an_effect, fresh, intention, kinds_of, lapse

pytestmark = pytest.mark.django_db


def again(world: World, run: Run) -> tuple[Opened, Opened]:
    """The worker of the first was lost, a look-up said "not applied", the second is in flight."""
    first = world.opened(run)
    lapse(first.permit, first.step)
    drain_run(run.pk)
    Effect.deny(Effect.objects.get(), "looked up")
    Step.fail(Step.objects.get())
    return first, world.opened(run)


# what the holder of the second attempt says after the first is known to have happened
SECOND = ["applied", "partial", "not_applied", "not_sent", "unknown"]


@pytest.mark.invariant("I11")
@pytest.mark.parametrize("word", SECOND)
def test_an_earlier_attempt_that_happened_counts_whatever_the_next_one_says(world: World, word: str) -> None:
    run = world.run()
    first, second = again(world, run)
    world.report(first, "applied", provider_ref="ch_1")
    assert Effect.objects.get().settlement == "CONFIRMED"
    assert fresh(second.step).status == "DISPATCHED"  # its permit is open
    world.stop(run)
    world.report(second, word)
    effect = Effect.objects.get()
    assert (effect.settlement, effect.provider_ref, effect.permit_id) == (
        "CONFIRMED",
        "ch_1",
        second.permit.pk,
    )
    assert (fresh(second.step).status, fresh(run).status) == ("SUCCEEDED", "CANCELLED")


@pytest.mark.invariant("I11")
@pytest.mark.parametrize("word", ["not_applied", "not_sent"])
def test_an_earlier_attempt_that_happened_contradicts_the_next_ones_word(world: World, word: str) -> None:
    """Both came by report: neither outweighs the other, so nobody knows, and the provider is asked."""
    a_kind(world.workspace, lookup={"url": "https://bank.example/{key}"})
    run = world.run()
    first, second = again(world, run)
    world.report(second, word)
    assert Effect.objects.get().settlement == "NOT_APPLIED"
    world.report(first, "applied")
    effect = Effect.objects.get()
    assert (effect.settlement, effect.contradicted) == ("UNKNOWN", True)
    assert effect.next_check_at is not None
    assert effect.check_until is not None
    assert kinds_of(run)[-2:] == ["permit.reported_late", "effect.unknown"]
    assert not isinstance(intents.dispatch(world.ask(run, step_key="charge:7"), intention()), Opened)


@pytest.mark.invariant("I10")
@pytest.mark.parametrize("word", ["not_applied", "not_sent", "unknown"])
@pytest.mark.parametrize("doubt", [False, True])
def test_an_earlier_attempt_that_did_not_happen_says_nothing_of_the_next(
    world: World, word: str, doubt: bool
) -> None:
    run = world.run()
    first, second = again(world, run)
    if doubt:
        world.report(second, "unknown")
    before = Effect.objects.get().settlement
    world.report(first, word)
    assert Effect.objects.get().settlement == before == ("UNKNOWN" if doubt else "DISPATCHED")


@pytest.mark.invariant("I10")
def test_what_was_sent_once_is_never_said_to_have_never_started(world: World) -> None:
    run = world.run()
    world.report(world.opened(run), "not_applied")
    second = world.opened(run)
    world.stop(run)
    world.report(second, "not_sent")
    drain_run(run.pk)
    assert (Effect.objects.get().settlement, fresh(run).status) == ("NOT_APPLIED", "CANCELLED")


def test_what_one_attempt_told_is_not_told_of_the_next(world: World) -> None:
    run = world.run()
    world.report(world.opened(run), "not_applied", result={"error": "no"}, provider_ref="ch_1", items=[1])
    world.report(world.opened(run), "unknown")
    effect = Effect.objects.get()
    assert (effect.settlement, effect.ground, effect.late) == ("UNKNOWN", "", False)
    assert (effect.result, effect.provider_ref, effect.items) == (None, "", None)


# --- Several in one step ----------------------------------------------------------------------------------


# what the holder says of the two effects of a step that was registered with the first
TWO = {
    ("applied", "applied"): "SUCCEEDED",
    ("applied", "not_applied"): "PARTIAL",
    ("not_applied", "applied"): "PARTIAL",
    ("applied", "not_sent"): "PARTIAL",
    ("not_applied", "not_sent"): "FAILED",
    ("not_sent", "not_sent"): "PENDING",
    ("applied", "unknown"): "UNKNOWN",
    ("unknown", "not_applied"): "UNKNOWN",
    ("partial", "applied"): "PARTIAL",
}


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(("words", "status"), TWO.items())
def test_a_step_to_which_its_holder_gave_a_second_effect_ends_with_the_last_of_them(
    world: World, words: tuple[str, str], status: str, order: int
) -> None:
    run = world.run()
    first = world.opened(run, "a")
    held = {"step_id": first.step.pk, "claim_token": first.permit.token}
    reports = list(zip((first, world.opened(run, "b", **held)), words, strict=True))[::order]
    world.report(*reports[0])
    assert fresh(first.step).status == "DISPATCHED"
    world.report(*reports[1])
    assert fresh(first.step).status == status


def test_a_permit_without_an_effect_reopens_no_failed_step(world: World) -> None:
    """FAILED is left for a new attempt of the effect that did not happen, and for nothing else."""
    run = world.run()
    opened = world.opened(run)
    world.report(opened, "not_applied")
    answer = gate.dispatch(world.ask(run, step_key="charge:7", op_class="read"))
    assert isinstance(answer, Refusal)
    assert (answer.reason, fresh(opened.step).status) == ("lost_claim", "FAILED")


def test_a_step_is_not_given_back_when_another_permit_of_it_was_used(world: World) -> None:
    run = world.run()
    opened = world.opened(run)
    held: dict[str, Any] = {"step_id": opened.step.pk, "claim_token": opened.permit.token}
    read = gate.dispatch(world.ask(run, op_class="read", **held))
    assert isinstance(read, Opened)
    world.report(read, "applied")
    world.report(opened, "not_sent")
    assert (Effect.objects.get().settlement, fresh(opened.step).status) == ("DECLARED", "FAILED")


def test_a_lost_permit_whose_effect_is_known_leaves_its_step_to_its_holder(world: World) -> None:
    run = world.run()
    step = world.claimed(run)
    lost = a_permit(step, "LOST", effect_key="a")
    an_effect(step, "CONFIRMED", permit=lost, key="a", ground="looked up")
    assert isinstance(gate.dispatch(world.ask_of(step, op_class="read")), Opened)
    world.report(Opened(step.permits.latest("pk"), step), "applied")
    assert world.finish(step).status == "SUCCEEDED"
