"""The gate of a workspace: shut for everything at once, released by a decision that starts nothing."""

from __future__ import annotations

from typing import Any

import pytest

from effects import resume as resuming
from effects.drain import drain_run
from runs import access, gate, gates
from runs.access import Actor, NotAllowed, NotFound
from runs.admission import Admitted
from runs.gates import NoReason, NotShut, OtherStop
from runs.guard import Refusal
from runs.models import Evidence, Press, Role, Run, StopRequest, Workspace
from runs.stops import StopAnswer, Wish
from tests.worlds import World, a_person, a_token, fresh, kinds_of

pytestmark = pytest.mark.django_db


def shut(world: World, by: Actor | None = None, **wish: Any) -> StopAnswer:
    return gates.shut(actor=by or world.alice, workspace_id=world.workspace.pk, wish=Wish(**wish))


def release(
    world: World, by: Actor | None = None, reason: str = "prices are right again", stop_id: str = ""
) -> None:
    gates.release(actor=by or world.bob, workspace_id=world.workspace.pk, reason=reason, stop_id=stop_id)


def of_workspace(world: World) -> list[str]:
    lines = Evidence.objects.filter(stream=world.workspace.pk).order_by("seq")
    return [kind for kind in lines.values_list("kind", flat=True) if not kind.startswith("token.")]


def now(world: World) -> Workspace:
    return Workspace.objects.get(pk=world.workspace.pk)


@pytest.mark.invariant("I19")
def test_a_shut_gate_refuses_admissions_and_every_gate_call_of_runs_from_before(world: World) -> None:
    run, elsewhere = world.run(), World()
    opened, step = world.opened(run), world.claimed(run, "next")
    stop = shut(world, note="wrong prices").stop
    assert (stop.scope, stop.mode, stop.number, stop.fenced_at, stop.closed_at) == (
        *("workspace", "pause", 1),
        *(None, None),
    )
    assert (now(world).gate, now(world).epoch, now(world).gate_at) == ("SHUT", 2, stop.gate_at)
    refused = [
        world.admit("other"),
        world.refused(run, "charge:8"),
        gate.claim(world.ask(run, step_key="third")),
        gate.dispatch(world.ask_of(step)),
    ]
    assert [r.reason for r in refused if isinstance(r, Refusal)] == ["stopped"] * 4
    assert {r.stop_id for r in refused if isinstance(r, Refusal)} == {stop.pk}
    assert gate.look(opened.permit.pk, opened.permit.token).answer == "shut"
    assert isinstance(elsewhere.admit(), Admitted), "the gate of another workspace is its own"
    assert (fresh(run).status, fresh(run).cancel_version) == ("ACTIVE", 1)
    assert of_workspace(world) == ["gate.shut", "admit.refused"]


def test_a_report_of_work_in_flight_is_taken_under_a_shut_gate(world: World) -> None:
    run = world.run()
    opened = world.opened(run)
    shut(world)
    assert world.report(opened).late is False
    assert "effect.confirmed" in kinds_of(run)


@pytest.mark.invariant("I4")
def test_a_second_press_joins_the_stop_that_stands_and_the_same_press_is_one(world: World) -> None:
    first, again = shut(world, key="k-1"), shut(world, key="k-1")
    joined = shut(world, world.bob, key="k-2", mode="cancel", requested_mode="cancel")
    assert (first.answer, again.repeated, joined.answer) == ("recorded", True, "joined")
    assert {first.stop.pk, again.stop.pk, joined.stop.pk} == {StopRequest.objects.get().pk}
    assert (now(world).epoch, Press.objects.count()) == (2, 2)
    assert joined.press.ignored == ["mode: recorded as pause; a shut gate holds runs and ends none"]
    assert joined.press.requested_mode == "cancel"
    assert of_workspace(world) == ["gate.shut", "stop.joined"]


def test_the_same_press_after_a_release_shuts_the_gate_again(world: World) -> None:
    first = shut(world, key="k-1")
    gates.release(actor=world.bob, workspace_id=world.workspace.pk, reason="checked")
    again = [shut(world, key="k-1") for _ in range(2)]
    assert [said.repeated for said in again] == [False, True]
    assert (now(world).gate, again[0].stop.pk != first.stop.pk) == ("SHUT", True)


@pytest.mark.invariant("I19")
def test_a_release_opens_the_gate_for_new_runs_and_starts_nothing(world: World) -> None:
    run, held = world.run(), world.run("held")
    world.stop(held, mode="pause")
    assert drain_run(held.pk) == "PAUSED"
    stop = shut(world).stop
    release(world, stop_id=stop.pk)
    stop = fresh(stop)
    assert (now(world).gate, now(world).epoch, stop.closed_because) == ("OPEN", 2, "released")
    assert stop.released_at is not None
    assert of_workspace(world) == ["gate.shut", "gate.released", "stop.closed"]
    assert isinstance(world.admit("new"), Admitted)
    assert world.refused(run).reason == "stopped", "admitted before: its epoch is over"
    assert (fresh(held).status, fresh(held).cancel_version) == ("PAUSED", 2)
    standing = gates.standing(world.workspace.pk)
    assert (standing.shut, standing.stop, standing.paused, standing.stale) == (False, None, 1, 1)


@pytest.mark.invariant("I20")
def test_a_run_from_before_goes_on_after_a_pause_and_a_resume_of_its_own(world: World) -> None:
    run = world.run()
    shut(world)
    world.stop(run, mode="pause")
    drain_run(run.pk)
    early = resuming.resume(actor=world.alice, run_id=run.pk, reason="it may go on")
    assert isinstance(early, resuming.NotResumed)
    assert early.reason == "gate"
    release(world)
    assert isinstance(
        resuming.resume(actor=world.alice, run_id=run.pk, reason="it may go on"), resuming.Resumed
    )
    assert (fresh(run).admitted_epoch, fresh(run).cancel_version) == (2, 3)
    world.opened(fresh(run))


def test_a_release_needs_a_reason_a_shut_gate_and_the_stop_that_it_was_decided_about(world: World) -> None:
    with pytest.raises(NotShut):
        release(world)
    old = shut(world).stop
    release(world)
    newer = shut(world).stop
    assert (newer.pk != old.pk, now(world).epoch) == (True, 3)
    with pytest.raises(NoReason):
        release(world, reason=" \n")
    with pytest.raises(OtherStop):
        release(world, stop_id=old.pk)
    assert (now(world).gate, fresh(newer).released_at) == ("SHUT", None)


@pytest.mark.invariant("I28")
def test_operators_shut_reviewers_release_and_outsiders_find_nothing(world: World) -> None:
    with pytest.raises(NotAllowed):
        shut(world, world.dana)
    with pytest.raises(NotFound):
        shut(world, world.mallory)
    shut(world, a_token(world.workspace, "stop:write"))
    for actor in (world.alice, world.dana, a_token(world.workspace, "stop:write")):
        with pytest.raises(NotAllowed):
            release(world, actor)
    with pytest.raises(NotFound):
        release(world, world.mallory)
    with pytest.raises(NotAllowed):
        shut(
            world,
            a_token(
                world.workspace,
                "stop:write",
                run=Run.objects.create(workspace=world.elsewhere, key="x", name="x", parameters_digest=""),
            ),
        )
    assert now(world).gate == "SHUT"
    release(world)
    assert now(world).gate == "OPEN"


def test_the_gate_that_a_restore_shut_is_opened_by_an_admin(world: World) -> None:
    stop = shut(world).stop
    StopRequest.objects.filter(pk=stop.pk).update(via=gates.RESTORED)
    with pytest.raises(NotAllowed):
        release(world, world.bob)
    release(world, access.person(a_person("erin", world.workspace, Role.ADMIN)))
    assert now(world).gate == "OPEN"
