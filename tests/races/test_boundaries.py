"""A stop comes between the check and the act of each boundary, or the boundary while a stop commits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import connection, transaction

from effects import intents
from effects.intents import may_retry
from effects.models import Effect
from runs import gate
from runs.admission import Admitted
from runs.guard import Opened, Refusal
from runs.models import Permit, Run, Step, StopRequest
from tests.races.checker import verdict
from tests.races.sides import sides
from tests.worlds import World, a_step, an_effect, fresh, in_flight, in_seconds, intention

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]

STEP, PERMIT = 'INSERT INTO "runs_step"', 'INSERT INTO "runs_permit"'


class Scene:
    """A run, a free step, one that failed, and one whose retry is due."""

    def __init__(self) -> None:
        self.world = World()
        self.run = self.world.run("nightly-42")
        self.free = a_step(self.run, "PENDING", key="free")
        self.failed = a_step(self.run, "FAILED", key="failed")
        an_effect(self.failed, "NOT_APPLIED")
        self.due = a_step(self.run, "RETRY_WAIT", key="due", due_at=in_seconds(-1))

    def stop(self) -> Any:
        return self.world.stop(self.run)

    def cross(self, boundary: Callable[..., Any], op_class: str) -> Any:
        return boundary(self.world.ask(self.run, step_key="new", op_class=op_class))

    def claim(self) -> Any:
        return gate.claim(self.world.ask(self.run, step_id=self.free.pk))

    def register(self) -> Any:
        return gate.claim(self.world.ask(self.run, step_key="new"))

    def model(self) -> Any:
        return self.cross(gate.model, "model_turn")

    def read(self) -> Any:
        return self.cross(gate.dispatch, "read")

    def effect(self) -> Any:
        return intents.dispatch(self.world.ask(self.run, step_key="new"), intention())

    def declare(self) -> Any:
        return intents.declare(self.world.ask(self.run, step_key="new"), intention())

    def act(self) -> Any:
        return self.cross(gate.act, "browser_action")

    def deliver(self) -> Any:
        return self.cross(gate.deliver, "delivery")

    def retry(self) -> Any:
        return gate.retry(self.world.ask(self.run, step_id=self.failed.pk), due_in_s=9, allowed=may_retry())

    def fall_due(self) -> Any:
        return gate.fall_due(self.world.ask(self.run, step_id=self.due.pk))


@dataclass(frozen=True)
class Boundary:
    """How a boundary is crossed, the statement that is its act, and what the stop makes of the step."""

    cross: Callable[[Scene], Any]
    act: str
    name: str
    step: str


BOUNDARIES = [
    Boundary(Scene.claim, 'UPDATE "runs_step"', "claim", "free"),
    Boundary(Scene.register, STEP, "claim", "new"),
    Boundary(Scene.model, STEP, "model", "new"),
    Boundary(Scene.model, PERMIT, "model", "new"),
    Boundary(Scene.read, PERMIT, "dispatch", "new"),
    Boundary(Scene.effect, STEP, "dispatch", "new"),
    Boundary(Scene.effect, 'INSERT INTO "effects_effect"', "dispatch", "new"),
    Boundary(Scene.effect, 'INSERT INTO "runs_evidence"', "dispatch", "new"),
    Boundary(Scene.declare, 'INSERT INTO "effects_effect"', "dispatch", "new"),
    Boundary(Scene.act, PERMIT, "act", "new"),
    Boundary(Scene.deliver, PERMIT, "deliver", "new"),
    Boundary(Scene.retry, 'UPDATE "runs_step"', "retry", "failed"),
    Boundary(Scene.fall_due, 'UPDATE "runs_step"', "retry", "due"),
]
NAMES = [f"{b.cross.__name__}-{b.act.split()[-1]}".replace('"', "") for b in BOUNDARIES]


@pytest.mark.invariant("I1")
@pytest.mark.invariant("I2")
@pytest.mark.parametrize("boundary", BOUNDARIES, ids=NAMES)
def test_a_stop_that_comes_between_check_and_act_waits_and_then_knows_of_it(boundary: Boundary) -> None:
    scene = Scene()
    with sides() as make:
        worker = make("worker", lambda: boundary.cross(scene), hold=boundary.act)
        worker.stands()  # the guard has said yes; nothing is written yet
        stopper = make("stop", scene.stop)
        assert stopper.waits_for(worker)
        answer = worker.result()
        stop = stopper.result().stop
    assert not isinstance(answer, Refusal)
    step = Step.objects.get(run=scene.run, key=boundary.step)
    permits = set(Permit.objects.values_list("pk", flat=True))
    assert in_flight(stop) == permits
    assert len(permits) == int(isinstance(answer, Opened))
    assert step.status == ("DISPATCHED" if isinstance(answer, Opened) else "WITHHELD")
    assert verdict(scene.world.workspace.pk).unlisted == 0
    if isinstance(answer, Opened):  # and the second look keeps it from being sent
        assert gate.look(answer.permit.pk, answer.permit.token).answer == "shut"


@pytest.mark.invariant("I1")
@pytest.mark.parametrize("boundary", BOUNDARIES, ids=NAMES)
def test_a_boundary_that_is_asked_while_a_stop_commits_waits_and_is_refused(boundary: Boundary) -> None:
    scene = Scene()
    with sides() as make:
        stopper = make("stop", scene.stop, hold="COMMIT")
        stopper.stands()  # the version has ended; nobody else can see it yet
        worker = make("worker", lambda: boundary.cross(scene))
        assert worker.waits_for(stopper)
        stopper.result()
        answer = worker.result()
    assert isinstance(answer, Refusal)
    assert (answer.reason, answer.boundary, answer.current_version) == ("stopped", boundary.name, 2)
    assert not Permit.objects.exists()
    assert not Effect.objects.filter(key="charge:7").exists()
    assert not Step.objects.filter(status__in=["CLAIMED", "DISPATCHED", "PENDING", "RETRY_WAIT"]).exists()


# --- admit ------------------------------------------------------------------------------------------------


def later(world: World) -> Any:
    return world.admit("nightly-43")


@pytest.mark.invariant("I19")
@pytest.mark.parametrize("act", ['INSERT INTO "runs_run"', 'INSERT INTO "runs_evidence"', "COMMIT"])
def test_a_stop_by_key_that_comes_between_check_and_admission_waits_and_stops_the_run(act: str) -> None:
    world = World()
    with sides() as make:
        runtime = make("runtime", lambda: later(world), hold=act)
        runtime.stands()
        stopper = make("stop", lambda: world.stop_key("nightly-43"))
        assert stopper.waits_for(runtime)
        admitted, stop = runtime.result(), stopper.result().stop
    assert isinstance(admitted, Admitted)
    assert (fresh(admitted.run).status, fresh(admitted.run).cancel_version) == ("CANCELLING", 2)
    assert fresh(stop).run_id == admitted.run.pk
    assert StopRequest.objects.count() == 1


@pytest.mark.invariant("I19")
def test_a_run_that_is_admitted_while_its_stop_is_recorded_waits_and_is_born_stopping() -> None:
    world = World()
    with sides() as make:
        stopper = make("stop", lambda: world.stop_key("nightly-43"), hold="COMMIT")
        stopper.stands()
        runtime = make("runtime", lambda: later(world))
        assert runtime.waits_for(stopper)
        stop, admitted = stopper.result().stop, runtime.result()
    assert isinstance(admitted, Admitted)
    assert (admitted.run.status, fresh(stop).run_id) == ("CANCELLING", admitted.run.pk)
    assert isinstance(gate.claim(world.ask(admitted.run, step_key="pay")), Refusal)


@pytest.mark.invariant("I19")
def test_a_run_is_admitted_once_when_two_register_it_at_the_same_moment() -> None:
    world = World()
    with sides() as make:
        first = make("first", lambda: later(world), hold="COMMIT")
        first.stands()
        second = make("second", lambda: later(world))
        assert second.waits_for(first)
        answers = [first.result(), second.result()]
    assert [answer.created for answer in answers] == [True, False]
    assert Run.objects.count() == 1


@pytest.mark.only("postgresql")
@pytest.mark.invariant("I19")
def test_without_the_lock_of_its_workspace_a_run_would_be_born_past_its_stop() -> None:
    """The control: what the trigger and a foreign key alone let through."""
    world = World()

    def insert_unlocked() -> None:
        with transaction.atomic():
            Run.objects.create(workspace=world.workspace, key="nightly-43", name="n", parameters_digest="")

    with sides() as make:
        runtime = make("runtime", insert_unlocked, hold="COMMIT")
        runtime.stands()
        stopper = make("stop", lambda: world.stop_key("nightly-43"))
        assert not stopper.waits_for(runtime)
        stop = stopper.result()
        runtime.result()
    run = Run.objects.get(key="nightly-43")
    assert (run.status, stop.answer, fresh(stop.stop).run_id) == ("ACTIVE", "waiting", None)


@pytest.mark.invariant("I7")
def test_a_stop_that_comes_after_the_dispatch_and_before_the_send_shuts_the_second_look() -> None:
    """The last gap: the permit is committed, the stop is acknowledged, the worker looks once more."""
    scene = Scene()
    opened = scene.effect()
    assert isinstance(opened, Opened)
    assert gate.look(opened.permit.pk, opened.permit.token).answer == "open"
    with sides() as make:
        stopper = make("stop", scene.stop, hold="COMMIT")
        stopper.stands()
        assert gate.look(opened.permit.pk, opened.permit.token).answer == "open"  # waits for nobody
        stop = stopper.result().stop
    assert gate.look(opened.permit.pk, opened.permit.token).answer == "shut"
    assert in_flight(stop) == {opened.permit.pk}
    assert connection.in_atomic_block is False
