"""Many runs at once: one record with a frozen list, and a result for each."""

from __future__ import annotations

import pytest

from effects import resume as resuming
from effects.drain import drain_run
from runs import bulk, fanout
from runs.access import NotAllowed, NotFound
from runs.models import Evidence, Run, StopPart, StopRequest
from runs.stops import StopAnswer, Wish
from tests.worlds import World, a_delivery, a_run, a_token, fresh, kinds_of

pytestmark = pytest.mark.django_db


def stop_all(world: World, *runs: Run, **wish: object) -> StopAnswer:
    return bulk.request_bulk_stop(
        actor=world.alice,
        workspace_id=world.workspace.pk,
        wish=Wish(**wish),  # type: ignore[arg-type]
        run_ids=[run.pk for run in runs],
        selection={"status": ["ACTIVE"]},
    )


def results(stop: StopRequest) -> dict[str, str]:
    return dict(StopPart.objects.filter(stop=stop).values_list("run__key", "result"))


def test_each_run_of_the_list_has_its_own_result(world: World) -> None:
    fresh_one, paused, ended = world.run("a"), world.run("b"), a_run("COMPLETED", world.workspace, key="c")
    outside, queued = world.run("d"), a_delivery(ended)
    world.stop(paused, mode="cancel")
    stop = stop_all(world, fresh_one, paused, ended).stop
    assert results(stop) == {"a": "recorded", "b": "joined", "c": "finished"}
    assert (fresh(fresh_one).status, fresh(outside).status) == ("CANCELLING", "ACTIVE")
    assert stop.fenced_at is not None
    assert stop.runs_n == 3
    assert stop.gate_at is None, "a list shuts no gate"
    assert fresh(queued).state == "WITHHELD", "a finished run has nothing to stop but what it queued"
    own = StopRequest.objects.get(run=fresh_one)
    assert (own.scope_stop_id, own.actor, own.mode) == (stop.pk, world.alice.id, "cancel")
    assert StopRequest.objects.get(run=paused).scope_stop_id is None


def test_the_list_is_frozen_with_the_press(world: World) -> None:
    world.run("a")
    stop = stop_all(world, *Run.objects.all()).stop
    later = world.run("b")
    fanout.carry_on(stop.pk)
    assert results(stop) == {"a": "recorded"}
    assert fresh(later).status == "ACTIVE"
    assert stop.selection == {"status": ["ACTIVE"]}


def test_what_nobody_may_stop_is_on_the_list_as_not_permitted(world: World) -> None:
    mine, theirs = world.run("mine"), world.run("theirs")
    assert world.dana.user is not None
    Run.objects.filter(pk=mine.pk).update(owner=world.dana.user)
    answer = bulk.request_bulk_stop(
        actor=world.dana, workspace_id=world.workspace.pk, wish=Wish(), run_ids=[mine.pk, theirs.pk]
    )
    assert results(answer.stop) == {"mine": "recorded", "theirs": "not_permitted"}
    assert fresh(theirs).status == "ACTIVE"
    assert fanout.progress(answer.stop).done == 2


def test_whoever_may_stop_none_of_them_stops_none(world: World) -> None:
    run, before = world.run(), StopRequest.objects.count()
    named = {"workspace_id": world.workspace.pk, "wish": Wish(), "run_ids": [run.pk]}
    bound = a_token(world.workspace, "stop:write", run=run)
    for actor, error in ((world.dana, NotAllowed), (world.mallory, NotFound), (bound, NotAllowed)):
        with pytest.raises(error):
            bulk.request_bulk_stop(actor=actor, **named)  # type: ignore[arg-type]
    assert StopRequest.objects.count() == before


def test_a_run_of_another_workspace_is_no_run_of_the_list(world: World) -> None:
    mine, foreign = world.run(), a_run(workspace=world.elsewhere)
    answer = stop_all(world, mine, foreign)
    assert results(answer.stop) == {mine.key: "recorded"}
    assert answer.press.ignored == ["run_ids: 1 of them are no runs of this workspace"]
    with pytest.raises(NotFound):
        stop_all(world, foreign)
    assert fresh(foreign).status == "ACTIVE"


def test_the_same_key_again_is_the_same_stop(world: World) -> None:
    run = world.run()
    first, again = stop_all(world, run, key="k"), stop_all(world, run, key="k")
    assert (again.repeated, again.stop.pk) == (True, first.stop.pk)
    assert StopPart.objects.count() == 1


def test_an_old_key_is_no_answer_for_other_runs_a_stronger_mode_or_runs_that_were_resumed(
    world: World,
) -> None:
    one, two = world.run("one"), world.run("two")
    first = stop_all(world, one, key="k", mode="pause").stop
    more = stop_all(world, one, two, key="k", mode="pause")
    assert (more.repeated, fresh(two).status) == (False, "PAUSING")
    assert stop_all(world, two, key="k", mode="pause").stop == more.stop, "that one covers it"
    drain_run(one.pk)
    assert isinstance(resuming.resume(actor=world.alice, run_id=one.pk, reason="it may"), resuming.Resumed)
    again = stop_all(world, one, key="k", mode="pause")
    assert (again.repeated, fresh(one).status, again.stop == first) == (False, "PAUSING", False)
    harder = stop_all(world, one, key="k", mode="cancel")
    assert (harder.repeated, fresh(one).status) == (False, "CANCELLING")
    assert stop_all(world, one, key="k", mode="cancel").repeated


def test_it_closes_when_the_stop_of_each_run_is_closed(world: World) -> None:
    one, two = world.run("one"), world.run("two")
    stop = stop_all(world, one, two).stop
    drain_run(one.pk)
    assert not fanout.close_if_over(stop.pk)
    assert fanout.to_close() == []
    drain_run(two.pk)
    assert fanout.to_close() == [stop.pk]
    assert fanout.close_if_over(stop.pk)
    assert fresh(stop).closed_because == fanout.OVER
    lines = Evidence.objects.filter(stream=world.workspace.pk, stop_id=stop.pk).order_by("seq")
    assert list(lines.values_list("kind", flat=True)) == ["stop.acknowledged", "stop.fenced", "stop.closed"]
    assert "stop.closed" in kinds_of(one)
