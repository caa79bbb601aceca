"""A child is admitted while a stop of its parent commits, in both orders; and who stops it after a death."""

from __future__ import annotations

from typing import Any

import pytest

from effects import tasks
from runs import children
from runs.admission import Admitted
from runs.models import Press, Run, StopRequest
from runs.tasks import each
from tests.races.sides import sides, together
from tests.worlds import World, fresh

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]


class Scene:
    def __init__(self) -> None:
        self.world = World()
        self.parent = self.world.run("parent")

    def admit(self) -> Any:
        return self.world.admit("child", parent=self.parent.pk)

    def stop(self) -> Any:
        return self.world.stop(self.parent)


def born(answer: Any) -> Run:
    assert isinstance(answer, Admitted)
    return fresh(answer.run)


@pytest.mark.invariant("I19")
def test_a_child_that_is_admitted_first_is_reached_by_the_stop_that_waited_for_it() -> None:
    scene = Scene()
    with sides() as make:
        admission = make("admission", scene.admit, hold="COMMIT")
        admission.stands()
        stopper = make("stopper", scene.stop)
        assert stopper.waits_for(admission)
        child, stop = admission.result().run, stopper.result().stop
    assert child.status == "ACTIVE", "it was, when it was admitted"
    assert fresh(child).status == "CANCELLING"
    assert StopRequest.objects.get(run=child).parent_stop == stop
    assert fresh(stop).passed_on_at is not None


@pytest.mark.invariant("I19")
def test_a_child_that_comes_while_the_stop_commits_waits_and_is_born_stopping() -> None:
    scene = Scene()
    with sides() as make:
        stopper = make("stopper", scene.stop, hold="COMMIT")
        stopper.stands()
        admission = make("admission", scene.admit)
        assert admission.waits_for(stopper)
        stop, child = stopper.result().stop, born(admission.result())
    assert (child.status, child.cancel_version) == ("CANCELLING", 1)
    assert StopRequest.objects.get(run=child).parent_stop == stop


@pytest.mark.invariant("I19")
def test_under_a_finished_parent_the_run_above_is_what_both_wait_for() -> None:
    """Nobody stops a finished run, so its lock alone would keep a new child from nothing."""
    scene = Scene()
    done = scene.world.run("done", parent=scene.parent.pk)
    Run.complete(Run.objects.filter(pk=done.pk), 1)
    with sides() as make:
        stopper = make("stopper", scene.stop, hold="COMMIT")
        stopper.stands()
        admission = make("admission", lambda: scene.world.admit("late", parent=done.pk))
        assert admission.waits_for(stopper)
        stopper.result()
        assert born(admission.result()).status == "CANCELLING"


@pytest.mark.invariant("I19")
def test_whoever_comes_first_no_child_of_a_stopped_run_is_left_running() -> None:
    scene = Scene()
    calls = [lambda n=n: scene.world.admit(f"child-{n}", parent=scene.parent.pk) for n in range(6)]
    answers = together([*calls[:3], scene.stop, *calls[3:]])
    assert all(isinstance(answer, Admitted) for answer in answers[:3] + answers[4:])
    each(children.pass_on, StopRequest.objects.filter(passed_on_at=None).values_list("pk", flat=True))
    assert set(Run.objects.values_list("status", flat=True)) == {"CANCELLING"}
    assert Press.objects.exclude(parent_stop=None).count() == 6


@pytest.mark.invariant("I3")
@pytest.mark.invariant("I30")
def test_an_acknowledged_stop_loses_no_child_when_the_process_dies_before_it_is_passed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    runs = [scene.world.run(f"child-{n}", parent=scene.parent.pk) for n in range(3)]
    with monkeypatch.context() as dying:
        dying.setattr(children, "pass_on", lambda *a, **k: (_ for _ in ()).throw(ConnectionError("killed")))
        stop = scene.stop().stop
    assert fresh(scene.parent).status == "CANCELLING", "it was acknowledged"
    assert [fresh(run).status for run in runs] == ["ACTIVE"] * 3
    monkeypatch.setattr(children, "IN_REQUEST_S", 0.0)
    assert children.to_pass_on() == [stop.pk]
    tasks.sweep()
    assert "ACTIVE" not in {fresh(run).status for run in runs}
    assert children.to_pass_on() == []


def test_the_request_that_stops_a_run_has_stopped_its_children_when_it_answers() -> None:
    """The control: without a death in between, nobody waits for a sweep."""
    scene = Scene()
    child = born(scene.admit())
    grandchild = scene.world.run("grandchild", parent=child.pk)
    scene.stop()
    assert {fresh(run).status for run in (child, grandchild)} == {"CANCELLING"}
    assert children.to_pass_on() == []
