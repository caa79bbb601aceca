"""Where work may begin: what opens, each guard alone, and what is refused with what advice."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from effects import intents
from effects.intents import may_retry
from effects.models import Effect
from runs import gate
from runs.access import NotFound
from runs.guard import Opened, Refusal
from runs.models import Evidence, Permit, Policy, Run, Session, Step, Workspace
from runs.models import Refusal as RefusalRow
from tests.worlds import (
    World,
    a_permit,
    a_run,
    a_step,
    an_effect,
    fresh,
    intention,
    kinds_of,
    lapse,
)

pytestmark = pytest.mark.django_db


# --- A permit ---------------------------------------------------------------------------------------------


@pytest.mark.invariant("I8")
def test_one_call_registers_the_step_and_the_effect_and_opens_the_permit(world: World) -> None:
    run = world.run()
    opened = world.opened(run, "charge:7", worker="w-9")
    permit, step, effect = fresh(opened.permit), fresh(opened.step), Effect.objects.get()
    assert (step.status, step.attempt, step.worker, step.claim_version) == ("DISPATCHED", 1, "w-9", 1)
    assert (permit.state, permit.step_id, permit.effect_key, permit.seen_version) == (
        "OPEN",
        step.pk,
        "charge:7",
        1,
    )
    assert (effect.settlement, effect.permit_id, effect.step_id) == ("DISPATCHED", permit.pk, step.pk)
    assert (permit.guard, permit.token) == ("ordinary", step.claim_token)
    assert kinds_of(run) == ["run.admitted", "effect.declared", "effect.dispatched", "permit.opened"]


def test_a_permit_says_until_when_a_send_may_begin_and_how_long_the_lease_runs(world: World) -> None:
    permit = fresh(world.opened(world.run(), lease_s=45).permit)
    assert abs((permit.permit_until - permit.opened_at) - timedelta(seconds=10)) < timedelta(seconds=1)
    assert abs((permit.lease_until - permit.opened_at) - timedelta(seconds=45)) < timedelta(seconds=1)


def test_the_effect_keeps_the_raw_bytes_and_their_digest(world: World) -> None:
    body = b'{"amount":1e2,"to":"a","to":"b"}'
    run = world.run()
    intents.dispatch(world.ask(run, step_key="pay"), intention(body=body))
    effect = Effect.objects.get()
    assert bytes(effect.body) == body
    assert effect.body_digest == hashlib.sha256(body).hexdigest()


def test_a_claimed_step_is_dispatched_under_its_token_and_later_permits_leave_it_there(world: World) -> None:
    run = world.run()
    step = world.claimed(run)
    first = intents.dispatch(world.ask_of(step), intention("charge:1"))
    second = intents.dispatch(world.ask_of(step), intention("charge:2"))
    assert isinstance(first, Opened)
    assert isinstance(second, Opened)
    assert first.permit.pk != second.permit.pk
    assert fresh(step).status == "DISPATCHED"
    assert Permit.objects.filter(step=step, state="OPEN").count() == 2


@pytest.mark.parametrize(
    ("cross", "op_class", "boundary"),
    [
        (gate.model, "model_turn", "model"),
        (gate.act, "browser_action", "act"),
        (gate.deliver, "delivery", "deliver"),
        (gate.dispatch, "read", "dispatch"),
    ],
)
def test_each_boundary_opens_a_permit_of_its_own_and_refuses_after_a_stop(
    world: World, cross: Callable[..., Any], op_class: str, boundary: str
) -> None:
    run = world.run()
    opened = cross(world.ask(run, step_key="one", op_class=op_class))
    assert isinstance(opened, Opened)
    assert (opened.permit.boundary, opened.permit.op_class) == (boundary, op_class)
    assert gate.boundary_of(op_class) == boundary
    world.stop(run)
    refusal = cross(world.ask(run, step_key="two", op_class=op_class))
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.boundary) == ("stopped", boundary)
    assert Permit.objects.count() == 1


# --- Each guard alone, the others open --------------------------------------------------------------------


def shut_workspace(run: Run) -> None:
    Workspace.objects.filter(pk=run.workspace_id).update(gate="SHUT")


def next_workspace_epoch(run: Run) -> None:
    Workspace.objects.filter(pk=run.workspace_id).update(epoch=2)


def shut_session(run: Run) -> None:
    Session.objects.filter(pk=run.session_id).update(gate="SHUT")


def next_session_epoch(run: Run) -> None:
    Session.objects.filter(pk=run.session_id).update(epoch=2)


def shut_policy(run: Run) -> None:
    Policy.objects.filter(workspace=run.workspace).update(gate="SHUT")


def next_policy_epoch(run: Run) -> None:
    Policy.objects.filter(workspace=run.workspace).update(epoch=2)


def other_status(run: Run) -> None:
    """CANCELLING, at the version that the worker carries: only the status is wrong."""
    Run.cancel(Run.objects.filter(pk=run.pk))


def other_version(run: Run) -> None:
    """ACTIVE, one version on: only the version is wrong."""
    for move in (Run.pause, Run.hold):
        move(Run.objects.filter(pk=run.pk))
    Run.resume(Run.objects.filter(pk=run.pk), {})


GUARDS = [
    (other_status, "stopped"),
    (other_version, "stale_version"),
    (shut_workspace, "stopped"),
    (next_workspace_epoch, "stopped"),
    (shut_session, "stopped"),
    (next_session_epoch, "stopped"),
    (shut_policy, "stopped"),
    (next_policy_epoch, "stopped"),
]


def guarded_run(world: World) -> Run:
    """An ACTIVE run under a session and a policy, all open at the epochs of its admission."""
    session = Session.objects.create(workspace=world.workspace, key=f"nightly-{Session.objects.count()}")
    policy = Policy.objects.create(workspace=world.workspace, name=f"refunds-{Policy.objects.count()}")
    return a_run(workspace=world.workspace, session=session, session_epoch=1, policy_epochs={policy.pk: 1})


def seen_now(run: Run, shut: Callable[[Run], None]) -> int:
    """The version that a worker carries so that only the guard in question says no."""
    return fresh(run).cancel_version if shut is not other_version else run.cancel_version


@pytest.mark.invariant("I1")
@pytest.mark.parametrize(("shut", "reason"), GUARDS)
def test_each_guard_refuses_a_dispatch_while_all_others_are_open(
    world: World, shut: Callable[[Run], None], reason: str
) -> None:
    run = guarded_run(world)
    world.opened(run, "before")
    shut(run)
    refusal = world.refused(run, "after", seen_version=seen_now(run, shut))
    assert refusal.reason == reason
    assert Permit.objects.count() == 1
    assert not Effect.objects.filter(key="after").exists()
    assert not Step.objects.filter(key="after").exists()


@pytest.mark.invariant("I1")
@pytest.mark.parametrize(("shut", "reason"), GUARDS)
def test_each_guard_refuses_a_claim_a_registration_and_a_retry(
    world: World, shut: Callable[[Run], None], reason: str
) -> None:
    run = guarded_run(world)
    failed = a_step(run, "FAILED")
    an_effect(failed, "NOT_APPLIED")
    shut(run)
    ask = world.ask(run, step_key="pay", seen_version=seen_now(run, shut))
    again = replace(ask, step_key="", step_id=failed.pk)
    asked = [gate.claim(ask), gate.register(ask), gate.retry(again, due_in_s=0, allowed=may_retry())]
    assert [answer.reason for answer in asked if isinstance(answer, Refusal)] == [reason] * 3
    assert [answer.boundary for answer in asked if isinstance(answer, Refusal)] == ["claim", "claim", "retry"]
    assert (fresh(failed).status, run.steps.count()) == ("FAILED", 1)


@pytest.mark.invariant("I7")
@pytest.mark.parametrize(("shut", "reason"), GUARDS)
def test_each_guard_shuts_the_second_look(world: World, shut: Callable[[Run], None], reason: str) -> None:
    run = guarded_run(world)
    permit = world.opened(run).permit
    assert gate.look(permit.pk, permit.token).answer == "open"
    if shut is other_status:  # the permit's own version must stand, or the version guard would hide it
        permit = a_permit(a_step(run, "DISPATCHED"), seen_version=2)
    shut(run)
    assert gate.look(permit.pk, permit.token).answer == "shut"


# --- Refusals ---------------------------------------------------------------------------------------------


def test_a_stopped_run_says_which_stop_and_to_send_nothing(world: World) -> None:
    run = world.run()
    stop = world.stop(run).stop
    refusal = world.refused(run)
    assert (refusal.reason, refusal.run_status, refusal.stop_id) == ("stopped", "CANCELLING", stop.pk)
    assert (refusal.carried_version, refusal.current_version) == (1, 2)
    assert refusal.what_to_do.startswith("Do not send.")


def test_a_stale_version_says_to_read_the_run_and_claim_again(world: World) -> None:
    run = a_run(workspace=world.workspace, cancel_version=3)
    for carried in (2, 4):
        refusal = world.refused(run, seen_version=carried)
        assert (refusal.reason, refusal.run_status, refusal.stop_id) == ("stale_version", "ACTIVE", None)
        assert (refusal.carried_version, refusal.current_version) == (carried, 3)
        assert "claim again" in refusal.what_to_do


def test_a_lost_claim_says_to_do_nothing(world: World) -> None:
    run = world.run()
    step = world.claimed(run)
    for token in ("", "forged", step.claim_token.upper()):
        ask = replace(world.ask_of(step), claim_token=token)
        refusal = intents.dispatch(ask, intention(f"charge:{token}"))
        assert isinstance(refusal, Refusal)
        assert (refusal.reason, refusal.step_id) == ("lost_claim", step.pk)
        assert refusal.what_to_do.startswith("Do nothing.")
    assert fresh(step).status == "CLAIMED"
    assert isinstance(intents.dispatch(world.ask_of(step), intention()), Opened)


@pytest.mark.parametrize("dispatched", [False, True])
def test_a_claim_whose_lease_ran_out_is_lost_by_the_clock_of_the_database(
    world: World, dispatched: bool
) -> None:
    step = world.claimed(world.run())
    if dispatched:
        assert isinstance(intents.dispatch(world.ask_of(step), intention("charge:1")), Opened)
    lapse(step)
    refusal = intents.dispatch(world.ask_of(step), intention("charge:2"))
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "lost_claim"
    assert not Effect.objects.filter(key="charge:2").exists()


@pytest.mark.parametrize("status", ["CLAIMED", "DISPATCHED", "SUCCEEDED", "FAILED", "UNKNOWN", "RETRY_WAIT"])
def test_a_step_that_is_not_free_is_claimed_by_nobody_else(world: World, status: str) -> None:
    step = a_step(a_run(workspace=world.workspace), status, key="pay")
    refusal = gate.claim(world.ask(step.run, step_key="pay", worker="w-2"))
    assert isinstance(refusal, Refusal)
    assert refusal.reason == ("not_due" if status == "RETRY_WAIT" else "lost_claim")
    assert (fresh(step).status, fresh(step).claim_token) == (status, step.claim_token)


def test_the_same_refusal_is_one_row_with_a_count_and_one_line_of_evidence(world: World) -> None:
    run = world.run()
    world.stop(run)
    counts = [world.refused(run).count for _ in range(5)]
    assert counts == [1, 2, 3, 4, 5]
    row = RefusalRow.objects.get()
    assert (row.count, row.reason, row.boundary, row.effect_key) == (5, "stopped", "dispatch", "charge:7")
    assert (row.carried_version, row.current_version) == (1, 2)
    assert row.last_at > row.first_at
    lines = Evidence.objects.filter(stream=run.pk, kind="dispatch.refused")
    assert [line.seq for line in lines] == [row.evidence_seq]


def test_another_key_version_or_boundary_is_another_refusal(world: World) -> None:
    run = world.run()
    world.stop(run)
    world.refused(run, "charge:7")
    world.refused(run, "charge:8")
    world.refused(run, "charge:7", seen_version=2)
    gate.claim(world.ask(run, step_key="charge:7"))
    gate.model(world.ask(run, step_key="charge:7", op_class="model_turn"))
    assert sorted(RefusalRow.objects.values_list("count", flat=True)) == [1] * 5
    assert sum(kind.endswith(".refused") for kind in kinds_of(run)) == 5


def test_nothing_of_an_unknown_run_or_of_another_runs_step_is_told(world: World) -> None:
    run, other = world.run("one"), world.run("two")
    step = world.claimed(other)
    with pytest.raises(NotFound):
        gate.claim(replace(world.ask(run, step_key="x"), run_id="run_absent"))
    with pytest.raises(NotFound):
        gate.dispatch(replace(world.ask_of(step), run_id=run.pk))
    with pytest.raises(NotFound):
        intents.dispatch(world.ask(run, step_key="x", actor=world.foreign_agent), intention())
