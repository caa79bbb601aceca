"""A stop of a session, a workspace or a policy: shut for everything under it, and for nothing beside it."""

from __future__ import annotations

from typing import Any

import pytest

from effects import resume as resuming
from effects.drain import drain_run
from runs import access, fanout, gate, policies, refusals, releases, scopes
from runs.access import Actor, NotAllowed, NotFound
from runs.admission import Admitted
from runs.guard import Refusal
from runs.models import (
    Evidence,
    EvidencePayload,
    Gate,
    Policy,
    Press,
    Role,
    Run,
    Session,
    StopRequest,
    Workspace,
)
from runs.policies import Match
from runs.scopes import Target
from runs.stops import StopAnswer, Wish
from tests.worlds import World, a_person, a_run, a_token, fresh, in_seconds

pytestmark = pytest.mark.django_db
KINDS = ("workspace", "session", "policy")
UNDER: dict[str, Any] = {"session": "nightly", "labels": {"team": "finance"}}


def target(world: World, kind: str = "workspace") -> Target:
    """The scope that runs of UNDER stand under."""
    if kind == "workspace":
        return Target(kind, world.workspace.pk)
    if kind == "session":
        return Target(kind, Session.objects.get_or_create(workspace=world.workspace, key="nightly")[0].pk)
    match = Match(labels={"team": "finance"})
    named = {"workspace_id": world.workspace.pk, "name": "no finance"}
    return Target(kind, policies.create_policy(actor=world.alice, match=match, **named).pk)


def press(world: World, kind: str = "workspace", by: Actor | None = None, **wish: Any) -> StopAnswer:
    given = {"mode": "pause", **wish}
    return scopes.request_scope_stop(actor=by or world.alice, wish=Wish(**given), target=target(world, kind))


def release(world: World, stop: StopRequest, by: Actor | None = None, reason: str = "checked") -> Any:
    return releases.release(actor=by or world.bob, stop_id=stop.pk, reason=reason)


def of_workspace(world: World) -> list[str]:
    lines = Evidence.objects.filter(stream=world.workspace.pk).order_by("seq")
    return [kind for kind in lines.values_list("kind", flat=True) if not kind.startswith("token.")]


def nobody_carries_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every process died right after the gate's commit."""
    monkeypatch.setattr(fanout, "fence", lambda stop_id, within_s=1.0: False)


@pytest.mark.invariant("I19")
@pytest.mark.parametrize("kind", KINDS)
def test_from_the_gates_commit_on_nothing_under_the_scope_begins_though_no_run_was_reached_yet(
    world: World, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody_carries_on(monkeypatch)
    scope = scopes.scope_of  # read the row again after the press
    target(world, kind)
    run, beside, elsewhere = world.run(**UNDER), a_run(workspace=world.workspace), World()
    opened, step = world.opened(run), world.claimed(run, "next")
    stop = press(world, kind, note="wrong prices").stop
    row = scope(stop)
    assert (stop.scope, stop.mode, stop.fenced_at, row.gate, row.epoch) == (kind, "pause", None, "SHUT", 2)
    assert row.gate_at == stop.gate_at
    assert (fresh(run).status, fresh(run).cancel_version) == ("ACTIVE", 1), "only the gate is shut"
    refused = [
        world.admit("other", **UNDER),
        world.refused(run, "charge:8"),
        gate.claim(world.ask(run, step_key="third")),
        gate.dispatch(world.ask_of(step)),
    ]
    assert [r.reason for r in refused if isinstance(r, Refusal)] == ["stopped"] * 4
    assert {r.stop_id for r in refused if isinstance(r, Refusal)} == {stop.pk}
    assert gate.look(opened.permit.pk, opened.permit.token).answer == "shut"
    assert refusals.refused_since(stop).count == 4
    assert isinstance(elsewhere.admit(**UNDER), Admitted), "the gate of another workspace is its own"
    if kind != "workspace":
        world.opened(beside)
        assert isinstance(world.admit("another"), Admitted), "not under it"


@pytest.mark.invariant("I19")
@pytest.mark.parametrize("kind", KINDS)
def test_an_opened_gate_lets_no_run_from_before_through_by_its_epoch_alone(
    world: World, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No verb opens a gate before its runs were reached; a hand or a bug might."""
    nobody_carries_on(monkeypatch)
    target(world, kind)
    run = world.run(**UNDER)
    permit = world.opened(run).permit
    stop = press(world, kind).stop
    type(scopes.scope_of(stop)).objects.update(gate=Gate.OPEN)
    assert (fresh(run).status, fresh(run).cancel_version) == ("ACTIVE", 1)
    refused = world.refused(run, "charge:8")
    assert (refused.reason, refused.stop_id) == ("stopped", stop.pk)
    assert gate.look(permit.pk, permit.token).answer == "shut"
    world.opened(world.run("new", **UNDER), "charge:9")


@pytest.mark.parametrize("kind", KINDS)
def test_every_run_from_before_is_reached_and_none_beside_the_scope(world: World, kind: str) -> None:
    target(world, kind)
    runs, beside = [world.run(key, **UNDER) for key in ("a", "b")], a_run(workspace=World().workspace)
    stop = press(world, kind).stop
    assert stop.fenced_at is not None
    assert [(fresh(run).status, fresh(run).cancel_version) for run in runs] == [("PAUSING", 2)] * 2
    assert StopRequest.objects.filter(scope_stop=stop).count() == 2
    assert set(scopes.in_scope(stop)) == set(runs)
    assert fresh(beside).status == "ACTIVE"
    named = Evidence.objects.get(stream=world.workspace.pk, kind="gate.shut")
    assert named.stop_id == stop.pk


def test_a_report_of_work_in_flight_is_taken_under_a_shut_gate(world: World) -> None:
    run = world.run()
    opened = world.opened(run)
    press(world)
    assert world.report(opened).late is False


@pytest.mark.invariant("I4")
@pytest.mark.parametrize("kind", KINDS)
def test_a_second_press_joins_a_stronger_one_supersedes_and_a_weaker_one_is_told(
    world: World, kind: str
) -> None:
    first, again = press(world, kind, key="k-1"), press(world, kind, key="k-1")
    joined = press(world, kind, world.bob, key="k-2")
    assert (first.answer, again.repeated, joined.answer) == ("recorded", True, "joined")
    assert {first.stop.pk, again.stop.pk, joined.stop.pk} == {StopRequest.objects.get().pk}
    assert (scopes.scope_of(first.stop).epoch, Press.objects.count()) == (2, 2)
    stronger = press(world, kind, world.bob, key="k-3", mode="cancel")
    assert (stronger.answer, stronger.weaker) == ("recorded", first.stop)
    assert fresh(first.stop).superseded_by == stronger.stop
    weaker = press(world, kind, key="k-4")
    assert (weaker.answer, weaker.stop, weaker.milder) == ("joined", stronger.stop, True)
    row = scopes.scope_of(stronger.stop)
    assert (row.gate, row.epoch, scopes.standing_stop(row)) == ("SHUT", 3, stronger.stop)
    assert press(world, kind, key="k-1").stop == first.stop, "the very press of before: its own answer"
    told = [kind for kind in of_workspace(world) if kind != "policy.created"]
    assert told == [
        *("gate.shut", "compensations.halted", "stop.fenced", "stop.joined"),
        *("gate.shut", "stop.superseded", "stop.fenced", "stop.joined"),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_press_after_a_release_shuts_the_gate_again(world: World, kind: str) -> None:
    first = press(world, kind, key="k-1")
    release(world, first.stop)
    again = [press(world, kind, key="k-1") for _ in range(2)]
    assert [said.repeated for said in again] == [False, True]
    assert (scopes.scope_of(first.stop).gate, again[0].stop.pk != first.stop.pk) == ("SHUT", True)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_press_after_the_release_of_a_stronger_stop_shuts_the_gate_again(
    world: World, kind: str
) -> None:
    first = press(world, kind, key="k-1")
    stronger = press(world, kind, world.carol, mode="cancel")
    assert press(world, kind, key="k-1").stop == first.stop, "while the stronger one holds the gate"
    release(world, stronger.stop)
    again = press(world, kind, key="k-1")
    assert (again.repeated, scopes.scope_of(again.stop).gate) == (False, "SHUT")


@pytest.mark.invariant("I19")
@pytest.mark.parametrize("kind", KINDS)
def test_after_a_release_one_run_is_resumed_and_goes_on_and_the_others_stay_paused(
    world: World, kind: str
) -> None:
    target(world, kind)
    one, other = world.run("one", **UNDER), world.run("other", **UNDER)
    stop = press(world, kind).stop
    assert [drain_run(run.pk) for run in (one, other)] == ["PAUSED", "PAUSED"]
    early = resuming.resume(actor=world.alice, run_id=one.pk, reason="it may go on")
    assert isinstance(early, resuming.NotResumed)
    assert (early.reason, early.scope) == ("gate", f"{kind.title()} “{scopes.scope_of(stop)}”")
    release(world, stop)
    assert world.refused(one).reason == "stopped", "a release starts nothing"
    assert isinstance(world.admit("new", **UNDER), Admitted)
    resumed = resuming.resume(actor=world.alice, run_id=one.pk, reason="it may go on")
    assert isinstance(resumed, resuming.Resumed)
    world.opened(fresh(one))
    assert (fresh(other).status, fresh(other).cancel_version) == ("PAUSED", 2)
    assert world.refused(fresh(other)).reason == "stopped"
    standing = scopes.standing(target(world, kind))
    assert (standing.shut, standing.stop, standing.paused, standing.stale) == (False, None, 1, 0)


def test_a_stop_of_one_scope_leaves_that_of_another_in_force(world: World) -> None:
    run = world.run(**UNDER)
    session, workspace = press(world, "session").stop, press(world).stop
    drain_run(run.pk)
    release(world, workspace)
    refused = world.admit("new", **UNDER)
    assert isinstance(refused, Refusal)
    assert refused.stop_id == session.pk
    held = resuming.resume(actor=world.alice, run_id=run.pk, reason="it may go on")
    assert isinstance(held, resuming.NotResumed)
    assert held.reason == "gate"


def test_a_stop_of_a_session_is_passed_on_to_the_children_of_its_runs_elsewhere(world: World) -> None:
    parent = world.run("parent", session="nightly")
    child, other = world.run("child", parent=parent.pk), world.run("other")
    stop = press(world, "session", mode="cancel").stop
    assert (fresh(parent).status, fresh(child).status) == ("CANCELLING", "CANCELLING")
    assert fresh(other).status == "ACTIVE"
    assert set(scopes.in_scope(stop)) == {parent}


def test_refusals_are_counted_for_the_stop_that_was_in_force_then(world: World) -> None:
    run = world.run(**UNDER)
    first = press(world).stop
    for _ in range(3):
        world.admit("new", **UNDER)
        world.refused(run)
    release(world, first)
    second = press(world).stop
    world.admit("new", **UNDER)
    assert [refusals.refused_since(stop).count for stop in (first, second)] == [6, 1]
    assert refusals.refused_since(second).last_at is not None
    assert refusals.refused_since(press(World()).stop) == refusals.Refused(0, None)


def test_a_count_of_refusals_looks_at_so_many_rows_and_no_further(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = press(world).stop
    for key in ("a", "b", "c"):
        world.admit(key)
    assert refusals.refused_since(stop).more is False
    monkeypatch.setattr(refusals, "AT_MOST", 2)
    found = refusals.refused_since(stop)
    assert (found.count, found.more) == (2, True)


@pytest.mark.invariant("I28")
@pytest.mark.parametrize("kind", KINDS)
def test_operators_stop_reviewers_release_and_outsiders_find_nothing(world: World, kind: str) -> None:
    elsewhere = Run.objects.create(workspace=world.elsewhere, key="x", name="x", parameters_digest="")
    with pytest.raises(NotAllowed):
        press(world, kind, world.dana)
    with pytest.raises(NotFound):
        press(world, kind, world.mallory)
    with pytest.raises(NotAllowed):
        press(world, kind, a_token(world.workspace, "stop:write", run=world.run("bound")))
    with pytest.raises(NotAllowed):
        press(world, kind, a_token(world.workspace, "stop:write", run=elsewhere))
    stop = press(world, kind, a_token(world.workspace, "stop:write")).stop
    for actor in (world.alice, world.dana, a_token(world.workspace, "stop:write")):
        with pytest.raises(NotAllowed):
            release(world, stop, actor)
    with pytest.raises(NotFound):
        release(world, stop, world.mallory)
    assert scopes.scope_of(stop).gate == Gate.SHUT
    release(world, stop)
    assert scopes.scope_of(stop).gate == Gate.OPEN


def test_a_scope_that_is_not_there_is_not_found(world: World) -> None:
    for kind in (*KINDS, "run", "nonsense"):
        with pytest.raises(NotFound):
            scopes.request_scope_stop(actor=world.alice, wish=Wish(), target=Target(kind, "ws_0"))


def test_the_gate_that_a_restore_shut_is_opened_by_an_admin(world: World) -> None:
    stop = press(world).stop
    StopRequest.objects.filter(pk=stop.pk).update(via=scopes.RESTORED)
    with pytest.raises(NotAllowed):
        release(world, stop)
    release(world, stop, access.person(a_person("erin", world.workspace, Role.ADMIN)))
    assert Workspace.objects.get(pk=world.workspace.pk).gate == Gate.OPEN


def test_no_end_date_ends_what_another_press_wanted_to_stand_longer(world: World) -> None:
    soon, later = in_seconds(60), in_seconds(3600)
    first = press(world, key="k-1", ends_at=soon).stop
    press(world, by=world.bob, key="k-2", ends_at=later)
    assert fresh(first).ends_at == later
    nearer = press(world, by=world.bob, key="k-3", ends_at=soon)
    assert (fresh(first).ends_at, nearer.press.ignored) == (later, [scopes.KEPT.format(name="ends_at")])
    press(world, by=world.bob, key="k-4")
    assert fresh(first).ends_at is None, "whoever names no end wants it to stand until it is released"
    joins = Evidence.objects.filter(stop_id=first.pk, kind="stop.joined").order_by("seq")
    bodies = EvidencePayload.objects.filter(stream=world.workspace.pk, seq__in=joins.values("seq"))
    assert ['"ended"' in body.body for body in bodies.order_by("seq")] == [True, False, True]


def test_a_stronger_stop_ends_no_sooner_than_the_milder_one_that_it_supersedes(world: World) -> None:
    press(world, key="k-1")
    stronger = press(world, by=world.bob, mode="cancel", ends_at=in_seconds(60))
    assert (stronger.stop.ends_at, stronger.press.ignored) == (None, [scopes.KEPT.format(name="ends_at")])
    press(world, "session", ends_at=in_seconds(60))
    longer = press(world, "session", mode="cancel", ends_at=in_seconds(3600)).stop
    assert longer.ends_at is not None
    assert longer.ends_at > in_seconds(1800)


def test_a_press_that_joins_keeps_the_moments_of_the_stop_and_says_so(world: World) -> None:
    first = press(world, key="k-1")
    moment = fresh(first.stop).recorded_at.replace(year=2099)
    late = press(world, key="k-2", ends_at=moment, review_at=moment)
    assert late.press.ignored == [
        "review_at: the stop that stands keeps its own",
        "ends_at: the stop that stands keeps its own",
    ]
    assert (fresh(first.stop).ends_at, fresh(first.stop).review_at) == (None, None)
    past = press(world, "session", ends_at=first.stop.recorded_at)
    assert (past.answer, past.stop.ends_at) == ("recorded", None)
    assert past.press.ignored == ["ends_at: that moment is over"]


def test_a_run_is_told_of_its_own_stop_before_that_of_a_scope(world: World) -> None:
    run = world.run()
    own = world.stop(run, mode="cancel").stop
    press(world)
    assert world.refused(fresh(run)).stop_id == own.pk
    assert Policy.objects.count() == 0, "and no policy was asked about"
