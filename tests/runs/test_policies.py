"""Policies: what they match, and what of a run their gates withhold."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from effects import deliveries, executor, intents, queue
from effects import resume as resuming
from effects import retries as again
from effects.drain import drain_run
from effects.models import Effect
from runs import fanout, gate, policies, refusals, releases, scopes
from runs.access import NotAllowed, NotFound
from runs.guard import Opened, Refusal
from runs.models import Evidence, InFlight, Permit, Policy, Run, Step, StopRequest
from runs.policies import Match, PolicyTaken, covers, matches
from runs.scopes import Target
from runs.stops import StopAnswer, Wish
from tests.worlds import (
    World,
    a_delivery,
    a_kind,
    a_permit,
    a_run,
    a_step,
    a_token,
    a_workspace,
    fresh,
    intention,
    kinds_of,
)

pytestmark = pytest.mark.django_db
ODD = {
    'a "quoted" key': "1",
    "deep.er[0]": "ü",
    "dollar$'": "o'clock",
    "käse": "%",
    "plain": "true",
    "7": "x",
}


def policy(world: World, name: str = "no payments", **match: Any) -> Policy:
    named = {"workspace_id": world.workspace.pk, "name": name}
    return policies.create_policy(actor=world.alice, match=Match(**match), **named)


def press(world: World, chosen: Policy, **wish: Any) -> StopAnswer:
    given = {"mode": "pause", **wish}
    return scopes.request_scope_stop(
        actor=world.alice, wish=Wish(**given), target=Target("policy", chosen.pk)
    )


def charge(world: World, run: Run, key: str, kind: str = "bank.charge", **fields: Any) -> Any:
    return intents.dispatch(world.ask(run, step_key=key), intention(key, kind=kind, **fields))


# --- Matching ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "labels", "hit"),
    [
        ({"team": "a"}, {"team": "a", "more": "x"}, True),
        ({"team": "a"}, {"team": "A"}, False),
        ({"team": "a"}, {}, False),
        ({"team": ""}, {}, False),
        ({"team": "a", "env": "b"}, {"team": "a"}, False),
        ({"team": "a", "env": "b"}, {"env": "b", "team": "a"}, True),
        ({}, {"team": "a"}, True),
        ({}, {}, True),
    ],
)
def test_labels_match_when_all_are_equal(wanted: dict[str, str], labels: dict[str, str], hit: bool) -> None:
    workspace = a_workspace()
    run, elsewhere = a_run(workspace=workspace, labels=labels), a_run(labels=labels)
    match = Match(labels=wanted, kinds=("bank.charge",))
    assert matches(match, labels) is hit
    stored = Policy.objects.create(workspace=workspace, name="p", match=match.kept, reach=match.reach)
    found = policies.matching_runs(stored)
    assert set(found) == ({run} if hit else set())
    assert elsewhere not in found, "another workspace's"


def test_the_database_and_python_agree_on_labels_of_every_spelling() -> None:
    workspace = a_workspace()
    runs = {name: a_run(workspace=workspace, labels={name: value}) for name, value in ODD.items()}
    for name, value in ODD.items():
        match = Match(labels={name: value})
        stored = Policy.objects.create(workspace=workspace, name=name, match=match.kept)
        assert set(policies.matching_runs(stored)) == {runs[name]}, name
        assert [key for key, run in runs.items() if matches(match, run.labels)] == [name]


@pytest.mark.parametrize(
    ("match", "hits"),
    [
        ({"kinds": ["bank.charge"]}, {("bank.charge", "external_write"), ("bank.charge", "read")}),
        ({"classes": ["read"]}, {("bank.charge", "read"), ("", "read")}),
        (
            {"kinds": ["bank.charge"], "classes": ["read"]},
            {("bank.charge", "external_write"), ("bank.charge", "read"), ("", "read")},
        ),
    ],
)
def test_of_kinds_and_classes_any_one_is_enough(match: dict[str, Any], hits: set[tuple[str, str]]) -> None:
    asked = [
        *(("bank.charge", "external_write"), ("bank.charge", "read")),
        *(("", "read"), ("", "external_write"), ("mail", "delivery")),
    ]
    assert {one for one in asked if covers(Match(**match), *one)} == hits


@pytest.mark.parametrize(
    "match",
    [
        *(
            {},
            {"labels": {}},
            {"kinds": []},
            {"kinds": [""]},
            {"classes": ["everything"]},
            {"labels": {"": "a"}},
        ),
        *({"labels": {"a": 1}}, {"labels": {"a": None}}, {"tools": ["x"]}),
    ],
)
def test_a_match_that_says_nothing_or_what_can_not_be_found_is_no_match(match: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Match.model_validate(match)


def test_a_policy_is_created_once_and_never_changes(world: World) -> None:
    made = policy(world, kinds=["bank.charge"], labels={"team": "a"})
    assert (made.reach, made.gate, made.created_by) == ("effects", "OPEN", world.alice.id)
    assert policy(world, kinds=["bank.charge"], labels={"team": "a"}) == made
    with pytest.raises(PolicyTaken):
        policy(world, labels={"team": "a"})
    line = Evidence.objects.get(stream=world.workspace.pk, kind="policy.created")
    assert line.actor == world.alice.id
    assert policy(world, "by label", labels={"team": "a"}).reach == "runs"


@pytest.mark.invariant("I28")
def test_whoever_may_stop_here_creates_policies_and_nobody_else(world: World) -> None:
    named: dict[str, Any] = {"workspace_id": world.workspace.pk, "match": Match(classes=("read",))}
    policies.create_policy(actor=a_token(world.workspace, "stop:write"), name="by an agent", **named)
    for actor in (world.dana, a_token(world.workspace, "runs:write")):
        with pytest.raises(NotAllowed):
            policies.create_policy(actor=actor, name="n", **named)
    for actor in (world.mallory, world.foreign_agent):
        with pytest.raises(NotFound):
            policies.create_policy(actor=actor, name="n", **named)
    assert Policy.objects.count() == 1


# --- Whole runs -------------------------------------------------------------------------------------------


@pytest.mark.invariant("I19")
def test_a_policy_that_is_younger_than_a_run_withholds_it_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runs.fanout.fence", lambda *args, **named: False)  # its gate alone
    run, beside = world.run(labels={"team": "a"}), world.run("beside", labels={"team": "b"})
    permit = world.opened(run).permit
    late = policy(world, labels={"team": "a"})
    stop = press(world, late).stop
    assert fresh(run).policy_epochs == {}
    refused = [world.refused(run, "charge:8"), gate.claim(world.ask(run, step_key="next"))]
    assert [one.stop_id for one in refused if isinstance(one, Refusal)] == [stop.pk] * 2
    assert gate.look(permit.pk, permit.token).answer == "shut"
    world.opened(beside, "charge:9")


def test_a_resumed_run_keeps_the_epochs_of_the_policies_that_it_falls_under_by_then(world: World) -> None:
    run = world.run(labels={"team": "a"})
    late = policy(world, labels={"team": "a"})
    stop = press(world, late).stop
    drain_run(run.pk)
    releases.release(actor=world.bob, stop_id=stop.pk, reason="checked")
    resuming.resume(actor=world.alice, run_id=run.pk, reason="it may go on")
    assert fresh(run).policy_epochs == {late.pk: 2}
    assert world.run("new", labels={"team": "a"}).policy_epochs == {late.pk: 2}
    world.opened(fresh(run))


# --- Effects of a kind ------------------------------------------------------------------------------------


@pytest.mark.invariant("I1")
def test_a_policy_of_a_kind_withholds_that_and_leaves_its_runs_active(world: World) -> None:
    run, beside = world.run(labels={"team": "a"}), world.run("beside", labels={"team": "b"})
    flying = charge(world, run, "charge:7")
    other = charge(world, run, "mail:7", kind="mail.send")
    chosen = policy(world, labels={"team": "a"}, kinds=["bank.charge"])
    stop = press(world, chosen, mode="cancel", requested_mode="cancel")
    assert stop.press.ignored == [
        "mode: recorded as pause; a policy of effects withholds them and ends no run"
    ]
    assert (stop.stop.mode, fresh(run).status, fresh(run).cancel_version) == ("pause", "ACTIVE", 1)
    refused = charge(world, run, "charge:8")
    assert isinstance(refused, Refusal)
    assert (refused.reason, refused.stop_id, refused.run_status) == ("stopped", stop.stop.pk, "ACTIVE")
    assert (refused.scope, refused.run_goes_on) == ("policy", True)
    assert refused.what_to_do.endswith("Its run goes on with other work.")
    look = gate.look(flying.permit.pk, flying.permit.token)
    assert (look.answer, look.run_goes_on) == ("shut", True)
    # and nothing else: other kinds, other runs, claims, admissions
    assert gate.look(other.permit.pk, other.permit.token).answer == "open"
    assert isinstance(charge(world, run, "mail:8", kind="mail.send"), Opened)
    assert isinstance(charge(world, beside, "charge:9"), Opened)
    assert isinstance(gate.claim(world.ask(run, step_key="next")), Step)
    newer = world.run("newer", labels={"team": "a"})
    assert isinstance(charge(world, newer, "charge:10"), Refusal)
    assert refusals.refused_since(stop.stop).count == 2
    releases.release(actor=world.bob, stop_id=stop.stop.pk, reason="checked")
    for one, key in ((run, "charge:8"), (newer, "charge:10")):
        assert isinstance(charge(world, one, key), Opened), "no resume is needed: no run was held"
    assert gate.look(flying.permit.pk, flying.permit.token).answer == "open"


def test_what_was_in_flight_of_that_kind_is_listed_and_nothing_else(world: World) -> None:
    run = world.run(labels={"team": "a"})
    flying, _, over = (
        charge(world, run, key, kind)
        for key, kind in (("a", "bank.charge"), ("b", "mail.send"), ("c", "bank.charge"))
    )
    world.report(over)
    assert set(Permit.objects.values_list("kind", flat=True)) == {"bank.charge", "mail.send"}
    stop = press(world, policy(world, kinds=["bank.charge"])).stop
    assert list(InFlight.objects.filter(stop=stop).values_list("permit", flat=True)) == [flying.permit.pk]
    assert stop.fenced_at is not None
    assert StopRequest.objects.count() == 1, "its run has no stop of its own"


@pytest.mark.parametrize("op_class", ["model_turn", "delivery", "browser_action", "read"])
def test_a_policy_of_a_class_withholds_each_boundary_of_it(world: World, op_class: str) -> None:
    run = world.run()
    stop = press(world, policy(world, classes=[op_class])).stop
    boundary = gate.boundary_of(op_class)
    asked = {"op_class": op_class, "boundary": boundary}
    refused = gate.dispatch(world.ask(run, step_key="s-1", **asked))
    assert isinstance(refused, Refusal)
    assert (refused.boundary, refused.stop_id) == (boundary, stop.pk)
    assert isinstance(gate.dispatch(world.ask(run, step_key="s-2", op_class="external_write")), Opened)


def test_a_retry_of_a_kind_is_withheld_when_it_is_asked_for_and_when_it_is_due(world: World) -> None:
    run = world.run()
    early, late = (charge(world, run, key) for key in ("charge:7", "charge:8"))
    for opened in (early, late):
        world.report(opened, "not_applied")
        world.finish(fresh(opened.step), "failed")
    due = again.decide(actor=world.alice, step=early.step, seen=1, reason="the bank is back")
    assert isinstance(due, Step)
    stop = press(world, policy(world, kinds=["bank.charge"])).stop
    refused = [
        again.decide(actor=world.alice, step=late.step, seen=1, reason="the bank is back"),
        queue.fall_due(early.step.pk),
    ]
    assert [(r.boundary, r.stop_id) for r in refused if isinstance(r, Refusal)] == [("retry", stop.pk)] * 2
    assert fresh(early.step).status == "RETRY_WAIT", "it asks again later"
    assert fresh(run).status == "ACTIVE"


def test_our_executor_asks_again_and_leaves_no_claims_of_what_a_policy_withholds(
    world: World,
) -> None:
    a_kind(world.workspace, provider="http")
    run = world.run()
    effect = intents.declare(world.ask(run, step_key="charge:7"), intention("charge:7"))
    assert isinstance(effect, Effect)
    stop = press(world, policy(world, kinds=["bank.charge"])).stop
    before = kinds_of(run)
    assert [executor.execute(effect.pk) for _ in range(3)] == ["refused"] * 3
    assert kinds_of(run) == [*before, "claim.refused"], "its looping floods no stream"
    assert refusals.refused_since(stop).count == 3
    assert (fresh(effect).settlement, fresh(effect.step).status) == ("DECLARED", "PENDING")


def test_a_run_of_another_workspace_is_never_under_a_policy(world: World) -> None:
    press(world, policy(world, kinds=["bank.charge"]))
    theirs = World()
    assert isinstance(charge(theirs, theirs.run(), "charge:7"), Opened)


# --- What is in flight ------------------------------------------------------------------------------------


def test_what_is_in_flight_of_a_run_that_drains_or_has_ended_is_listed_too(world: World) -> None:
    """A message of a run that completed, a call of one that is being cancelled: both may still happen."""
    drains, over, lost = (a_run(status, world.workspace) for status in ("CANCELLING", "COMPLETED", "FAILED"))
    flying = {a_permit(a_step(run, "DISPATCHED", op_class="delivery")).pk for run in (drains, over)}
    a_permit(a_step(over, "DISPATCHED"))
    a_permit(a_step(lost, "UNKNOWN", op_class="delivery"), "LOST")
    stop = press(world, policy(world, classes=("delivery",))).stop
    assert stop.fenced_at is not None
    assert set(InFlight.objects.filter(stop=stop).values_list("permit_id", flat=True)) == flying
    assert dict(stop.parts.values_list("run_id", "result")) == {drains.pk: "listed", over.pk: "listed"}


def test_runs_that_are_admitted_all_the_while_keep_no_fence_from_being_said(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy of effects refuses no run; one that came after its gate has nothing from before."""
    world.run("before")
    reach, came = fanout._stop_chunk, list[Run]()

    def and_one_more(*args: Any, **named: Any) -> int:
        reached = reach(*args, **named)
        came.append(world.run(f"during {len(came)}"))
        return reached

    monkeypatch.setattr(fanout, "_stop_chunk", and_one_more)
    stop = press(world, policy(world, classes=("delivery",))).stop
    assert came
    assert stop.fenced_at is not None


def test_a_message_of_a_run_that_ended_is_let_go_under_a_policy_that_is_younger_than_the_run(
    world: World,
) -> None:
    """A release starts nothing: no resume would give the run an epoch of this policy."""
    run = a_run("COMPLETED", world.workspace, labels={"team": "finance"})
    other = a_run("COMPLETED", world.workspace)
    mine, theirs = a_delivery(run), a_delivery(other)
    stop = press(world, policy(world, labels={"team": "finance"})).stop
    assert (deliveries.let_go(mine.pk), deliveries.let_go(theirs.pk)) == (True, False)
    assert (fresh(mine).state, fresh(theirs).state) == ("WITHHELD", "QUEUED")
    assert Evidence.objects.get(stream=run.pk, kind="delivery.withheld").stop_id == stop.pk
