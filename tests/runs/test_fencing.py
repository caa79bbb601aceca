"""A claim token is a fence: whoever lost a lease that another got can use the old one nowhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from effects import intents, settle
from effects.drain import drain_run
from effects.models import Effect
from runs import gate
from runs.access import NotFound
from runs.guard import Opened, Refusal
from runs.models import Permit, Run, Step
from tests.worlds import World, fresh, in_seconds, intention, lapse

pytestmark = pytest.mark.django_db


@dataclass
class Scene:
    """`old` was w-1's claim; its lease ran out, and w-2 holds the step and has a permit under it."""

    world: World
    run: Run
    old: Step
    new: Step
    opened: Opened

    def ask(self, **fields: Any) -> Any:
        """What w-1 still shows."""
        held = {"step_id": self.new.pk, "claim_token": self.old.claim_token}
        return self.world.ask(self.run, **{**held, **fields})


@pytest.fixture
def scene(world: World) -> Scene:
    run = world.run()
    old = world.claimed(run)
    lapse(old)
    drain_run(run.pk)
    new = gate.claim(world.ask(run, step_id=old.pk, worker="w-2"))
    assert isinstance(new, Step)
    opened = intents.dispatch(world.ask_of(new, worker="w-2"), intention("charge:2"))
    assert isinstance(opened, Opened)
    return Scene(world, run, old, fresh(new), opened)


# Each verb that takes a claim token, and what it answers to the old one.
VERBS: dict[str, tuple[Callable[[Scene], Any], Any]] = {
    "claim": (lambda s: gate.claim(s.ask()), "lost_claim"),
    "release": (lambda s: gate.release(s.ask()), "lost_claim"),
    "dispatch": (lambda s: gate.dispatch(s.ask(op_class="read")), "lost_claim"),
    "model": (lambda s: gate.model(s.ask(op_class="model_turn")), "lost_claim"),
    "act": (lambda s: gate.act(s.ask(op_class="browser_action")), "lost_claim"),
    "deliver": (lambda s: gate.deliver(s.ask(op_class="delivery")), "lost_claim"),
    "effect": (lambda s: intents.dispatch(s.ask(), intention("charge:1")), "lost_claim"),
    "declare": (lambda s: intents.declare(s.ask(), intention("charge:1")), "lost_claim"),
    "finish": (lambda s: finish(s), settle.LostClaim),
    "report": (lambda s: report(s), settle.LostClaim),
    "look": (lambda s: gate.look(s.opened.permit.pk, s.old.claim_token), NotFound),
}


def finish(scene: Scene) -> Any:
    return settle.finish_step(
        actor=scene.world.agent, step_id=scene.new.pk, token=scene.old.claim_token, result="succeeded"
    )


def report(scene: Scene) -> Any:
    permit, told = scene.opened.permit, settle.Told("applied")
    return settle.report(actor=scene.world.agent, permit_id=permit.pk, token=scene.old.claim_token, told=told)


@pytest.mark.invariant("I6")
@pytest.mark.parametrize("verb", VERBS)
def test_the_old_token_opens_nothing(scene: Scene, verb: str) -> None:
    call, answer = VERBS[verb]
    before = (Permit.objects.count(), Effect.objects.count(), fresh(scene.new).status)
    if isinstance(answer, str):
        refusal = call(scene)
        assert isinstance(refusal, Refusal)
        assert refusal.reason == answer
    else:
        with pytest.raises(answer):
            call(scene)
    assert (Permit.objects.count(), Effect.objects.count(), fresh(scene.new).status) == before
    assert fresh(scene.new).claim_token == scene.new.claim_token


def test_the_old_token_renews_no_lease_and_is_told_so(scene: Scene) -> None:
    Step.objects.filter(pk=scene.new.pk).update(lease_until=in_seconds(1))
    heard = scene.world.heartbeat(scene.run, scene.old.claim_token)
    assert (heard.renewed, heard.lost) == (0, [scene.old.claim_token])
    assert fresh(scene.new).lease_until < in_seconds(2)  # type: ignore[operator]


def test_the_new_token_opens_what_the_old_one_does_not(scene: Scene) -> None:
    """The control."""
    held = {"claim_token": scene.new.claim_token, "worker": "w-2"}
    assert isinstance(intents.dispatch(scene.ask(**held), intention("charge:3")), Opened)
    assert isinstance(intents.declare(scene.ask(**held), intention("charge:4")), Effect)
    assert gate.look(scene.opened.permit.pk, scene.new.claim_token).answer == "open"


def test_a_lost_permit_of_its_own_may_still_be_reported_late(world: World) -> None:
    """The token that sent knows what it sent; that is evidence, and starts nothing."""
    run = world.run()
    opened = world.opened(run)
    lapse(opened.permit, opened.step)
    drain_run(run.pk)
    assert fresh(opened.permit).state == "LOST"
    assert world.report(opened).late
    assert fresh(opened.permit).state == "REPORTED"
