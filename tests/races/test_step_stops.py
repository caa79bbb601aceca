"""A stop of one step meets its worker: nothing of the step starts that the stop does not list."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from effects import intents
from runs import gate, step_stops
from runs.guard import Opened, Refusal
from runs.models import Permit, Receipt, Step, StopRequest
from runs.presses import StopAnswer, Wish
from tests.races.sides import sides
from tests.worlds import World, fresh, in_flight, intention

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]


class Scene:
    """A run with one step that a worker holds."""

    def __init__(self) -> None:
        self.world = World()
        self.run = self.world.run()
        self.step = self.world.claimed(self.run)
        Receipt.objects.create(run=self.run, worker="w-1", boundary="dispatch", version=1)

    def dispatch(self) -> Any:
        return intents.dispatch(self.world.ask_of(self.step), intention())

    def stop(self) -> StopAnswer:
        return step_stops.request_step_stop(actor=self.world.alice, wish=Wish(), step_id=self.step.pk)

    def look(self, opened: Opened) -> str:
        return gate.look(opened.permit.pk, opened.permit.token).answer


def test_a_stop_waits_for_a_dispatch_of_its_step_that_has_checked_and_lists_it() -> None:
    scene = Scene()
    with sides() as make:
        worker = make("worker", scene.dispatch, hold="COMMIT")
        worker.stands()
        stopper = make("stop", scene.stop)
        assert stopper.waits_for(worker)
        opened, answer = worker.result(), stopper.result()
    assert isinstance(opened, Opened)
    assert in_flight(answer.stop) == {opened.permit.pk}
    assert scene.look(opened) == "shut"
    assert (fresh(scene.step).status, fresh(scene.run).status) == ("DISPATCHED", "ACTIVE")


def test_a_dispatch_waits_for_a_stop_of_its_step_and_is_refused_by_it() -> None:
    scene = Scene()
    with sides() as make:
        stopper = make("stop", scene.stop, hold="COMMIT")
        stopper.stands()
        worker = make("worker", scene.dispatch)
        assert worker.waits_for(stopper)
        answer, refusal = stopper.result(), worker.result()
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.stop_id, refusal.run_goes_on) == ("stopped", answer.stop.pk, True)
    assert (Permit.objects.count(), fresh(scene.step).status) == (0, "WITHHELD")


def test_a_second_look_before_the_commit_says_open_of_what_the_stop_lists_and_shut_after_it() -> None:
    scene = Scene()
    opened = scene.dispatch()
    with sides() as make:
        stopper = make("stop", scene.stop, hold="COMMIT")
        stopper.stands()
        before = scene.look(opened)
        answer = stopper.result()
    assert (before, scene.look(opened)) == ("open", "shut")
    assert in_flight(answer.stop) == {opened.permit.pk}


def test_two_presses_at_once_come_to_one_stop() -> None:
    scene = Scene()
    with sides() as make:
        first = make("first", scene.stop, hold="COMMIT")
        first.stands()
        second = make("second", scene.stop)
        assert second.waits_for(first)
        assert first.result().stop.pk == second.result().stop.pk
    assert StopRequest.objects.count() == 1


@pytest.mark.only("postgresql")
def test_a_stop_that_lists_before_it_has_the_lock_misses_what_had_checked() -> None:
    """The control: it waits for the worker, and its list is from before."""
    scene = Scene()

    def unsafe() -> int:
        with transaction.atomic():
            listed = Permit.objects.filter(step=scene.step, state="OPEN").count()
            Step.objects.filter(pk=scene.step.pk).update(stopped_at=timezone.now())
        return listed

    with sides() as make:
        worker = make("worker", scene.dispatch, hold="COMMIT")
        worker.stands()
        stopper = make("stop", unsafe)
        assert stopper.waits_for(worker)
        opened, listed = worker.result(), stopper.result()
    assert isinstance(opened, Opened)
    assert (listed, Permit.objects.filter(step=scene.step, state="OPEN").count()) == (0, 1)
