"""The cleanup guard: what may still be tidied up while a run drains, and each way in which it says no."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from effects import ends, intents
from effects.drain import drain_run
from effects.models import Effect
from runs import access, gate, rules
from runs.guard import Opened, Refusal
from runs.models import Evidence, Permit, Run, Step
from tests.wire import agent_of
from tests.worlds import (
    World,
    a_person,
    a_run,
    a_step,
    a_token,
    fresh,
    in_flight,
    in_seconds,
    intention,
    kinds_of,
    lapse,
)

pytestmark = pytest.mark.django_db
WORK = "workspace_change"


def draining(status: str = "CANCELLING", step_status: str = "PENDING", **fields: Any) -> tuple[Run, Step]:
    """A run in this status at version 2, with a step that was declared as cleanup at version 1."""
    run = a_run(status, cancel_version=2)
    given = {"cleanup": True, "op_class": WORK, "key": "tidy", **fields}
    return run, a_step(run, step_status, **given)


def ask(world: World, run: Run, step: Step, **fields: Any) -> Any:
    """What w-1 shows of that step."""
    named = (
        {"step_id": step.pk, "claim_token": step.claim_token} if step.claim_token else {"step_key": step.key}
    )
    return world.ask(run, **{"actor": a_token(run.workspace), "op_class": step.op_class, **named, **fields})


# --- What it lets through ---------------------------------------------------------------------------------


@pytest.mark.invariant("I1")
@pytest.mark.parametrize("status", ["PAUSING", "CANCELLING"])
@pytest.mark.parametrize("op_class", ["read", WORK])
def test_a_declared_cleanup_step_is_claimed_and_dispatched_while_the_run_drains(
    world: World, status: str, op_class: str
) -> None:
    run, step = draining(status, op_class=op_class)
    claimed = gate.claim(ask(world, run, step))
    assert isinstance(claimed, Step)
    opened = gate.dispatch(ask(world, run, claimed))
    assert isinstance(opened, Opened)
    assert (opened.permit.guard, fresh(opened.permit).seen_version) == ("cleanup", 2)
    assert gate.look(opened.permit.pk, opened.permit.token).answer == "open"
    assert Evidence.objects.filter(stream=run.pk, kind="permit.opened", permit_id=opened.permit.pk).exists()


def test_while_its_run_is_active_it_is_a_step_like_any_other(world: World) -> None:
    run, step = draining("ACTIVE")
    opened = gate.dispatch(ask(world, run, step))
    assert isinstance(opened, Opened)
    assert opened.permit.guard == "ordinary"


def test_its_effect_is_declared_permitted_and_settled_under_that_guard(world: World) -> None:
    run = world.run()
    declared = gate.register(world.ask(run, step_key="tidy", op_class=WORK), cleanup=True)
    assert isinstance(declared, Step)
    held = world.opened(run)  # keeps the run from being quiet
    stop = world.stop(run).stop
    told = world.ask(fresh(run), step_key="tidy", op_class=WORK)
    opened = intents.dispatch(told, intention("folder:tmp", kind="files.write", op_class=WORK))
    assert isinstance(opened, Opened)
    assert (opened.permit.guard, opened.subject.settlement) == ("cleanup", "DISPATCHED")
    assert opened.permit.pk not in in_flight(stop), "the list was frozen before it began"
    assert drain_run(run.pk) == "CANCELLING", "a cleanup in progress is waited for"
    world.report(opened)
    world.finish(fresh(declared))
    assert fresh(declared).status == "SUCCEEDED"
    assert not fresh(declared).reported_after_stop, "it is no late report"
    world.report(held)
    assert fresh(run).status == "CANCELLED"
    assert Effect.objects.get(key="folder:tmp").settlement == "CONFIRMED"


def test_rules_may_name_more_classes(world: World) -> None:
    run, step = draining(op_class="external_write")
    refused = intents.dispatch(ask(world, run, step), intention("lock:7"))
    assert isinstance(refused, Refusal)
    admin = access.person(a_person("erin", run.workspace, "admin"))
    more = rules.Rules(cleanup_classes=("read", "external_write"))
    rules.change_rules(actor=admin, workspace_id=run.workspace_id, version=0, rules=more)
    assert isinstance(intents.dispatch(ask(world, run, step), intention("lock:7")), Opened)


# --- What it refuses --------------------------------------------------------------------------------------

# The situation, its reason; copied from the contract: PAUSING or CANCELLING, at the current version, declared
# beforehand, class read or workspace_change.
REFUSED: dict[str, tuple[Callable[[], tuple[Run, Step, dict[str, Any]]], str]] = {
    "not declared as cleanup": (lambda: (*draining(cleanup=False), {}), "stopped"),
    "a class that is not named": (lambda: (*draining(op_class="external_job"), {}), "stopped"),
    "an operation of another class": (lambda: (*draining(), {"op_class": "model_turn"}), "stopped"),
    "the version before the stop": (lambda: (*draining(), {"seen_version": 1}), "stale_version"),
    "a version that is not there yet": (lambda: (*draining(), {"seen_version": 3}), "stale_version"),
    "another's claim": (lambda: (*draining(step_status="CLAIMED"), {"claim_token": "forged"}), "lost_claim"),
    "a claim whose lease ran out": (
        lambda: (*draining(step_status="CLAIMED", lease_until=in_seconds(-1)), {}),
        "lost_claim",
    ),
    "a step that ended": (lambda: (*draining(step_status="SUCCEEDED"), {}), "lost_claim"),
    "a step that failed": (lambda: (*draining(step_status="FAILED"), {}), "stopped"),
    "a step that was withheld": (lambda: (*draining(step_status="WITHHELD"), {}), "stopped"),
    **{
        status: (lambda status=status: (*draining(status), {}), "stopped")  # type: ignore[misc]
        for status in (
            *("PAUSED", "CANCELLING_TIMEOUT", "UNKNOWN"),
            *("CANCELLED", "COMPLETED", "FAILED", "ABANDONED"),
        )
    },
}


@pytest.mark.invariant("I1")
@pytest.mark.parametrize("situation", REFUSED)
def test_the_cleanup_guard_refuses(world: World, situation: str) -> None:
    make, reason = REFUSED[situation]
    run, step, shown = make()
    refusal = gate.dispatch(ask(world, run, step, **shown))
    assert isinstance(refusal, Refusal)
    assert refusal.reason == reason
    assert not Permit.objects.exists()
    assert (fresh(step).status, fresh(run).status) == (step.status, run.status)
    assert kinds_of(run) == ["dispatch.refused"]


def test_a_step_is_not_declared_as_cleanup_once_the_stop_is_there(world: World) -> None:
    run, _ = draining()
    late = world.ask(run, actor=a_token(run.workspace), step_key="new", op_class=WORK)
    for answer in (gate.register(late, cleanup=True), gate.claim(late, cleanup=True), gate.dispatch(late)):
        assert isinstance(answer, Refusal)
        assert answer.reason == "stopped"


def test_a_class_that_may_not_be_cleanup_is_refused_when_it_is_declared(world: World) -> None:
    agent = agent_of(world.workspace)
    run = agent.run()
    body = {"key": "tidy", "class": "external_write", "cleanup": True}
    said = agent.post(f"/runs/{run['id']}/steps", body)
    assert (said.status, said.data["errors"][0]["field"]) == (422, "cleanup")
    assert agent.post(f"/runs/{run['id']}/steps", {**body, "class": "read"}).data["cleanup"] is True


@pytest.mark.parametrize("then", ["abandon", "CANCELLING_TIMEOUT", "another version"])
def test_the_second_look_finds_its_gate_shut(world: World, then: str) -> None:
    run, step = draining()
    opened = gate.dispatch(ask(world, run, step))
    assert isinstance(opened, Opened)
    if then == "abandon":
        Run.abandon(Run.objects.filter(pk=run.pk))
    elif then == "another version":
        Run.objects.filter(pk=run.pk).advance({"cancel_version": 3})
    else:
        Run.time_out(Run.objects.filter(pk=run.pk))
    assert gate.look(opened.permit.pk, opened.permit.token).answer == "shut"


# --- What a stop, quiet and the end do to it --------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("pause", ["PENDING", "CLAIMED", "PENDING", "PENDING"]),
        ("cancel", ["PENDING", "CLAIMED", "WITHHELD", "WITHHELD"]),
        ("abandon", ["WITHHELD", "WITHHELD", "WITHHELD", "WITHHELD"]),
    ],
)
def test_a_stop_leaves_declared_cleanup_and_withholds_the_rest(
    world: World, mode: str, expected: list[str]
) -> None:
    run = world.run()
    rows = [
        a_step(run, "PENDING", cleanup=True, op_class="read"),
        a_step(run, "CLAIMED", cleanup=True, op_class=WORK),
        a_step(run, "CLAIMED"),
        a_step(run, "PENDING", cleanup=True, op_class="external_write"),  # by rules of another day
    ]
    world.stop(run, mode=mode)
    assert [fresh(step).status for step in rows] == expected


def test_a_queued_cleanup_keeps_no_run_from_quiet_and_is_withheld_then(world: World) -> None:
    run = world.run()
    step = a_step(run, "PENDING", cleanup=True, op_class="read")
    world.stop(run)
    assert fresh(step).status == "PENDING"
    assert drain_run(run.pk) == "CANCELLED"
    assert fresh(step).status == "WITHHELD"
    assert kinds_of(run)[-4:] == ["step.withheld", "stop.quiet", "run.cancelled", "stop.closed"]


def test_a_claimed_cleanup_is_waited_for_until_it_ends_or_its_lease_does(world: World) -> None:
    run = world.run()
    step = gate.claim(world.ask(run, step_key="tidy", op_class="read"), cleanup=True)
    assert isinstance(step, Step)
    world.stop(run)
    assert drain_run(run.pk) == "CANCELLING"
    lapse(step)
    assert drain_run(run.pk) == "CANCELLED"
    assert fresh(step).status == "WITHHELD"


@pytest.mark.parametrize("end", ["complete", "fail"])
def test_a_run_that_ends_by_its_runtimes_word_withholds_it(world: World, end: str) -> None:
    run = world.run()
    step = a_step(run, "PENDING", cleanup=True, op_class="read")
    if end == "complete":
        ends.complete(actor=world.agent, run_id=run.pk, seen=1)
    else:
        ends.fail(actor=world.agent, run_id=run.pk)
    assert fresh(step).status == "WITHHELD"


@pytest.mark.invariant("I6")
@pytest.mark.parametrize(("before", "again"), [("not_applied", False), ("not_sent", True)])
def test_a_drain_tries_no_effect_of_a_cleanup_step_again_that_may_have_been_sent(
    world: World, before: str, again: bool
) -> None:
    run = world.run()
    step = gate.claim(world.ask(run, step_key="tidy", op_class=WORK), cleanup=True)
    assert isinstance(step, Step)
    world.stop(run)
    told = world.ask_of(step, op_class=WORK, seen_version=2)
    folder = intention("folder:tmp", kind="files.write", op_class=WORK)
    first = intents.dispatch(told, folder)
    assert isinstance(first, Opened)
    world.report(first, before)
    second = intents.dispatch(told, folder)
    assert isinstance(second, Opened) == again
    if isinstance(second, Refusal):
        assert (second.reason, fresh(step).status) == ("stopped", "DISPATCHED")
        other = intention("folder:cache", kind="files.write", op_class=WORK)
        assert isinstance(intents.dispatch(told, other), Opened), "what was not tried yet may be tidied up"
