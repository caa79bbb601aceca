"""A stop comes between the check and the act of a delivery, of a running run and of one that has finished."""

from __future__ import annotations

from typing import Any

import pytest

from effects import deliveries, ends
from effects.deliveries import Message, Queued
from effects.resume import Resumed, resume
from runs import gate
from runs.guard import Opened, Refusal
from runs.models import Permit, Run
from tests.races.sides import sides
from tests.worlds import World, a_delivery, a_run, fresh, in_flight

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race, pytest.mark.invariant("I1")]
ENDS = ["running", "finished"]


class Scene:
    """A run, running or finished, with one queued message."""

    def __init__(self, end: str = "running") -> None:
        self.world = World()
        self.run = self.world.run("nightly-42")
        self.message = a_delivery(self.run)
        if end == "finished":
            assert isinstance(ends.complete(actor=self.world.agent, run_id=self.run.pk, seen=1), Run)

    def stop(self) -> Any:
        return self.world.stop(self.run)

    def hand_over(self) -> Any:
        return deliveries.hand_over(actor=self.world.agent, delivery_id=self.message.pk, worker="w-1", seen=1)

    def queue(self) -> Any:
        return deliveries.queue(self.world.ask(self.run), Message("late", "outside", "the chat"))


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("act", ['INSERT INTO "runs_permit"', 'UPDATE "effects_delivery"', "COMMIT"])
def test_a_stop_between_check_and_act_waits_then_lists_the_message_and_shuts_its_second_look(
    act: str, end: str
) -> None:
    scene = Scene(end)
    with sides() as make:
        worker = make("worker", scene.hand_over, hold=act)
        worker.stands()  # the guard has said yes
        stopper = make("stop", scene.stop)
        assert stopper.waits_for(worker)
        opened, stop = worker.result(), stopper.result().stop
    assert isinstance(opened, Opened)
    assert in_flight(stop) == {opened.permit.pk}
    assert fresh(scene.message).state == "DISPATCHED"
    assert gate.look(opened.permit.pk, opened.permit.token).answer == "shut"


@pytest.mark.parametrize("end", ENDS)
def test_a_message_that_is_asked_for_while_a_stop_commits_waits_and_is_refused(end: str) -> None:
    scene = Scene(end)
    with sides() as make:
        stopper = make("stop", scene.stop, hold="COMMIT")
        stopper.stands()
        worker = make("worker", scene.hand_over)
        assert worker.waits_for(stopper)
        stopper.result()
        answer = worker.result()
    assert isinstance(answer, Refusal)
    assert (answer.reason, answer.boundary) == ("stopped", "deliver")
    assert (fresh(scene.message).state, Permit.objects.count()) == ("WITHHELD", 0)


def test_a_message_that_is_queued_while_a_stop_waits_is_withheld_by_it() -> None:
    scene = Scene()
    with sides() as make:
        worker = make("worker", scene.queue, hold='INSERT INTO "effects_delivery"')
        worker.stands()
        stopper = make("stop", scene.stop)
        assert stopper.waits_for(worker)
        queued = worker.result()
        stopper.result()
    assert isinstance(queued, Queued)
    assert fresh(queued.delivery).state == "WITHHELD"


def test_a_message_is_permitted_once_when_two_ask_at_the_same_moment() -> None:
    scene = Scene()
    with sides() as make:
        first = make("first", scene.hand_over, hold="COMMIT")
        first.stands()
        second = make("second", scene.hand_over)
        assert second.waits_for(first)
        answers = [first.result(), second.result()]
    assert [isinstance(answer, Opened) for answer in answers] == [True, False]
    assert Permit.objects.count() == 1


def test_a_resume_and_a_stop_that_meet_leave_no_message_queued_behind_a_shut_gate() -> None:
    world = World()
    run = world.run("nightly-42")
    message = a_delivery(run)
    world.stop(run, mode="pause")
    Run.hold(Run.objects.filter(pk=run.pk))

    def go_on() -> Any:
        return resume(actor=world.alice, run_id=run.pk, reason="go on")

    with sides() as make:
        going = make("resume", go_on, hold="COMMIT")
        going.stands()
        stopper = make("stop", lambda: world.stop(run))
        assert stopper.waits_for(going)
        done = going.result()
        stopper.result()
    assert isinstance(done, Resumed)
    assert (fresh(message).state, fresh(run).status) == ("WITHHELD", "CANCELLING")
    assert a_run().status == "ACTIVE"  # the control: nothing else was touched
