"""An effect key that is known: it is dispatched, skipped, must wait, or was used for something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from effects import intents
from effects.intents import EffectKeyReused
from effects.models import Effect
from runs.guard import Known, Opened, Refusal
from runs.models import Permit, Run
from runs.models import Refusal as RefusalRow
from tests.worlds import (
    World,
    fresh,
    intention,
    kinds_of,
)

pytestmark = pytest.mark.django_db


KNOWN = {
    "DECLARED": None,
    "NOT_APPLIED": None,
    "DISPATCHED": "must_wait",
    "UNKNOWN": "must_wait",
    "CONFIRMED": "settled",
    "PARTIAL": "settled",
    "ACCEPTED_UNKNOWN": "settled",
    "NOT_STARTED": "settled",
}


def declared(world: World, run: Run) -> Effect:
    effect = intents.declare(world.ask(run, step_key="pay"), intention())
    assert isinstance(effect, Effect)
    return effect


@pytest.mark.invariant("I6")
@pytest.mark.parametrize(("settlement", "answer"), KNOWN.items())
def test_a_known_key_is_dispatched_skipped_or_must_wait(
    world: World, settlement: str, answer: str | None
) -> None:
    run = world.run()
    effect = declared(world, run)
    Effect.objects.filter(pk=effect.pk).advance({"settlement": settlement, "result": {"id": "ch_1"}})
    said = intents.dispatch(world.ask(run, step_key="pay"), intention())
    if answer is None:
        assert isinstance(said, Opened)
        assert (fresh(effect).settlement, fresh(effect).attempt) == ("DISPATCHED", 1)
        assert Permit.objects.get().effect_key == effect.key
    else:
        assert isinstance(said, Known)
        assert (said.answer, said.subject.result) == (answer, {"id": "ch_1"})
        assert fresh(effect).settlement == settlement
        assert not Permit.objects.exists()
    assert not RefusalRow.objects.exists()
    assert Effect.objects.count() == 1


@pytest.mark.parametrize(("settlement", "answer"), KNOWN.items())
def test_after_a_stop_a_known_key_is_still_answered_and_the_others_are_refused(
    world: World, settlement: str, answer: str | None
) -> None:
    run = world.run()
    effect = declared(world, run)
    Effect.objects.filter(pk=effect.pk).advance({"settlement": settlement})
    world.stop(run)
    said = intents.dispatch(world.ask(run, step_key="pay"), intention())
    if answer is None:
        assert isinstance(said, Refusal)
    else:
        assert isinstance(said, Known)
    assert fresh(effect).settlement == settlement
    assert not Permit.objects.exists()


@pytest.mark.parametrize(
    "other",
    [
        {"body": b'{"amount": 101}'},
        {"body": b'{"amount":100}'},
        {"kind": "bank.refund"},
        {"target": "account 2"},
        {"amount": "1.00 EUR"},
        {"plan": b'{"none_because":"another reason"}'},
    ],
)
@pytest.mark.parametrize("through", [intents.dispatch, intents.declare])
def test_a_key_that_is_used_again_for_something_else_is_an_error(
    world: World, other: dict[str, Any], through: Callable[..., Any]
) -> None:
    run = world.run()
    world.opened(run)
    before = kinds_of(run)
    with pytest.raises(EffectKeyReused):
        through(world.ask(run, step_key="charge:7"), intention("charge:7", **other))
    assert (Effect.objects.count(), Permit.objects.count(), kinds_of(run)) == (1, 1, before)


def test_an_effect_that_did_not_happen_is_a_new_attempt_under_the_same_key(world: World) -> None:
    run = world.run()
    first = world.opened(run)
    world.report(first, "not_applied")
    second = world.opened(run)
    assert (first.step.pk, first.permit.pk == second.permit.pk) == (second.step.pk, False)
    effect = Effect.objects.get()
    assert (effect.attempt, effect.settlement, effect.permit_id) == (2, "DISPATCHED", second.permit.pk)
    assert [permit.attempt for permit in Permit.objects.order_by("pk")] == [1, 2]
