"""A request to cancel meets another executor, a drain, and a stronger stop: asked once, or not at all."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from effects import drain, forwards
from effects.models import Effect
from runs import gate
from runs.guard import Known, Opened, Refusal
from runs.models import Permit, Run
from tests.effects.job_site import JobSite
from tests.effects.test_forwarding import a_job, allow, errand_of, the_request
from tests.races.sides import sides, together
from tests.worlds import World, a_permit, fresh, in_flight, lapse

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]


class Scene:
    """A run that was cancelled, with one request to its provider that nobody has sent yet."""

    def __init__(self, *, stop: bool = True) -> None:
        self.world = World()
        JobSite("https://render.example").kind(self.world.workspace)
        allow(self.world)
        self.run: Run = self.world.run()
        self.job: Effect = a_job(self.world, self.run)
        if stop:
            self.cancel()

    def cancel(self, mode: str = "cancel") -> Any:
        return self.world.stop(self.run, mode=mode)

    @property
    def asking(self) -> Effect:
        return the_request(self.job)

    def ask(self) -> Any:
        asking = self.asking
        return gate.forward(errand_of(asking), forwards.CancelErrand(asking))

    def drain(self) -> str:
        return drain.drain_run(self.run.pk)


def permits() -> int:
    return Permit.objects.filter(guard="forward").count()


def test_two_executors_of_one_request_come_to_one_permit() -> None:
    scene = Scene()
    with sides() as make:
        first = make("first", scene.ask, hold="COMMIT")
        first.stands()
        second = make("second", scene.ask)
        assert second.waits_for(first)
        assert isinstance(first.result(), Opened)
        assert isinstance(second.result(), Known)
    assert permits() == 1


def test_stops_that_come_at_once_ask_once() -> None:
    scene = Scene(stop=False)
    answers = together([scene.cancel] * 4)
    assert len({answer.stop.pk for answer in answers}) == 1
    assert scene.asking.key == f"ask-cancel:{answers[0].stop.pk}:render:1"


def test_a_drain_waits_for_a_request_that_has_its_permit_and_leaves_it_its_step() -> None:
    scene = Scene()
    lapse(scene.asking.step)
    asking = scene.asking
    with sides() as make:
        drainer = make("drain", scene.drain, hold="COMMIT")
        drainer.stands()
        asker = make("executor", scene.ask)
        assert asker.waits_for(drainer)
        assert drainer.result() == "CANCELLED"
        late = asker.result()
    assert isinstance(late, Known)
    assert (permits(), fresh(asking).settlement) == (0, "NOT_STARTED")

    other = Scene()
    with sides() as make:
        asker = make("executor", other.ask, hold="COMMIT")
        asker.stands()
        drainer = make("drain", other.drain)
        assert drainer.waits_for(asker)
        assert isinstance(asker.result(), Opened)
        assert drainer.result() == "CANCELLING"
    assert (permits(), fresh(other.asking).settlement) == (1, "DISPATCHED")


def test_an_abandon_refuses_a_request_or_lists_it_and_shuts_its_second_look() -> None:
    scene = Scene()
    with sides() as make:
        stopper = make("abandon", lambda: scene.cancel("abandon"), hold="COMMIT")
        stopper.stands()
        asker = make("executor", scene.ask)
        assert asker.waits_for(stopper)
        stopper.result()
        assert isinstance(asker.result(), Known | Refusal)
    assert permits() == 0

    other = Scene()
    with sides() as make:
        asker = make("executor", other.ask, hold="COMMIT")
        asker.stands()
        stopper = make("abandon", lambda: other.cancel("abandon"))
        assert stopper.waits_for(asker)
        opened, answer = asker.result(), stopper.result()
    assert in_flight(answer.stop) == {opened.permit.pk}
    assert gate.look(opened.permit.pk, opened.permit.token).answer == "shut"
    assert fresh(other.asking).settlement == "UNKNOWN"  # its holder may have sent it before the second look


@pytest.mark.only("postgresql")
def test_executors_that_look_before_they_lock_both_get_a_permit() -> None:
    """The control: each sees a request that nobody has sent."""
    scene = Scene()
    asking = scene.asking

    def unsafe() -> bool:
        with transaction.atomic():
            free = Effect.objects.filter(pk=asking.pk, settlement="DECLARED").exists()
            if free:
                a_permit(asking.step, guard="forward", effect_key=asking.key)
        return free

    with sides() as make:
        first = make("first", unsafe, hold="COMMIT")
        first.stands()
        second = make("second", unsafe)
        assert not second.waits_for(first)
        assert (first.result(), second.result()) == (True, True)
    assert permits() == 2
