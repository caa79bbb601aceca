"""Presses that join a stop, come after the end of a run, or come from those who may not."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from effects import ends
from effects.models import Effect
from runs import gate, stops
from runs.access import NotAllowed, NotFound, person
from runs.guard import Opened, Refusal
from runs.models import Permit, Run
from runs.stops import Wish
from tests.worlds import (
    World,
    a_person,
    a_run,
    a_step,
    a_token,
    an_effect,
    fresh,
    kinds_of,
    stops_and_presses,
)

pytestmark = pytest.mark.django_db


# --- Joining ----------------------------------------------------------------------------------------------


@pytest.mark.invariant("I4")
def test_a_second_press_joins_the_stop_and_is_kept(world: World) -> None:
    run = world.run()
    first = world.stop(run)
    second = world.stop(run, by=world.bob, note="me too")
    assert (second.stop.pk, second.answer, second.repeated) == (first.stop.pk, "joined", False)
    assert (fresh(run).status, fresh(run).cancel_version) == ("CANCELLING", 2)
    assert stops_and_presses() == (1, 2)
    assert kinds_of(run)[-1] == "stop.joined"
    assert [press.actor for press in first.stop.presses.order_by("pk")] == [world.alice.id, world.bob.id]


@pytest.mark.invariant("I4")
@pytest.mark.parametrize("status", ["CANCELLING", "CANCELLING_TIMEOUT", "UNKNOWN"])
def test_a_press_on_a_run_that_is_stopping_moves_nothing(world: World, status: str) -> None:
    run = world.run()
    stop = world.stop(run).stop
    Run.objects.filter(pk=run.pk).advance({"status": status})
    answer = world.stop(run, by=world.bob)
    assert (answer.answer, answer.stop.pk) == ("joined", stop.pk)
    assert (fresh(run).status, fresh(run).cancel_version) == (status, 2)


@pytest.mark.invariant("I4")
def test_the_same_key_gets_the_same_answer_and_no_second_press(world: World) -> None:
    run = world.run()
    first = world.stop(run, key="k-1", note="first body")
    lines = kinds_of(run)
    again = world.stop(run, key="k-1", note="another body", deadline_s=5)
    assert (again.stop.pk, again.press.pk, again.answer, again.repeated) == (
        *(first.stop.pk, first.press.pk, "recorded"),
        True,
    )
    assert (stops_and_presses(), kinds_of(run), fresh(run).cancel_version) == ((1, 1), lines, 2)
    assert fresh(first.stop).note == "first body"


@pytest.mark.invariant("I4")
def test_the_same_key_of_somebody_else_is_a_press_of_its_own(world: World) -> None:
    run = world.run()
    world.stop(run, key="k-1")
    other = world.stop(run, by=world.bob, key="k-1")
    assert (other.answer, other.repeated, stops_and_presses()) == ("joined", False, (1, 2))


def test_the_same_key_on_another_run_stops_that_run(world: World) -> None:
    one, two = world.run("one"), world.run("two")
    world.stop(one, key="k-1")
    assert world.stop(two, key="k-1").answer == "recorded"
    assert fresh(two).status == "CANCELLING"


# --- A run that has finished ------------------------------------------------------------------------------


@pytest.mark.invariant("I4")
@pytest.mark.parametrize("status", ["COMPLETED", "FAILED", "ABANDONED", "CANCELLED"])
def test_a_stop_of_a_finished_run_is_recorded_and_raises_nothing(world: World, status: str) -> None:
    run = a_run(status, workspace=world.workspace, cancel_version=4)
    first, second = world.stop(run), world.stop(run, by=world.bob)
    stop = fresh(first.stop)
    assert (first.answer, second.answer, second.stop.pk) == ("finished", "finished", stop.pk)
    assert (stop.finished_before, stop.version_before, stop.version_after) == (True, 4, 4)
    assert (stop.closed_because, stop.closed_at is not None) == ("the run had finished before", True)
    assert (fresh(run).status, fresh(run).cancel_version) == (status, 4)
    assert kinds_of(run) == ["stop.after_end", "stop.after_end"]


def test_a_press_after_a_stop_that_ended_its_run_is_kept_with_that_stop(world: World) -> None:
    run = world.run()
    stop = world.stop(run).stop
    Run.objects.filter(pk=run.pk).advance({"status": "CANCELLED"})
    late = world.stop(run, by=world.bob)
    assert (late.answer, late.stop.pk, stops_and_presses()) == ("finished", stop.pk, (1, 2))


# --- A stop and the end of the run, one after the other ---------------------------------------------------


def test_a_completion_after_a_stop_is_refused_and_recorded_once(world: World) -> None:
    run = world.run()
    stop = world.stop(run).stop
    for _ in range(3):
        refusal = ends.complete(actor=world.agent, run_id=run.pk, seen=1)
        assert isinstance(refusal, Refusal)
        assert (refusal.reason, refusal.stop_id) == ("stopped", stop.pk)
    assert fresh(run).status == "CANCELLING"
    assert kinds_of(run).count("completion.refused") == 1


def test_a_stop_after_the_completion_is_answered_finished(world: World) -> None:
    run = world.run()
    assert isinstance(ends.complete(actor=world.agent, run_id=run.pk, seen=1), Run)
    assert world.stop(run).answer == "finished"
    assert (fresh(run).status, fresh(run).cancel_version) == ("COMPLETED", 1)


def test_a_run_is_not_completed_while_something_is_open(world: World) -> None:
    run = world.run()
    opened = world.opened(run)
    with pytest.raises(ends.NotQuiet):
        ends.complete(actor=world.agent, run_id=run.pk, seen=1)
    world.report(opened, "applied")
    assert isinstance(ends.complete(actor=world.agent, run_id=run.pk, seen=1), Run)


def test_a_failed_run_leaves_what_was_in_progress_unknown(world: World) -> None:
    run = world.run()
    opened, waiting = world.opened(run), an_effect(a_step(run, "PENDING"), "DECLARED")
    assert isinstance(ends.fail(actor=world.agent, run_id=run.pk), Run)
    effect = Effect.objects.get(key="charge:7")
    assert (effect.settlement, fresh(waiting).settlement) == ("UNKNOWN", "NOT_STARTED")
    assert gate.look(opened.permit.pk, opened.permit.token).answer == "shut"


# --- Who may ----------------------------------------------------------------------------------------------


def test_operators_reviewers_owners_and_tokens_with_the_scope_may_stop(world: World) -> None:
    owner = a_person("dora", world.workspace)
    owned = a_run(workspace=world.workspace, owner=owner)
    run = a_run(workspace=world.workspace)
    bound = a_token(world.workspace, "stop:write", run=run)
    answers = [world.stop(owned, by=person(owner))]
    answers += [
        world.stop(run, by=actor) for actor in (world.bob, bound, a_token(world.workspace, "stop:write"))
    ]
    assert [answer.answer for answer in answers] == ["recorded", "recorded", "joined", "joined"]


@pytest.mark.invariant("I28")
def test_a_viewer_is_told_so_and_an_outsider_learns_nothing(world: World) -> None:
    run = world.run()
    reader = a_token(world.workspace, "runs:read", "runs:write")
    bound = a_token(world.workspace, "stop:write", run=a_run(workspace=world.workspace))
    for actor in (world.dana, reader):
        with pytest.raises(NotAllowed):
            world.stop(run, by=actor)
        with pytest.raises(NotAllowed):
            world.stop_key("absent", by=actor)
    for actor in (world.mallory, world.foreign_agent):
        with pytest.raises(NotFound):
            world.stop(run, by=actor)
        with pytest.raises(NotFound):
            world.stop_key("absent", by=actor)
    with pytest.raises(NotFound):
        world.stop(run, by=bound)
    assert (fresh(run).status, stops_and_presses()) == ("ACTIVE", (0, 0))


def test_a_token_of_one_run_stops_no_run_that_is_still_to_come(world: World) -> None:
    bound = a_token(world.workspace, "stop:write", run=a_run(workspace=world.workspace))
    with pytest.raises((NotAllowed, NotFound)):
        world.stop_key("nightly-42", by=bound)
    assert stops_and_presses() == (0, 0)


def test_a_stop_of_a_run_that_does_not_exist_is_not_found(world: World) -> None:
    with pytest.raises(NotFound):
        stops.request_stop(actor=world.alice, wish=Wish(), run_id="run_absent")


# --- Durable ----------------------------------------------------------------------------------------------


@pytest.mark.invariant("I8")
@pytest.mark.django_db(transaction=True)
def test_no_verb_runs_inside_another_transaction() -> None:
    world = World()
    run = world.run()
    calls: list[Any] = [lambda: world.stop(run), lambda: world.opened(run), lambda: world.claimed(run)]
    for call in calls:
        with pytest.raises(RuntimeError, match="durable"), transaction.atomic():
            call()
    assert (fresh(run).status, stops_and_presses(), Permit.objects.count()) == ("ACTIVE", (0, 0), 0)
    assert isinstance(world.opened(run), Opened)
