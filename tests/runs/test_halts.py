"""A stop of a scope halts compensations with its gate; only a reviewer lifts that, with a reason."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
from django.apps import apps

from runs import access, everywhere, halts, releases
from runs.access import NotAllowed, NotFound
from runs.fanout import fence
from runs.halts import NoReason
from runs.models import Evidence, Halt, Permit, Run, StopRequest, User
from runs.policies import Match, create_policy
from runs.scopes import Target, request_scope_stop
from runs.stops import Wish
from tests.worlds import World, a_permit, a_run, a_step, a_token, in_flight, number

pytestmark = pytest.mark.django_db


def press(world: World, kind: str = "workspace", pk: str = "", **wish: Any) -> StopRequest:
    target = Target(kind, pk or world.workspace.pk)
    return request_scope_stop(actor=world.alice, wish=Wish(**{"mode": "pause", **wish}), target=target).stop


def session_of(run: Run) -> str:
    assert run.session_id is not None
    return run.session_id


def policy(world: World, **match: Any) -> str:
    made = create_policy(actor=world.alice, workspace_id=world.workspace.pk, name="p", match=Match(**match))
    return made.pk


def flying(run: Run, state: str = "OPEN", guard: str = "compensate", **fields: Any) -> Permit:
    """A permit of a compensation that is in flight, unless told otherwise."""
    return a_permit(a_step(run, "DISPATCHED"), state, guard=guard, kind="bank.refund", **fields)


def the_halt(world: World) -> Halt:
    (halt,) = halts.in_force(world.workspace.pk)
    return halt


# --- Set --------------------------------------------------------------------------------------------------


@pytest.mark.invariant("I18")
@pytest.mark.parametrize("mode", ["pause", "cancel", "abandon"])
def test_a_stop_of_a_workspace_halts_all_of_it_and_lists_what_is_in_flight(world: World, mode: str) -> None:
    run, elsewhere = a_run("COMPLETED", world.workspace), a_run("COMPLETED", world.elsewhere)
    mine = {flying(run).pk, flying(run, "LOST").pk}
    others = [
        flying(run, "REPORTED"),
        flying(run, "NOT_SENT"),
        flying(run, guard="ordinary"),
        flying(elsewhere),
    ]
    stop = press(world, mode=mode)
    halt = the_halt(world)
    assert (halt.stop, halt.session, halt.policy) == (stop, None, None)
    assert in_flight(stop) == mine, f"and none of {others}"
    line = Evidence.objects.get(stream=world.workspace.pk, kind="compensations.halted")
    assert (line.stop_id, line.actor) == (stop.pk, world.alice.id)
    assert halts.over(run, []) == halt
    assert halts.over(elsewhere, []) is None


def test_a_halt_of_a_session_reaches_its_runs_alone(world: World) -> None:
    inside, outside = world.run("a", session="nightly"), world.run("b", session="daily")
    listed, other = flying(inside), flying(outside)
    stop = press(world, "session", session_of(inside))
    assert (halts.over(inside, []), halts.over(outside, [])) == (the_halt(world), None)
    assert in_flight(stop) == {listed.pk}
    assert other.pk not in in_flight(stop)


# A policy, and whether it halts a refund of a charge in a run labelled env=prod.
REFUND, CHARGE = ("bank.refund", "external_write"), ("bank.charge", "external_write")
POLICIES: list[tuple[dict[str, Any], bool]] = [
    ({"labels": {"env": "prod"}}, True),
    ({"labels": {"env": "test"}}, False),
    ({"kinds": ("bank.refund",)}, True),
    ({"kinds": ("bank.charge",)}, True),
    ({"classes": ("external_write",)}, True),
    ({"kinds": ("mail.send",)}, False),
    ({"labels": {"env": "test"}, "kinds": ("bank.refund",)}, False),
    ({"labels": {"env": "prod"}, "kinds": ("bank.charge",)}, True),
]


@pytest.mark.parametrize(("match", "halted"), POLICIES)
def test_a_halt_of_a_policy_reaches_what_it_is_about(
    world: World, monkeypatch: pytest.MonkeyPatch, match: dict[str, Any], halted: bool
) -> None:
    monkeypatch.setattr(halts, "_about", [lambda permit: [CHARGE]])  # what the effects say of a permit
    run = world.run(labels={"env": "prod"})
    permit = flying(run)
    stop = press(world, "policy", policy(world, **match))
    assert halts.over(run, [REFUND, CHARGE]) == (the_halt(world) if halted else None)
    assert (permit.pk in in_flight(stop)) is halted
    fence(stop.pk)  # which lists it again
    assert (permit.pk in in_flight(stop)) is halted


def test_a_shut_policy_of_effects_withholds_them_also_when_its_halt_is_lifted(world: World) -> None:
    run = world.run()
    press(world, "policy", policy(world, kinds=("bank.refund",)))
    halts.lift(actor=world.bob, halt_id=the_halt(world).pk, reason="checked")
    assert halts.over(run, [REFUND]) is None
    assert halts.shut_for_kinds(run, [CHARGE]) is None
    assert halts.shut_for_kinds(run, [CHARGE, REFUND]) is not None


def test_what_only_observes_halts_nothing(world: World) -> None:
    press(world, observe=True)
    assert halts.in_force(world.workspace.pk) == []
    first = press(world)
    press(world, observe=True, key="k-2")
    assert the_halt(world).stop == first


def test_one_halt_stands_for_a_scope_and_a_press_after_it_was_lifted_sets_another(world: World) -> None:
    run = a_run("COMPLETED", world.workspace)
    first = press(world)
    press(world, mode="cancel")
    assert the_halt(world).stop == first, "whoever halted it first is named"
    halts.lift(actor=world.bob, halt_id=the_halt(world).pk, reason="checked")
    permit = flying(run)
    again = press(world)
    assert the_halt(world).stop == again
    assert permit.pk not in in_flight(again), "its list is frozen; the line of the halt names it"
    told = Evidence.objects.filter(stream=world.workspace.pk, kind="compensations.halted")
    assert [line.stop_id for line in told.order_by("seq")] == [first.pk, again.pk]


def test_a_stop_of_all_workspaces_halts_each_and_one_that_is_born_meanwhile(world: World) -> None:
    root = access.person(User.objects.create_superuser(f"root-{number()}@example.org", "a long password"))
    everywhere.request_wide_stop(actor=root, wish=Wish(mode="pause"))
    born = everywhere.make_workspace(slug="born", name="Born")
    for workspace in (world.workspace, world.elsewhere, born):
        assert len(halts.in_force(workspace.pk)) == 1


def test_a_stop_that_stood_before_there_were_halts_means_the_same(world: World) -> None:
    nightly = session_of(world.run(session="nightly"))
    stop = press(world)
    press(world, "session", nightly, observe=True)
    Halt.objects.all().delete()
    migration = importlib.import_module("runs.migrations.0017_find_permits_of_compensations")
    migration.halt_what_stands(apps, None)
    assert the_halt(world).stop == stop


# --- Lifted -----------------------------------------------------------------------------------------------


@pytest.mark.invariant("I18")
def test_a_release_of_the_stop_lifts_no_halt(world: World) -> None:
    stop = press(world)
    fence(stop.pk)
    releases.release(actor=world.bob, stop_id=stop.pk, reason="over")
    assert the_halt(world).stop == stop


def test_a_reviewer_lifts_it_once_and_says_why(world: World) -> None:
    press(world)
    halt = the_halt(world)
    lifted = halts.lift(actor=world.bob, halt_id=halt.pk, reason=" prices are right ")
    assert (lifted.lifted_by, lifted.reason, lifted.lifted_at is not None) == (
        world.bob.id,
        "prices are right",
        True,
    )
    assert halts.lift(actor=world.carol, halt_id=halt.pk, reason="so do I") == lifted
    assert Halt.objects.get(pk=halt.pk).lifted_by == world.bob.id, "whoever came first"
    lines = Evidence.objects.filter(stream=world.workspace.pk, kind="compensations.lifted")
    assert [line.actor for line in lines] == [world.bob.id]
    assert halts.in_force(world.workspace.pk) == []


def by_alice(world: World) -> access.Actor:
    return world.alice


def by_dana(world: World) -> access.Actor:
    return world.dana


def by_mallory(world: World) -> access.Actor:
    return world.mallory


def by_a_gate_token(world: World) -> access.Actor:
    return a_token(world.workspace, "gate:write")


def by_the_system(world: World) -> access.Actor:
    return access.EXECUTOR


def by_bobs_other_way_in(world: World) -> access.Actor:
    return access.Actor(world.bob.id, user=world.bob.user, via="api")


Who = Callable[[World], access.Actor]
NEVER: list[tuple[Who, type[Exception]]] = [
    (by_alice, NotAllowed),
    (by_dana, NotAllowed),
    (by_mallory, NotFound),
    (by_a_gate_token, NotAllowed),
    (by_the_system, NotAllowed),
    (by_bobs_other_way_in, NotAllowed),
]


@pytest.mark.parametrize(("who", "error"), NEVER)
def test_nobody_else_lifts_it(
    world: World, who: Callable[[World], access.Actor], error: type[Exception]
) -> None:
    press(world)
    with pytest.raises(error):
        halts.lift(actor=who(world), halt_id=the_halt(world).pk, reason="because")
    assert the_halt(world).lifted_at is None


@pytest.mark.parametrize("reason", ["", "  \n", ".", "\u3164"])
def test_a_lift_without_a_reason_is_none(world: World, reason: str) -> None:
    press(world)
    with pytest.raises(NoReason):
        halts.lift(actor=world.bob, halt_id=the_halt(world).pk, reason=reason)
    assert the_halt(world).lifted_at is None


def test_a_halt_is_found_by_members_alone(world: World) -> None:
    press(world)
    halt = the_halt(world)
    assert halts.find(halt.pk, world.dana) == halt
    for actor in (world.mallory, world.foreign_agent):
        with pytest.raises(NotFound):
            halts.find(halt.pk, actor)
    with pytest.raises(NotFound):
        halts.find("hlt_none", world.bob)
