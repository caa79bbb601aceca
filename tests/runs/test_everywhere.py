"""All workspaces at once: one press by whoever runs the installation, one stop in each workspace."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError

from runs import access, everywhere, fanout, releases, scopes
from runs.access import Actor, NotAllowed
from runs.models import Press, Run, StopRequest, User, WideStop, Workspace
from runs.people import issue_token
from runs.releases import NoReason, NotFenced, NotStanding
from runs.scopes import Target
from runs.stops import Wish
from tests.worlds import World, a_run, a_workspace, fresh, in_seconds, number

pytestmark = pytest.mark.django_db


@pytest.fixture
def root(world: World) -> Actor:
    return access.person(User.objects.create_superuser(f"root-{number()}@example.org", "a long password"))


def gate_of(workspace: Workspace) -> str:
    return Workspace.objects.get(pk=workspace.pk).gate


def everywhere_stopped(root: Actor, **wish: Any) -> WideStop:
    return everywhere.request_wide_stop(actor=root, wish=Wish(**{"mode": "pause", **wish}))


def test_one_press_shuts_every_workspace_and_stops_its_runs(world: World, root: Actor) -> None:
    mine, theirs = world.run(), a_run(workspace=world.elsewhere)
    wide = everywhere_stopped(root, note="fire")
    assert wide.shut_at is not None
    assert {gate_of(world.workspace), gate_of(world.elsewhere)} == {"SHUT"}
    assert {fresh(mine).status, fresh(theirs).status} == {"PAUSING"}
    stops = StopRequest.objects.filter(wide=wide)
    assert {stop.workspace_id for stop in stops} == set(Workspace.objects.values_list("pk", flat=True))
    assert {(stop.actor, stop.note, stop.fenced_at is None) for stop in stops} == {(root.id, "fire", False)}
    assert not everywhere.to_carry_on()


def test_only_whoever_runs_the_installation_may(world: World, root: Actor) -> None:
    assert root.user is not None
    User.objects.filter(pk=root.user.pk).update(is_superuser=False)
    token, _ = issue_token(
        actor=access.SET_UP, workspace_id=world.workspace.pk, name="a", scopes=["stop:write"], days=1
    )
    for actor in (root, world.alice, access.agent(token), access.staff(root.user)):
        with pytest.raises(NotAllowed):
            everywhere_stopped(actor)
    assert not WideStop.objects.exists()
    assert gate_of(world.workspace) == "OPEN"


def test_a_workspace_that_is_made_meanwhile_is_born_shut(world: World, root: Actor) -> None:
    wide = everywhere_stopped(root)
    made = a_workspace("Later")
    everywhere.shut_at_birth(made)
    assert gate_of(made) == "SHUT"
    assert StopRequest.objects.get(workspace=made).wide_id == wide.pk
    forgotten = a_workspace("By another hand")
    WideStop.objects.update(recorded_at=in_seconds(-60))
    for wide_id in everywhere.to_carry_on():
        everywhere.carry_on(wide_id)
    assert gate_of(forgotten) == "SHUT", "the sweep finds it"


def test_what_the_request_does_not_reach_is_carried_on_from_rows(
    world: World, root: Actor, monkeypatch: Any
) -> None:
    run = world.run()
    with monkeypatch.context() as patch:
        patch.setattr(everywhere, "IN_REQUEST_S", -1.0)
        wide = everywhere_stopped(root)
        assert (wide.shut_at, gate_of(world.workspace)) == (None, "OPEN"), "the first moment alone"
        assert everywhere.to_carry_on() == [wide.pk]
    everywhere.carry_on(wide.pk)
    assert WideStop.objects.get().shut_at is not None
    fanout.carry_on(StopRequest.objects.get(workspace=world.workspace).pk)
    assert fresh(run).status == "PAUSING"
    everywhere.carry_on(wide.pk)
    assert StopRequest.objects.filter(scope="workspace").count() == Workspace.objects.count()


def test_it_joins_a_stop_that_stands_and_leaves_it_at_the_release(world: World, root: Actor) -> None:
    target = Target("workspace", world.workspace.pk)
    before = scopes.request_scope_stop(actor=world.alice, wish=Wish(mode="cancel"), target=target).stop
    wide = everywhere_stopped(root)
    assert Press.objects.get(stop=before, actor=root.id).answer == "joined"
    everywhere.release_wide(actor=root, reason="over")
    assert (gate_of(world.workspace), gate_of(world.elsewhere)) == ("SHUT", "OPEN")
    assert WideStop.objects.get(pk=wide.pk).released_at is not None
    assert fresh(before).released_at is None


def test_a_workspace_that_its_people_released_is_not_shut_again(world: World, root: Actor) -> None:
    wide = everywhere_stopped(root)
    own = StopRequest.objects.get(workspace=world.workspace)
    releases.release(actor=world.bob, stop_id=own.pk, reason="ours is fine")
    everywhere.carry_on(wide.pk)
    assert gate_of(world.workspace) == "OPEN"
    assert gate_of(world.elsewhere) == "SHUT"


def test_an_old_key_shuts_all_again_once_the_stop_was_released_and_a_stronger_mode_is_a_press_of_its_own(
    world: World, root: Actor
) -> None:
    first = everywhere_stopped(root, key="k")
    assert everywhere_stopped(root, key="k").pk == first.pk
    stronger = everywhere_stopped(root, key="k", mode="cancel")
    assert (stronger.mode, stronger.pk != first.pk) == ("cancel", True)
    assert everywhere_stopped(root, key="k", mode="cancel").pk == stronger.pk
    assert everywhere_stopped(root, key="k").pk in (first.pk, stronger.pk), "what holds is strong enough"
    everywhere.release_wide(actor=root, reason="over")
    again = everywhere_stopped(root, key="k")
    assert (again.released_at, gate_of(world.workspace)) == (None, "SHUT")
    assert everywhere_stopped(root, key="k").pk == again.pk
    assert WideStop.objects.count() == 3


def test_a_workspace_that_can_not_be_reached_keeps_no_other_open(
    world: World, root: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *others = Workspace.objects.order_by("pk")
    shut = everywhere._shut

    def stuck(wide_id: str, workspace_id: str) -> None:
        if workspace_id == first.pk:
            raise OperationalError("canceling statement due to lock timeout")
        shut(wide_id, workspace_id)

    with monkeypatch.context() as patch:
        patch.setattr(everywhere, "_shut", stuck)
        wide = everywhere_stopped(root)
    assert (gate_of(first), {gate_of(one) for one in others}) == ("OPEN", {"SHUT"})
    assert wide.shut_at is None, "and nobody says that all are"
    everywhere.carry_on(wide.pk)
    assert gate_of(first) == "SHUT"
    assert WideStop.objects.get(pk=wide.pk).shut_at is not None


def test_a_workspace_that_is_born_shut_during_the_release_is_released_with_the_others(
    world: World, root: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    everywhere_stopped(root)
    born: list[Workspace] = []
    one_of_them = releases.release_with_all

    def release(**named: Any) -> None:
        if not born:
            born.append(everywhere.make_workspace(slug=f"born-{number()}", name="Born"))
            assert gate_of(born[0]) == "SHUT"
        one_of_them(**named)

    monkeypatch.setattr(releases, "release_with_all", release)
    everywhere.release_wide(actor=root, reason="over")
    assert gate_of(born[0]) == "OPEN"


def test_a_release_waits_for_every_fence_and_starts_nothing(
    world: World, root: Actor, monkeypatch: Any
) -> None:
    run = world.run()
    with monkeypatch.context() as patch:
        patch.setattr(fanout, "fence", lambda *_, **__: False)
        everywhere_stopped(root)
    with pytest.raises(NotFenced):
        everywhere.release_wide(actor=root, reason="too early")
    for stop_id in StopRequest.objects.values_list("pk", flat=True):
        fanout.carry_on(stop_id)
    for reason in (" ", ".", "\u3164"):
        with pytest.raises(NoReason):
            everywhere.release_wide(actor=root, reason=reason)
    with pytest.raises(NotAllowed):
        everywhere.release_wide(actor=world.bob, reason="mine")
    everywhere.release_wide(actor=root, reason="over")
    assert gate_of(world.workspace) == gate_of(world.elsewhere) == "OPEN"
    assert Run.objects.get(pk=run.pk).status == "PAUSING"
    assert everywhere.to_carry_on() == []
    with pytest.raises(NotStanding):
        everywhere.release_wide(actor=root, reason="again")


def test_a_stronger_one_goes_through_all_workspaces_again(world: World, root: Actor) -> None:
    run = world.run()
    everywhere_stopped(root, mode="pause")
    everywhere_stopped(root, mode="cancel")
    assert fresh(run).status == "CANCELLING"
    assert (
        everywhere_stopped(root, mode="pause", key="k").pk
        == everywhere_stopped(root, mode="pause", key="k").pk
    )
    everywhere.release_wide(actor=root, reason="over")
    assert gate_of(world.workspace) == "OPEN"
    assert not WideStop.objects.filter(released_at__isnull=True).exists()
