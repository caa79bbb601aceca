"""A workspace's gate shuts while runs are admitted and work is dispatched; each order is told the truth."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction

from effects import intents
from runs import gate, gates
from runs.admission import Admitted
from runs.guard import Opened, Refusal
from runs.models import Permit, Run, StopRequest, Workspace
from runs.presses import StopAnswer, Wish
from tests.races.sides import sides, together
from tests.worlds import World, a_run, fresh, intention

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]
PERMIT = 'INSERT INTO "runs_permit"'


def shut(world: World, key: str = "") -> StopAnswer:
    return gates.shut(actor=world.alice, workspace_id=world.workspace.pk, wish=Wish(key=key))


def dispatch(world: World, run: Run, key: str = "charge:7") -> Any:
    return intents.dispatch(world.ask(run, step_key=key), intention(key))


def due_to(refusal: Refusal) -> str:
    """The stop of the workspace that it comes from: by itself, or by the one of the run."""
    stop = StopRequest.objects.get(pk=refusal.stop_id)
    return stop.scope_stop_id or stop.pk


def look(opened: Opened) -> str:
    return gate.look(opened.permit.pk, opened.permit.token).answer


# --- Admission and shut -----------------------------------------------------------------------------------


@pytest.mark.invariant("I19")
def test_an_admission_that_has_begun_is_waited_for_and_its_run_starts_nothing() -> None:
    world = World()
    with sides() as make:
        admission = make("admission", lambda: world.admit("nightly"), hold="COMMIT")
        admission.stands()
        shutter = make("shut", lambda: shut(world))
        assert shutter.waits_for(admission)
        admitted, answer = admission.result(), shutter.result()
    assert isinstance(admitted, Admitted)
    assert (admitted.run.admitted_epoch, fresh(admitted.run).status) == (1, "PAUSING")
    refusal = dispatch(world, admitted.run)
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, due_to(refusal)) == ("stopped", answer.stop.pk)


@pytest.mark.invariant("I19")
def test_a_shut_that_has_begun_is_waited_for_and_the_admission_is_refused_with_its_stop() -> None:
    world = World()
    with sides() as make:
        shutter = make("shut", lambda: shut(world), hold="COMMIT")
        shutter.stands()
        admission = make("admission", lambda: world.admit("nightly"))
        assert admission.waits_for(shutter)
        answer, refusal = shutter.result(), admission.result()
    assert isinstance(refusal, Refusal)
    assert (refusal.boundary, refusal.stop_id, Run.objects.count()) == ("admit", answer.stop.pk, 0)


@pytest.mark.only("postgresql")
def test_an_admission_without_the_lock_of_its_workspace_comes_after_the_shut() -> None:
    """The control: the key of the row that it points at is not enough to make the shut wait."""
    world = World()

    def unsafe() -> Run:
        with transaction.atomic():
            assert Workspace.objects.get(pk=world.workspace.pk).gate == "OPEN"
            return a_run(workspace=world.workspace)

    with sides() as make:
        admission = make("admission", unsafe, hold="COMMIT")
        admission.stands()
        shutter = make("shut", lambda: shut(world))
        assert not shutter.waits_for(admission)
        assert shutter.result().answer == "recorded"
        assert Run.objects.count() == 0, "acknowledged, and the run comes later"
        admission.result()
    assert Run.objects.get().status == "ACTIVE"


# --- Dispatch and shut ------------------------------------------------------------------------------------


@pytest.mark.invariant("I1")
def test_a_dispatch_whose_check_is_done_gets_its_permit_and_its_second_look_says_shut() -> None:
    """No dispatch waits for the gate of its workspace, nor a shut for a dispatch: the second look decides."""
    world = World()
    run = world.run()
    with sides() as make:
        worker = make("worker", lambda: dispatch(world, run), hold=PERMIT)
        worker.stands()  # the guard has said yes; no permit is written yet
        shutter = make("shut", lambda: shut(world))
        assert shutter.waits_for(worker) is (connection.vendor == "sqlite")
        opened = worker.result()
        shutter.result()
    assert isinstance(opened, Opened)
    assert (look(opened), Permit.objects.count()) == ("shut", 1)
    assert isinstance(dispatch(world, run, "charge:8"), Refusal)


@pytest.mark.invariant("I1")
def test_a_dispatch_that_comes_before_the_shut_commits_may_pass_and_still_sends_nothing() -> None:
    world = World()
    run = world.run()
    with sides() as make:
        shutter = make("shut", lambda: shut(world), hold="COMMIT")
        shutter.stands()
        worker = make("worker", lambda: dispatch(world, run))
        waited = worker.waits_for(shutter)
        answer = shutter.result() if waited else None
        given = worker.result()
        answer = answer or shutter.result()
    assert waited is (connection.vendor == "sqlite")
    if waited:
        assert isinstance(given, Refusal)
        assert due_to(given) == answer.stop.pk
    else:
        assert isinstance(given, Opened)
        assert look(given) == "shut"


@pytest.mark.invariant("I4")
def test_at_the_same_moment_every_worker_is_refused_or_told_at_its_second_look() -> None:
    """Eight runs dispatch, four are admitted, and six people shut: one stop, one epoch, nothing to send."""
    world = World()
    runs = [world.run(f"run-{n}") for n in range(8)]
    calls = [partial(dispatch, world, run) for run in runs]
    calls += [partial(world.admit, f"new-{n}") for n in range(4)]
    calls += [partial(shut, world, f"k-{n % 3}") for n in range(6)]
    answers = together(calls)
    seen = Counter(type(answer).__name__ for answer in answers)
    assert seen["StopAnswer"] == 6
    assert seen["Opened"] + seen["Refusal"] + seen["Admitted"] == 12
    stop = StopRequest.objects.get(scope="workspace")
    assert (fresh_epoch(world), stop.presses.count()) == (2, 3)
    assert {look(one) for one in answers if isinstance(one, Opened)} <= {"shut"}
    assert {due_to(one) for one in answers if isinstance(one, Refusal)} <= {stop.pk}
    assert set(Run.objects.values_list("admitted_epoch", flat=True)) == {1}
    assert all(isinstance(dispatch(world, run, "later"), Refusal) for run in Run.objects.all())


def fresh_epoch(world: World) -> int:
    return Workspace.objects.get(pk=world.workspace.pk).epoch
