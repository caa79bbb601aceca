"""request_stop: what the first press records, lists as in flight, and withholds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from effects import ends
from runs import gate
from runs.access import Actor
from runs.evidence import AT_ONCE
from runs.guard import Refusal
from runs.models import Evidence, InFlight, Permit, Press, Run, Step
from tests.worlds import (
    World,
    a_permit,
    a_run,
    a_step,
    fresh,
    in_flight,
    kinds_of,
)

pytestmark = pytest.mark.django_db


# --- The first press --------------------------------------------------------------------------------------


@pytest.mark.invariant("I3")
def test_a_press_ends_the_version_and_sets_both_moments_in_one_commit(world: World) -> None:
    run = world.run()
    answer = world.stop(run, reason="wrong data", note="stop the postings", deadline_s=30)
    stop = fresh(answer.stop)
    assert (answer.answer, answer.repeated) == ("recorded", False)
    assert (fresh(run).status, fresh(run).cancel_version) == ("CANCELLING", 2)
    assert (stop.version_before, stop.version_after, stop.mode) == (1, 2, "cancel")
    assert stop.gate_at is not None
    assert stop.recorded_at == stop.gate_at == stop.fenced_at
    assert stop.deadline_at == stop.gate_at + timedelta(seconds=30)
    assert (stop.reason, stop.note, stop.actor, stop.via) == (
        "wrong data",
        "stop the postings",
        world.alice.id,
        "page",
    )
    assert [stop.quiet_at, stop.timed_out_at, stop.closed_at, stop.ends_at] == [None] * 4


def test_the_evidence_tells_of_the_acknowledgement_each_withheld_step_and_the_fence(world: World) -> None:
    run = world.run()
    step = world.claimed(run)
    before = len(kinds_of(run))
    stop = world.stop(run).stop
    lines = Evidence.objects.filter(stream=run.pk, seq__gt=before).order_by("seq")
    assert [line.kind for line in lines] == ["stop.acknowledged", "step.withheld", "stop.fenced"]
    assert {line.stop_id for line in lines} == {stop.pk}
    assert {line.current_version for line in lines} == {2}
    assert [line.step_id for line in lines] == ["", step.pk, ""]


def test_stops_are_numbered_within_their_workspace(world: World) -> None:
    numbers = [world.stop(world.run(key)).stop.number for key in "abc"]
    other = a_run(workspace=world.elsewhere)
    assert numbers == [1, 2, 3]
    assert world.stop(other, by=world.mallory).stop.number == 1


def test_a_press_keeps_who_when_from_where_and_what_could_not_be_read(world: World) -> None:
    run = world.run()
    alice = Actor(world.alice.id, user=world.alice.user, via="page", address="192.0.2.7")
    press = world.stop(run, by=alice, ignored=["mode: 'explode'"], requested_mode="explode", key="k-1").press
    press = Press.objects.get(pk=press.pk)
    assert (press.actor, press.via, press.address, press.key) == (alice.id, "page", "192.0.2.7", "k-1")
    assert (press.ignored, press.requested_mode, press.mode) == (["mode: 'explode'"], "explode", "cancel")


# --- What was in flight -----------------------------------------------------------------------------------


@pytest.mark.invariant("I2")
def test_the_list_holds_exactly_the_open_and_the_lost_permits_of_the_run(world: World) -> None:
    run = a_run(workspace=world.workspace)
    step = a_step(run, "DISPATCHED")
    permits = {state: a_permit(step, state) for state in ("OPEN", "REPORTED", "NOT_SENT", "LOST")}
    a_permit()  # another run's
    stop = world.stop(run).stop
    assert in_flight(stop) == {permits["OPEN"].pk, permits["LOST"].pk}
    then = dict(InFlight.objects.values_list("permit__state", "state_then"))
    assert then == {"OPEN": "OPEN", "LOST": "LOST"}


@pytest.mark.invariant("I2")
def test_a_permit_of_an_older_version_is_listed_too(world: World) -> None:
    run = a_run(workspace=world.workspace, cancel_version=3)
    old = a_permit(a_step(run, "DISPATCHED"), seen_version=1)
    assert in_flight(world.stop(run).stop) == {old.pk}


@pytest.mark.invariant("I2")
def test_the_list_stays_as_it_was_when_the_permits_end(world: World) -> None:
    run = world.run()
    opened = [world.opened(run, key) for key in ("a", "b", "c")]
    stop = world.stop(run).stop
    for one, outcome in zip(opened, ("applied", "unknown", "not_sent"), strict=True):
        world.report(one, outcome)
    assert in_flight(stop) == {one.permit.pk for one in opened}
    assert set(InFlight.objects.values_list("state_then", flat=True)) == {"OPEN"}
    assert Permit.objects.filter(state="OPEN").count() == 0


# --- What is withheld -------------------------------------------------------------------------------------

# status before the stop: after it, without and with an effect of the step that took place
WITHHELD = {
    "PENDING": ("WITHHELD", "PARTIAL"),
    "CLAIMED": ("WITHHELD", "PARTIAL"),
    "WAITING_APPROVAL": ("WITHHELD", "PARTIAL"),
    "RETRY_WAIT": ("WITHHELD", "PARTIAL"),
    "SUCCEEDED": ("SUCCEEDED", "SUCCEEDED"),
    "PARTIAL": ("PARTIAL", "PARTIAL"),
    "FAILED": ("FAILED", "FAILED"),
    "UNKNOWN": ("UNKNOWN", "UNKNOWN"),
    "WITHHELD": ("WITHHELD", "WITHHELD"),
}
# the permits of a DISPATCHED step: the same
DISPATCHED = {
    ("NOT_SENT",): ("WITHHELD", "PARTIAL"),
    ("NOT_SENT", "NOT_SENT"): ("WITHHELD", "PARTIAL"),
    ("OPEN",): ("DISPATCHED", "DISPATCHED"),
    ("LOST",): ("DISPATCHED", "DISPATCHED"),
    ("REPORTED",): ("DISPATCHED", "DISPATCHED"),
    ("NOT_SENT", "OPEN"): ("DISPATCHED", "DISPATCHED"),
    ("NOT_SENT", "LOST"): ("DISPATCHED", "DISPATCHED"),
}


@pytest.mark.parametrize("happened", [False, True])
@pytest.mark.parametrize("ending", ["stop", "complete", "fail"])
def test_every_step_that_was_not_dispatched_is_withheld_or_partial(
    world: World, ending: str, happened: bool
) -> None:
    run = a_run(workspace=world.workspace)
    steps = {status: a_step(run, status, happened=happened) for status in WITHHELD}
    elsewhere = a_step(status="PENDING")
    if ending == "stop":
        world.stop(run)
    elif ending == "fail":
        ends.fail(actor=world.agent, run_id=run.pk)
    else:
        steps["CLAIMED"] = a_step(run, "PENDING", happened=happened)  # nothing may be claimed then
        Step.objects.filter(run=run, status="CLAIMED").advance({"status": "WAITING_APPROVAL"})
        assert isinstance(ends.complete(actor=world.agent, run_id=run.pk, seen=1), Run)
    found = {status: fresh(step).status for status, step in steps.items()}
    assert found == {status: after[happened] for status, after in WITHHELD.items()}
    assert fresh(elsewhere).status == "PENDING"
    withheld = sum(status != after for status, after in found.items())
    assert sum(kind in ("step.withheld", "step.partial") for kind in kinds_of(run)) == withheld + (
        ending == "complete"
    )


@pytest.mark.parametrize("happened", [False, True])
@pytest.mark.parametrize("states", DISPATCHED)
def test_a_dispatched_step_is_withheld_only_if_nothing_was_sent_under_it(
    world: World, states: tuple[str, ...], happened: bool
) -> None:
    step = a_step(a_run(workspace=world.workspace), "DISPATCHED", happened=happened)
    for state in states:
        a_permit(step, state)
    world.stop(step.run)
    assert fresh(step).status == DISPATCHED[states][happened]


def test_a_withheld_step_gives_up_its_claim(world: World) -> None:
    run = world.run()
    step = world.claimed(run)
    world.stop(run)
    refusal = gate.dispatch(world.ask_of(step))
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, fresh(step).status, fresh(step).claim_token) == ("stopped", "WITHHELD", "")


def test_a_run_with_a_long_queue_is_stopped_a_slice_at_a_time(world: World) -> None:
    """PostgreSQL ends a transaction that is silent for seconds; SQLite bounds its statements."""
    run = world.run()
    more = 2 * AT_ONCE + 7
    Step.objects.bulk_create(
        Step(run=run, key=f"s-{n:04}", name="s", op_class="read", happened=n == 3) for n in range(more)
    )
    sizes: list[int] = []

    def measure(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        sizes.append(len(params or ()))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(measure):
        world.stop(run)
    assert not Step.objects.filter(run=run).exclude(status="WITHHELD").exclude(happened=True).exists()
    lines = Evidence.objects.filter(stream=run.pk, kind__in=["step.withheld", "step.partial"])
    assert (lines.count(), len(set(lines.values_list("step_id", flat=True)))) == (more, more)
    assert kinds_of(run).count("step.partial") == 1
    assert kinds_of(run)[-1] == "stop.fenced"
    assert max(sizes) <= AT_ONCE * len(Evidence._meta.fields)
