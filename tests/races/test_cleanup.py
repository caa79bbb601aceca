"""An escalation to abandon comes between check and act of the cleanup guard, or the other way round."""

from __future__ import annotations

from typing import Any

import pytest

from runs import gate
from runs.guard import Opened, Refusal
from runs.models import Permit, Step
from tests.races.sides import sides
from tests.worlds import World, fresh, in_flight

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]


class Scene:
    """A cancelled run that drains: one call is in flight, and a cleanup step is held."""

    def __init__(self) -> None:
        self.world = World()
        self.run = self.world.run("nightly-42")
        step = gate.claim(self.world.ask(self.run, step_key="tidy", op_class="read"), cleanup=True)
        assert isinstance(step, Step)
        self.step = step
        self.world.stop(self.run, key="cancel")
        self.run = fresh(self.run)

    def tidy(self) -> Any:
        held = {"step_id": self.step.pk, "claim_token": self.step.claim_token}
        return gate.dispatch(self.world.ask(self.run, op_class="read", **held))

    def abandon(self) -> Any:
        return self.world.stop(self.run, mode="abandon")


@pytest.mark.invariant("I1")
@pytest.mark.invariant("I2")
def test_an_abandon_that_comes_between_check_and_act_waits_and_then_lists_it() -> None:
    scene = Scene()
    with sides() as make:
        worker = make("worker", scene.tidy, hold='INSERT INTO "runs_permit"')
        worker.stands()
        stopper = make("stopper", scene.abandon)
        assert stopper.waits_for(worker)
        opened, stop = worker.result(), stopper.result().stop
    assert isinstance(opened, Opened)
    assert in_flight(stop) == {opened.permit.pk}
    assert gate.look(opened.permit.pk, opened.permit.token).answer == "shut"


@pytest.mark.invariant("I1")
def test_a_cleanup_that_comes_while_an_abandon_commits_is_refused() -> None:
    scene = Scene()
    with sides() as make:
        stopper = make("stopper", scene.abandon, hold="COMMIT")
        stopper.stands()
        worker = make("worker", scene.tidy)
        assert worker.waits_for(stopper)
        stopper.result()
        refusal = worker.result()
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.current_version) == ("stopped", 3)
    assert not Permit.objects.exists()
    assert fresh(scene.step).status == "WITHHELD"
