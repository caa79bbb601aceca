"""When a press reached the server: before every wait, by the database's clock, once; of old rows not kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, transaction

from runs import access, bulk, children, everywhere, fanout, presses, scopes, step_stops, stops
from runs.models import Press, Run, StopRequest, User, Workspace
from runs.scopes import Target
from runs.stops import StopAnswer, Wish
from runs.store import database_time
from tests.worlds import World, a_run, a_step, a_workspace, fresh

pytestmark = pytest.mark.django_db
WAITED_S = 0.05


def press_run(w: World) -> StopAnswer:
    return w.stop(w.run())


def press_key(w: World) -> StopAnswer:
    return w.stop_key("not-here-yet")


def press_step(w: World) -> StopAnswer:
    step = a_step(w.run())
    return step_stops.request_step_stop(actor=w.alice, wish=Wish(), step_id=step.pk)


def press_workspace(w: World) -> StopAnswer:
    target = Target("workspace", w.workspace.pk)
    return scopes.request_scope_stop(actor=w.alice, wish=Wish(), target=target)


def press_list(w: World) -> StopAnswer:
    named: dict[str, Any] = {"workspace_id": w.workspace.pk, "run_ids": [w.run().pk]}
    return bulk.request_bulk_stop(actor=w.alice, wish=Wish(), **named)


WAITS: dict[Callable[[World], StopAnswer], tuple[Any, str]] = {
    press_run: (stops, "_stop_run"),
    press_key: (stops, "wait_for_run"),
    press_step: (step_stops, "_stop_step"),
    press_workspace: (scopes, "_press"),
    press_list: (bulk, "_freeze"),
}


def late(verb: Callable[..., Any]) -> Callable[..., Any]:
    """The verb, after a wait for its locks."""

    def waits(*args: Any, **named: Any) -> Any:
        time.sleep(WAITED_S)
        return verb(*args, **named)

    return waits


def kept(press: Press) -> datetime | None:
    return Press.objects.get(pk=press.pk).arrived_at


def arrived_and_recorded(stop: StopRequest) -> tuple[datetime, datetime]:
    assert stop.arrived_at is not None
    return stop.arrived_at, stop.recorded_at


@pytest.mark.parametrize("press", WAITS, ids=lambda press: press.__name__)
def test_a_press_arrives_before_it_waits(
    world: World, monkeypatch: pytest.MonkeyPatch, press: Callable[[World], StopAnswer]
) -> None:
    module, name = WAITS[press]
    monkeypatch.setattr(module, name, late(getattr(module, name)))
    before = database_time()
    answer = press(world)
    arrived, recorded = arrived_and_recorded(fresh(answer.stop))
    assert before <= arrived <= recorded - timedelta(seconds=WAITED_S)
    assert kept(answer.press) == arrived


def test_what_is_carried_on_arrived_with_the_press_that_it_came_from(world: World) -> None:
    parent = world.run("parent")
    child = world.run("child", parent=parent.pk)
    stop = press_list_of(world, parent)
    fanout.carry_on(stop.pk)
    of_parent = StopRequest.objects.get(run=parent)
    children.pass_on(of_parent.pk)
    arrived = {one.arrived_at for one in StopRequest.objects.filter(run__in=[parent, child])}
    assert arrived == {stop.arrived_at} != {None}
    assert set(Press.objects.values_list("arrived_at", flat=True)) == arrived


def press_list_of(world: World, run: Run) -> StopRequest:
    named: dict[str, Any] = {"workspace_id": world.workspace.pk, "run_ids": [run.pk]}
    return fresh(bulk.request_bulk_stop(actor=world.alice, wish=Wish(), **named).stop)


def test_a_stop_of_all_workspaces_arrives_once_for_each_of_them(world: World) -> None:
    root = access.person(User.objects.create_superuser("root-arrives@example.org", "a long password"))
    a_run(workspace=world.elsewhere)
    wide = everywhere.request_wide_stop(actor=root, wish=Wish(mode="pause"))
    stops_of = StopRequest.objects.filter(wide=wide)
    assert set(stops_of.values_list("arrived_at", flat=True)) == {wide.arrived_at} != {None}
    later = everywhere.make_workspace(slug="born-shut", name="Later")
    assert StopRequest.objects.get(workspace=later).arrived_at is None, "nobody pressed on it"


def test_no_request_arrived_for_what_was_born_under_a_stop(world: World) -> None:
    parent = world.run("parent")
    world.stop(parent)
    born = world.run("born", parent=parent.pk)
    assert StopRequest.objects.get(run=born).arrived_at is None


def test_a_second_press_keeps_its_own_arrival_and_the_stop_keeps_the_first(world: World) -> None:
    run = world.run()
    first, second = world.stop(run), world.stop(run, by=world.bob)
    times = [kept(one.press) for one in (first, second)]
    assert times[0] is not None and times[1] is not None and times[0] <= times[1]  # noqa: PT018
    assert fresh(first.stop).arrived_at == times[0]


def test_a_clock_that_can_not_be_read_keeps_no_stop_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = world.run()

    def lost() -> datetime:
        raise OperationalError("the wire is gone")

    monkeypatch.setattr("runs.presses.database_time", lost)
    wish = presses.arrived(Wish())
    monkeypatch.undo()
    assert wish == Wish()
    assert world.stop(run).answer == "recorded"


def test_a_client_can_not_tell_when_its_press_arrived(world: World) -> None:
    from runs.wishes import read_wish

    wish = read_wish(b'{"arrived_at": "2020-01-01T00:00:00Z"}', {"Content-Type": "application/json"})
    assert wish.arrived_at is None
    assert "arrived_at" in " ".join(wish.ignored)


@pytest.mark.parametrize("kept", [True, False])
def test_the_schema_lets_no_arrival_be_told_later(world: World, kept: bool) -> None:
    stop = world.stop(world.run()).stop if kept else old_stop(a_workspace())
    rows = StopRequest.objects.filter(pk=stop.pk)
    with pytest.raises(IntegrityError), transaction.atomic():
        rows.update(arrived_at=database_time())
    rows.update(arrived_at=stop.arrived_at)


def old_stop(workspace: Workspace) -> StopRequest:
    """As it stands in a row from before arrivals were kept."""
    run = a_run("CANCELLED", workspace)
    told: dict[str, Any] = {"run_key": run.key, "mode": "cancel", "actor": "system", "via": "api"}
    return StopRequest.objects.create(workspace=workspace, number=1, run=run, **told)
