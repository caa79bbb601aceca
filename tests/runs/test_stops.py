"""request_stop: what a press records, what it joins, and what it lists and withholds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from effects import ends
from effects.models import Effect
from runs import gate, stops
from runs.access import Actor, NotAllowed, NotFound, person
from runs.evidence import AT_ONCE
from runs.guard import Opened, Refusal
from runs.models import Evidence, InFlight, Permit, Press, Run, Step, StopRequest
from runs.stops import Wish
from tests.worlds import (
    World,
    a_permit,
    a_person,
    a_run,
    a_step,
    a_token,
    an_effect,
    fresh,
    in_flight,
    kinds_of,
)

pytestmark = pytest.mark.django_db


def counted() -> tuple[int, int]:
    return StopRequest.objects.count(), Press.objects.count()


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


# --- Joining ----------------------------------------------------------------------------------------------


@pytest.mark.invariant("I4")
def test_a_second_press_joins_the_stop_and_is_kept(world: World) -> None:
    run = world.run()
    first = world.stop(run)
    second = world.stop(run, by=world.bob, note="me too")
    assert (second.stop.pk, second.answer, second.repeated) == (first.stop.pk, "joined", False)
    assert (fresh(run).status, fresh(run).cancel_version) == ("CANCELLING", 2)
    assert counted() == (1, 2)
    assert kinds_of(run)[-1] == "stop.joined"
    assert [press.actor for press in first.stop.presses.order_by("pk")] == [world.alice.id, world.bob.id]


@pytest.mark.invariant("I4")
@pytest.mark.parametrize("status", ["CANCELLING", "CANCELLING_TIMEOUT", "UNKNOWN"])
def test_a_press_on_a_run_that_is_stopping_moves_nothing(world: World, status: str) -> None:
    run = world.run()
    stop = world.stop(run).stop
    Run.objects.filter(pk=run.pk).advance({"status": status})
    answer = world.stop(run, by=world.bob)
    assert (answer.answer, answer.stop.pk) == ("joined", stop.pk)
    assert (fresh(run).status, fresh(run).cancel_version) == (status, 2)


@pytest.mark.invariant("I4")
def test_the_same_key_gets_the_same_answer_and_no_second_press(world: World) -> None:
    run = world.run()
    first = world.stop(run, key="k-1", note="first body")
    lines = kinds_of(run)
    again = world.stop(run, key="k-1", note="another body", deadline_s=5)
    assert (again.stop.pk, again.press.pk, again.answer, again.repeated) == (
        *(first.stop.pk, first.press.pk, "recorded"),
        True,
    )
    assert (counted(), kinds_of(run), fresh(run).cancel_version) == ((1, 1), lines, 2)
    assert fresh(first.stop).note == "first body"


@pytest.mark.invariant("I4")
def test_the_same_key_of_somebody_else_is_a_press_of_its_own(world: World) -> None:
    run = world.run()
    world.stop(run, key="k-1")
    other = world.stop(run, by=world.bob, key="k-1")
    assert (other.answer, other.repeated, counted()) == ("joined", False, (1, 2))


def test_the_same_key_on_another_run_stops_that_run(world: World) -> None:
    one, two = world.run("one"), world.run("two")
    world.stop(one, key="k-1")
    assert world.stop(two, key="k-1").answer == "recorded"
    assert fresh(two).status == "CANCELLING"


# --- A run that has finished ------------------------------------------------------------------------------


@pytest.mark.invariant("I4")
@pytest.mark.parametrize("status", ["COMPLETED", "FAILED", "ABANDONED", "CANCELLED"])
def test_a_stop_of_a_finished_run_is_recorded_and_raises_nothing(world: World, status: str) -> None:
    run = a_run(status, workspace=world.workspace, cancel_version=4)
    first, second = world.stop(run), world.stop(run, by=world.bob)
    stop = fresh(first.stop)
    assert (first.answer, second.answer, second.stop.pk) == ("finished", "finished", stop.pk)
    assert (stop.finished_before, stop.version_before, stop.version_after) == (True, 4, 4)
    assert (stop.closed_because, stop.closed_at is not None) == ("the run had finished before", True)
    assert (fresh(run).status, fresh(run).cancel_version) == (status, 4)
    assert kinds_of(run) == ["stop.after_end", "stop.after_end"]


def test_a_press_after_a_stop_that_ended_its_run_is_kept_with_that_stop(world: World) -> None:
    run = world.run()
    stop = world.stop(run).stop
    Run.objects.filter(pk=run.pk).advance({"status": "CANCELLED"})
    late = world.stop(run, by=world.bob)
    assert (late.answer, late.stop.pk, counted()) == ("finished", stop.pk, (1, 2))


# --- A stop and the end of the run, one after the other ---------------------------------------------------


def test_a_completion_after_a_stop_is_refused_and_recorded_once(world: World) -> None:
    run = world.run()
    stop = world.stop(run).stop
    for _ in range(3):
        refusal = ends.complete(actor=world.agent, run_id=run.pk, seen=1)
        assert isinstance(refusal, Refusal)
        assert (refusal.reason, refusal.stop_id) == ("stopped", stop.pk)
    assert fresh(run).status == "CANCELLING"
    assert kinds_of(run).count("completion.refused") == 1


def test_a_stop_after_the_completion_is_answered_finished(world: World) -> None:
    run = world.run()
    assert isinstance(ends.complete(actor=world.agent, run_id=run.pk, seen=1), Run)
    assert world.stop(run).answer == "finished"
    assert (fresh(run).status, fresh(run).cancel_version) == ("COMPLETED", 1)


def test_a_run_is_not_completed_while_something_is_open(world: World) -> None:
    run = world.run()
    opened = world.opened(run)
    with pytest.raises(ends.NotQuiet):
        ends.complete(actor=world.agent, run_id=run.pk, seen=1)
    world.report(opened, "applied")
    assert isinstance(ends.complete(actor=world.agent, run_id=run.pk, seen=1), Run)


def test_a_failed_run_leaves_what_was_in_progress_unknown(world: World) -> None:
    run = world.run()
    opened, waiting = world.opened(run), an_effect(a_step(run, "PENDING"), "DECLARED")
    assert isinstance(ends.fail(actor=world.agent, run_id=run.pk), Run)
    effect = Effect.objects.get(key="charge:7")
    assert (effect.settlement, fresh(waiting).settlement) == ("UNKNOWN", "NOT_STARTED")
    assert gate.look(opened.permit.pk, opened.permit.token).answer == "shut"


# --- A stop that comes before its run ---------------------------------------------------------------------


def test_a_stop_waits_for_a_run_that_is_not_registered_yet(world: World) -> None:
    answer = world.stop_key("nightly-42")
    stop = fresh(answer.stop)
    assert (answer.answer, stop.run_id, stop.run_key, stop.gate_at) == ("waiting", None, "nightly-42", None)
    assert stop.ends_at is not None
    assert timedelta(days=7) - (stop.ends_at - stop.recorded_at) < timedelta(seconds=1)
    again = world.stop_key("nightly-42", by=world.bob)
    assert (again.stop.pk, again.answer, counted()) == (stop.pk, "waiting", (1, 2))
    assert Evidence.objects.filter(stream=world.workspace.pk, kind__startswith="stop.").count() == 2


@pytest.mark.invariant("I4")
def test_a_waiting_stop_answers_its_own_key_again_before_and_after_it_met_its_run(world: World) -> None:
    first = world.stop_key("nightly-42", key="k-1")
    again = world.stop_key("nightly-42", key="k-1")
    world.run("nightly-42")
    after = world.stop_key("nightly-42", key="k-1")
    assert [answer.press.pk for answer in (again, after)] == [first.press.pk] * 2
    assert [answer.repeated for answer in (again, after)] == [True, True]
    assert counted() == (1, 1)


@pytest.mark.invariant("I17")
def test_a_run_whose_stop_was_waiting_is_born_stopping_and_starts_nothing(world: World) -> None:
    stop = world.stop_key("nightly-42", deadline_s=30).stop
    run = world.run("nightly-42")
    stop = fresh(stop)
    assert (run.status, stop.run_id, stop.version_after) == ("CANCELLING", run.pk, 1)
    assert stop.gate_at is not None
    assert stop.deadline_at == stop.gate_at + timedelta(seconds=30)
    assert kinds_of(run) == ["run.admitted", "stop.bound"]
    asked = [gate.claim(world.ask(run, step_key="pay")), world.refused(run)]
    assert [answer.reason for answer in asked if isinstance(answer, Refusal)] == ["stopped", "stopped"]
    assert (Step.objects.count(), Permit.objects.count()) == (0, 0)


def test_a_waiting_stop_binds_one_run_and_only_of_its_key_and_workspace(world: World) -> None:
    world.stop_key("nightly-42")
    assert world.run("nightly-43").status == "ACTIVE"
    assert a_run(workspace=world.elsewhere, key="nightly-42").status == "ACTIVE"
    assert world.run("nightly-42").status == "CANCELLING"
    assert StopRequest.objects.filter(run__isnull=True).count() == 0


def test_a_stop_by_key_of_a_registered_run_stops_it_at_once(world: World) -> None:
    run = world.run("nightly-42")
    answer = world.stop_key("nightly-42")
    assert (answer.answer, answer.stop.run_id, fresh(run).status) == ("recorded", run.pk, "CANCELLING")


def past_its_end(stop: StopRequest) -> None:
    StopRequest.objects.filter(pk=stop.pk).update(ends_at=stop.recorded_at)


def test_a_waiting_stop_ends_by_its_own_date_also_when_nobody_swept(world: World) -> None:
    stop = world.stop_key("nightly-42").stop
    past_its_end(stop)
    assert world.run("nightly-42").status == "ACTIVE"
    assert fresh(stop).run_id is None


def test_a_press_after_that_date_is_a_new_waiting_stop(world: World) -> None:
    old = world.stop_key("nightly-42", key="k-1").stop
    past_its_end(old)
    new = world.stop_key("nightly-42", key="k-2").stop
    assert new.pk != old.pk
    assert (fresh(old).closed_because, fresh(new).closed_at) == ("its run never came", None)
    assert world.run("nightly-42").status == "CANCELLING"


def test_the_sweeper_closes_waiting_stops_past_their_date_and_no_other(world: World) -> None:
    old, young = world.stop_key("a").stop, world.stop_key("b").stop
    past_its_end(old)
    assert stops.waiting_over() == [old.pk]
    for _ in range(2):
        stops.end_waiting(old.pk)
        stops.end_waiting(young.pk)
    assert (fresh(old).closed_at is not None, fresh(young).closed_at) == (True, None)
    closed = Evidence.objects.get(stream=world.workspace.pk, kind="stop.closed")
    assert (closed.stop_id, closed.actor) == (old.pk, "system")


# --- Who may ----------------------------------------------------------------------------------------------


def test_operators_reviewers_owners_and_tokens_with_the_scope_may_stop(world: World) -> None:
    owner = a_person("dora", world.workspace)
    owned = a_run(workspace=world.workspace, owner=owner)
    run = a_run(workspace=world.workspace)
    bound = a_token(world.workspace, "stop:write", run=run)
    answers = [world.stop(owned, by=person(owner))]
    answers += [
        world.stop(run, by=actor) for actor in (world.bob, bound, a_token(world.workspace, "stop:write"))
    ]
    assert [answer.answer for answer in answers] == ["recorded", "recorded", "joined", "joined"]


@pytest.mark.invariant("I28")
def test_a_viewer_is_told_so_and_an_outsider_learns_nothing(world: World) -> None:
    run = world.run()
    reader = a_token(world.workspace, "runs:read", "runs:write")
    bound = a_token(world.workspace, "stop:write", run=a_run(workspace=world.workspace))
    for actor in (world.dana, reader):
        with pytest.raises(NotAllowed):
            world.stop(run, by=actor)
        with pytest.raises(NotAllowed):
            world.stop_key("absent", by=actor)
    for actor in (world.mallory, world.foreign_agent):
        with pytest.raises(NotFound):
            world.stop(run, by=actor)
        with pytest.raises(NotFound):
            world.stop_key("absent", by=actor)
    with pytest.raises(NotFound):
        world.stop(run, by=bound)
    assert (fresh(run).status, counted()) == ("ACTIVE", (0, 0))


def test_a_token_of_one_run_stops_no_run_that_is_still_to_come(world: World) -> None:
    bound = a_token(world.workspace, "stop:write", run=a_run(workspace=world.workspace))
    with pytest.raises((NotAllowed, NotFound)):
        world.stop_key("nightly-42", by=bound)
    assert counted() == (0, 0)


def test_a_stop_of_a_run_that_does_not_exist_is_not_found(world: World) -> None:
    with pytest.raises(NotFound):
        stops.request_stop(actor=world.alice, wish=Wish(), run_id="run_absent")


# --- Durable ----------------------------------------------------------------------------------------------


@pytest.mark.invariant("I8")
@pytest.mark.django_db(transaction=True)
def test_no_verb_runs_inside_another_transaction() -> None:
    world = World()
    run = world.run()
    calls: list[Any] = [lambda: world.stop(run), lambda: world.opened(run), lambda: world.claimed(run)]
    for call in calls:
        with pytest.raises(RuntimeError, match="durable"), transaction.atomic():
            call()
    assert (fresh(run).status, counted(), Permit.objects.count()) == ("ACTIVE", (0, 0), 0)
    assert isinstance(world.opened(run), Opened)
