"""A stop that comes before its run: it waits, binds at the admission, or ends by its own date."""

from __future__ import annotations

from datetime import timedelta

import pytest

from runs import gate, stops
from runs.guard import Refusal
from runs.models import Evidence, Permit, Step, StopRequest
from tests.worlds import (
    World,
    a_run,
    fresh,
    in_seconds,
    kinds_of,
    stops_and_presses,
)

pytestmark = pytest.mark.django_db


def test_a_stop_waits_for_a_run_that_is_not_registered_yet(world: World) -> None:
    answer = world.stop_key("nightly-42")
    stop = fresh(answer.stop)
    assert (answer.answer, stop.run_id, stop.run_key, stop.gate_at) == ("waiting", None, "nightly-42", None)
    assert stop.ends_at is not None
    assert timedelta(days=7) - (stop.ends_at - stop.recorded_at) < timedelta(seconds=1)
    again = world.stop_key("nightly-42", by=world.bob)
    assert (again.stop.pk, again.answer, stops_and_presses()) == (stop.pk, "waiting", (1, 2))
    assert Evidence.objects.filter(stream=world.workspace.pk, kind__startswith="stop.").count() == 2


@pytest.mark.invariant("I4")
def test_a_waiting_stop_answers_its_own_key_again_before_and_after_it_met_its_run(world: World) -> None:
    first = world.stop_key("nightly-42", key="k-1")
    again = world.stop_key("nightly-42", key="k-1")
    world.run("nightly-42")
    after = world.stop_key("nightly-42", key="k-1")
    assert [answer.press.pk for answer in (again, after)] == [first.press.pk] * 2
    assert [answer.repeated for answer in (again, after)] == [True, True]
    assert stops_and_presses() == (1, 1)


@pytest.mark.invariant("I17")
def test_a_run_whose_stop_was_waiting_is_born_stopping_and_starts_nothing(world: World) -> None:
    stop = world.stop_key("nightly-42", deadline_s=30).stop
    run = world.run("nightly-42")
    stop = fresh(stop)
    assert (run.status, stop.run_id, stop.version_after) == ("CANCELLING", run.pk, 1)
    assert stop.gate_at is not None
    assert stop.deadline_at == stop.gate_at + timedelta(seconds=30)
    assert kinds_of(run) == ["run.admitted", "stop.bound"]
    asked = [gate.claim(world.ask(run, step_key="pay")), world.refused(run)]
    assert [answer.reason for answer in asked if isinstance(answer, Refusal)] == ["stopped", "stopped"]
    assert (Step.objects.count(), Permit.objects.count()) == (0, 0)


def test_a_waiting_stop_binds_one_run_and_only_of_its_key_and_workspace(world: World) -> None:
    world.stop_key("nightly-42")
    assert world.run("nightly-43").status == "ACTIVE"
    assert a_run(workspace=world.elsewhere, key="nightly-42").status == "ACTIVE"
    assert world.run("nightly-42").status == "CANCELLING"
    assert StopRequest.objects.filter(run__isnull=True).count() == 0


def test_a_stop_by_key_of_a_registered_run_stops_it_at_once(world: World) -> None:
    run = world.run("nightly-42")
    answer = world.stop_key("nightly-42")
    assert (answer.answer, answer.stop.run_id, fresh(run).status) == ("recorded", run.pk, "CANCELLING")


def past_its_end(stop: StopRequest) -> None:
    StopRequest.objects.filter(pk=stop.pk).update(ends_at=stop.recorded_at)


def test_a_waiting_stop_ends_by_its_own_date_also_when_nobody_swept(world: World) -> None:
    stop = world.stop_key("nightly-42").stop
    past_its_end(stop)
    assert world.run("nightly-42").status == "ACTIVE"
    assert fresh(stop).run_id is None


def test_a_press_after_that_date_is_a_new_waiting_stop(world: World) -> None:
    old = world.stop_key("nightly-42", key="k-1").stop
    past_its_end(old)
    new = world.stop_key("nightly-42", key="k-2").stop
    assert new.pk != old.pk
    assert (fresh(old).closed_because, fresh(new).closed_at) == ("its run never came", None)
    assert world.run("nightly-42").status == "CANCELLING"


def test_the_sweeper_closes_waiting_stops_past_their_date_and_no_other(world: World) -> None:
    old, young = world.stop_key("a").stop, world.stop_key("b").stop
    past_its_end(old)
    assert stops.waiting_over() == [old.pk]
    for _ in range(2):
        stops.end_waiting(old.pk)
        stops.end_waiting(young.pk)
    assert (fresh(old).closed_at is not None, fresh(young).closed_at) == (True, None)
    closed = Evidence.objects.get(stream=world.workspace.pk, kind="stop.closed")
    assert (closed.stop_id, closed.actor) == (old.pk, "system")


def test_the_same_key_after_its_run_never_came_waits_anew(world: World) -> None:
    first = world.stop_key("nightly", key="k-1").stop
    StopRequest.objects.filter(pk=first.pk).update(ends_at=in_seconds(-1))
    again = [world.stop_key("nightly", key="k-1") for _ in range(2)]
    assert [said.repeated for said in again] == [False, True]
    assert (fresh(first).closed_because, again[0].answer) == ("its run never came", "waiting")
    assert world.run("nightly").status == "CANCELLING"


def test_a_stronger_stop_replaces_one_that_waits_and_a_milder_one_joins(world: World) -> None:
    first = world.stop_key("nightly", mode="pause")
    stronger = world.stop_key("nightly", by=world.bob, mode="cancel")
    milder = world.stop_key("nightly", by=world.carol, mode="pause")
    assert [said.answer for said in (first, stronger, milder)] == ["waiting"] * 3
    assert (stronger.weaker, milder.stop) == (first.stop, stronger.stop)
    assert fresh(first.stop).closed_because == "superseded"
    run = world.run("nightly")
    assert (run.status, run.cancel_version) == ("CANCELLING", 1)
    assert [stop.run_id for stop in (fresh(first.stop), fresh(stronger.stop))] == [run.pk, run.pk]
    assert world.stop(run, key=first.press.key, mode="pause").repeated


def test_a_run_that_is_born_abandoned_has_ended_and_its_stop_is_closed(world: World) -> None:
    stop = world.stop_key("nightly", mode="abandon").stop
    run = world.run("nightly")
    assert (run.status, run.ended_at is not None) == ("ABANDONED", True)
    assert fresh(stop).closed_because == "fenced"
    assert kinds_of(run) == ["run.admitted", "stop.bound", "run.abandoned", "stop.closed"]
