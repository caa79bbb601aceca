"""From the stop to its end: leases, deadlines, quiet, UNKNOWN; and a drain that resumes from rows alone."""

from __future__ import annotations

from typing import Any

import pytest

from effects import ends, intents, settle
from effects.drain import drain_run
from effects.models import Effect
from effects.settle import Unsettled
from runs import drain, gate
from runs.access import NotAllowed, NotFound
from runs.guard import Opened
from runs.models import Evidence, InFlight, Permit, Run, Step, StopRequest, Worker
from tests.worlds import (
    World,
    a_permit,
    a_run,
    a_step,
    an_effect,
    fresh,
    in_seconds,
    intention,
    kinds_of,
    lapse,
)

pytestmark = pytest.mark.django_db


def stopped(world: World, *keys: str) -> tuple[Run, StopRequest, list[Opened]]:
    """A run stopped while effects with these keys were in flight."""
    run = world.run()
    opened = [world.opened(run, key) for key in keys]
    return run, world.stop(run).stop, opened


def pass_deadline(stop: StopRequest) -> None:
    StopRequest.objects.filter(pk=stop.pk).update(deadline_at=in_seconds(-1))


def lose(opened: Opened) -> None:
    lapse(opened.permit, opened.step)


# --- Quiet ------------------------------------------------------------------------------------------------


@pytest.mark.invariant("I12")
def test_a_run_with_nothing_in_flight_is_cancelled_by_the_first_pass(world: World) -> None:
    run, stop, _ = stopped(world)
    assert fresh(run).status == "CANCELLING"
    assert drain_run(run.pk) == "CANCELLED"
    stop, run = fresh(stop), fresh(run)
    assert (stop.quiet_at is not None, stop.closed_because) == (True, "its run is final")
    assert (run.ended_at is not None, run.cancel_version) == (True, 2)
    assert kinds_of(run)[-3:] == ["stop.quiet", "run.cancelled", "stop.closed"]


@pytest.mark.invariant("I12")
def test_a_run_waits_for_each_permit_and_is_cancelled_by_the_last_report(world: World) -> None:
    run, _, (first, second) = stopped(world, "a", "b")
    assert drain_run(run.pk) == "CANCELLING"
    world.report(first, "applied")
    assert fresh(run).status == "CANCELLING"
    world.report(second, "not_applied")
    assert fresh(run).status == "CANCELLED"


@pytest.mark.invariant("I12")
def test_a_step_that_its_worker_still_holds_keeps_the_run_from_quiet(world: World) -> None:
    run = world.run()
    step = world.claimed(run)
    opened = intents.dispatch(world.ask_of(step), intention())
    assert isinstance(opened, Opened)
    world.stop(run)
    world.report(opened, "applied")
    assert drain_run(run.pk) == "CANCELLING"
    world.finish(step)
    assert (fresh(step).status, fresh(step).reported_after_stop) == ("SUCCEEDED", True)
    assert fresh(run).status == "CANCELLED"


@pytest.mark.invariant("I9")
def test_a_quiet_run_with_an_unknown_effect_rests_in_unknown_until_evidence_comes(world: World) -> None:
    run, stop, (opened,) = stopped(world, "a")
    world.report(opened, "unknown")
    assert (fresh(run).status, fresh(stop).closed_at) == ("UNKNOWN", None)
    assert drain_run(run.pk) == "UNKNOWN"
    world.report(opened, "applied")
    assert (fresh(run).status, fresh(stop).closed_at is not None) == ("CANCELLED", True)


@pytest.mark.invariant("I10")
def test_declared_intents_of_a_stopped_run_never_start(world: World) -> None:
    run = world.run()
    effect = intents.declare(world.ask(run, step_key="pay"), intention())
    assert isinstance(effect, Effect)
    world.stop(run)
    assert fresh(effect).settlement == "DECLARED"  # it ends with the run, not with the press
    drain_run(run.pk)
    assert (fresh(effect).settlement, fresh(run).status) == ("NOT_STARTED", "CANCELLED")
    assert "effect.not_started" in kinds_of(run)


@pytest.mark.invariant("I10")
@pytest.mark.parametrize("ending", ["cancel", "complete", "fail"])
def test_an_intent_under_which_a_lost_holder_might_still_send_is_never_called_not_started(
    world: World, ending: str
) -> None:
    """Lost at the first attempt, known not to be applied, not sent at the second."""
    run = world.run()
    first = world.opened(run)
    lose(first)
    drain_run(run.pk)
    assert (fresh(first.permit).state, Effect.objects.get().settlement) == ("LOST", "UNKNOWN")
    Effect.deny(Effect.objects.get(), "looked up")
    Step.fail(Step.objects.get())
    second = world.opened(run)
    world.report(second, "not_sent")
    if ending == "cancel":
        world.stop(run)
        drain_run(run.pk)
    elif ending == "complete":
        ends.complete(actor=world.agent, run_id=run.pk, seen=1)
    else:
        ends.fail(actor=world.agent, run_id=run.pk)
    assert fresh(run).status in ("CANCELLED", "COMPLETED", "FAILED")
    assert Effect.objects.get().settlement == "NOT_APPLIED"


# --- The deadline -----------------------------------------------------------------------------------------


@pytest.mark.invariant("I30")
def test_a_run_that_is_not_quiet_at_its_deadline_says_so_once(world: World) -> None:
    run, stop, (opened,) = stopped(world, "a")
    assert drain_run(run.pk) == "CANCELLING"
    pass_deadline(stop)
    assert drain_run(run.pk) == "CANCELLING_TIMEOUT"
    first = fresh(stop).timed_out_at
    assert first is not None
    assert drain_run(run.pk) == "CANCELLING_TIMEOUT"
    assert (fresh(stop).timed_out_at, fresh(stop).closed_at) == (first, None)
    assert kinds_of(run).count("stop.timed_out") == 1
    assert fresh(opened.permit).state == "OPEN"


@pytest.mark.invariant("I30")
@pytest.mark.parametrize(("outcome", "status"), [("applied", "CANCELLED"), ("unknown", "UNKNOWN")])
def test_after_its_deadline_a_run_comes_to_rest_when_it_is_quiet(
    world: World, outcome: str, status: str
) -> None:
    run, stop, (opened,) = stopped(world, "a")
    pass_deadline(stop)
    drain_run(run.pk)
    assert fresh(run).status == "CANCELLING_TIMEOUT"
    world.report(opened, outcome)
    assert fresh(run).status == status


@pytest.mark.invariant("I30")
def test_a_quiet_run_is_cancelled_also_when_the_drain_came_after_the_deadline(world: World) -> None:
    run, stop, _ = stopped(world)
    pass_deadline(stop)
    assert drain_run(run.pk) == "CANCELLED"
    assert fresh(stop).timed_out_at is None


# --- Lost leases ------------------------------------------------------------------------------------------


@pytest.mark.invariant("I9")
@pytest.mark.parametrize("stopping", [False, True])
def test_a_lost_lease_leaves_permit_effect_and_step_unknown_and_never_confirmed(
    world: World, stopping: bool
) -> None:
    run = world.run()
    opened = world.opened(run)
    if stopping:
        world.stop(run)
    lose(opened)
    status = drain_run(run.pk)
    effect = Effect.objects.get()
    assert (fresh(opened.permit).state, fresh(opened.step).status) == ("LOST", "UNKNOWN")
    assert (effect.settlement, effect.why_unknown) == ("UNKNOWN", "worker w-1 was lost after the dispatch")
    assert status == ("UNKNOWN" if stopping else "ACTIVE")
    for kind in ("permit.lost", "effect.unknown", "step.unknown"):
        assert kind in kinds_of(run)


# the class of a dispatched step whose lease ran out, and whether an effect of it had happened
LAPSED = [
    ("read", [], "FAILED"),
    ("model_turn", [], "FAILED"),
    ("external_write", ["CONFIRMED"], "PARTIAL"),
    ("external_write", ["CONFIRMED", "UNKNOWN"], "UNKNOWN"),
    ("external_write", ["NOT_APPLIED"], "FAILED"),
    ("external_write", ["DECLARED"], "FAILED"),
]


@pytest.mark.parametrize(("op_class", "settlements", "status"), LAPSED)
def test_a_dispatched_step_whose_lease_ran_out_is_what_its_effects_say(
    world: World, op_class: str, settlements: list[str], status: str
) -> None:
    happened = "CONFIRMED" in settlements
    step = a_step(a_run(workspace=world.workspace), "DISPATCHED", op_class=op_class, happened=happened)
    for settlement in settlements:
        an_effect(step, settlement)
    a_permit(step, "REPORTED")
    lapse(step)
    drain_run(step.run_id)
    assert fresh(step).status == status


@pytest.mark.parametrize(("status", "after"), [("ACTIVE", "PENDING"), ("CANCELLING", "WITHHELD")])
def test_a_claim_that_ran_out_is_given_back_or_withheld(world: World, status: str, after: str) -> None:
    step = a_step(a_run(status, workspace=world.workspace), "CLAIMED")
    lapse(step)
    drain_run(step.run_id)
    assert (fresh(step).status, fresh(step).claim_token) == (after, "")


def test_a_step_with_an_open_permit_is_left_to_the_permits_own_lease(world: World) -> None:
    step = a_step(a_run(workspace=world.workspace), "DISPATCHED")
    a_permit(step)
    lapse(step)
    drain_run(step.run_id)
    assert fresh(step).status == "DISPATCHED"


@pytest.mark.invariant("I30")
def test_no_timer_ever_ends_a_run_that_nobody_stopped(world: World) -> None:
    run = world.run()
    lose(world.opened(run))
    lapse(world.claimed(run))
    for _ in range(3):
        assert drain_run(run.pk) == "ACTIVE"
    assert fresh(run).ended_at is None


@pytest.mark.parametrize("status", ["COMPLETED", "FAILED", "ABANDONED", "CANCELLED"])
def test_a_drain_of_a_run_that_has_ended_moves_no_status(world: World, status: str) -> None:
    run = a_run(status, workspace=world.workspace)
    step = a_step(run, "DISPATCHED")
    permit = a_permit(step)
    an_effect(step, "DISPATCHED", permit=permit)
    lapse(permit, step)
    assert drain_run(run.pk) == status
    assert (fresh(permit).state, Effect.objects.get().settlement) == ("LOST", "UNKNOWN")


# --- Resuming from rows -----------------------------------------------------------------------------------


def test_the_drain_is_due_for_runs_that_stop_and_for_leases_that_ran_out(world: World) -> None:
    a_run(workspace=world.workspace)
    a_run("CANCELLED", workspace=world.workspace)
    stopping = [
        a_run(status, workspace=world.workspace) for status in ("CANCELLING", "CANCELLING_TIMEOUT", "PAUSING")
    ]
    claimed = a_step(a_run(workspace=world.workspace), "CLAIMED")
    permit = a_permit(a_step(a_run("FAILED", workspace=world.workspace), "DISPATCHED"))
    fresh_claim = a_step(a_run(workspace=world.workspace), "CLAIMED")
    lapse(claimed, permit)
    assert set(drain.runs_due()) == {*(run.pk for run in stopping), claimed.run_id, permit.run_id}
    assert fresh_claim.run_id not in drain.runs_due()


@pytest.mark.invariant("I30")
def test_runs_that_only_wait_hold_up_no_other(world: World) -> None:
    """However many wait for their workers: each sweep takes a bounded number of runs."""
    waiting = [a_run(status, workspace=world.workspace) for status in ("CANCELLING", "CANCELLING_TIMEOUT")]
    for run in waiting:
        a_permit(a_step(run, "DISPATCHED"))
    busy = world.run("busy")
    for key in ("a", "b", "c"):
        world.opened(busy, key)
    lose_all = [a_step(busy, "CLAIMED") for _ in range(3)]
    late = world.run("late")
    world.opened(late)
    pass_deadline(world.stop(late).stop)
    assert drain.runs_due(1) == [late.pk]
    lapse(*lose_all)
    other = a_step(a_run(workspace=world.workspace), "CLAIMED")
    lapse(other)
    assert set(drain.runs_due(2)) == {late.pk, busy.pk, other.run_id}
    assert drain_run(late.pk) == "CANCELLING_TIMEOUT"
    assert late.pk not in drain.runs_due(2)


@pytest.mark.invariant("I30")
def test_many_leases_that_ran_out_are_lost_a_few_at_a_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One pass over thousands would keep a stop waiting, and be ended by PostgreSQL as silent."""
    monkeypatch.setattr(drain, "LEASES_A_PASS", 2)
    run, _, opened = stopped(world, "a", "b", "c", "d", "e")
    for one in opened:
        lose(one)
    statuses = []
    while run.pk in drain.runs_due():
        statuses.append(drain_run(run.pk))
        assert len(statuses) < 9
    assert (statuses[0], fresh(run).status) == ("CANCELLING", "UNKNOWN")
    assert set(Permit.objects.values_list("state", flat=True)) == {"LOST"}
    assert set(Effect.objects.values_list("settlement", flat=True)) == {"UNKNOWN"}
    assert set(Step.objects.values_list("status", flat=True)) == {"UNKNOWN"}


@pytest.mark.invariant("I30")
def test_a_second_controller_finds_nothing_left_to_do(world: World) -> None:
    run, stop, (first, second) = stopped(world, "a", "b")
    lose(first)
    world.report(second, "applied")
    assert drain_run(run.pk) == "UNKNOWN"
    rows: list[Any] = [Permit, Step, Effect, Evidence, InFlight, StopRequest]
    before = [list(model.objects.order_by("pk").values()) for model in rows]
    assert drain_run(run.pk) == "UNKNOWN"
    assert [list(model.objects.order_by("pk").values()) for model in rows] == before
    assert fresh(stop).closed_at is None


# --- Heartbeats and receipts ------------------------------------------------------------------------------


def test_a_heartbeat_renews_the_leases_of_the_tokens_it_names_and_of_no_others(world: World) -> None:
    run = world.run()
    mine, other = world.opened(run, "a"), world.opened(run, "b")
    before = fresh(other.permit).lease_until
    for opened in (mine, other):
        Permit.objects.filter(pk=opened.permit.pk).update(lease_until=before)
        Step.objects.filter(pk=opened.step.pk).update(lease_until=before)
    heard = world.heartbeat(run, mine.permit.token, "", "forged")
    assert heard.renewed == 1
    assert fresh(mine.permit).lease_until > before
    assert fresh(mine.step).lease_until > before  # type: ignore[operator]
    assert (fresh(other.permit).lease_until, fresh(other.step).lease_until) == (before, before)


@pytest.mark.parametrize("asked_s", [5, 300])
def test_a_heartbeat_renews_a_lease_for_as_long_as_it_was_asked_for(world: World, asked_s: float) -> None:
    """A worker that says "alive" every minute and asked for five must not be lost after half of one."""
    run = world.run()
    claimed, opened = world.claimed(run, lease_s=asked_s), world.opened(run, lease_s=asked_s)
    rows: list[Any] = [claimed, opened.step, opened.permit]
    lapse(*rows)
    world.heartbeat(run, claimed.claim_token, opened.permit.token)
    for row in rows:
        left = (fresh(row).lease_until - in_seconds(0)).total_seconds()
        assert asked_s - 3 < left <= asked_s


def test_a_heartbeat_brings_no_lost_permit_back(world: World) -> None:
    run = world.run()
    opened = world.opened(run)
    lose(opened)
    drain_run(run.pk)
    assert world.heartbeat(run, opened.permit.token).renewed == 0
    assert fresh(opened.permit).state == "LOST"


def test_a_heartbeat_tells_of_the_stop_and_keeps_the_highest_version_confirmed(world: World) -> None:
    run = world.run()
    assert world.heartbeat(run, seen=1).stop is None
    stop = world.stop(run).stop
    heard = world.heartbeat(run, seen=2)
    assert (heard.run.status, heard.run.cancel_version, heard.stop) == ("CANCELLING", 2, stop)
    world.heartbeat(run, seen=1)
    worker = Worker.objects.get(run=run)
    assert (worker.name, worker.confirmed_version) == ("w-1", 2)


@pytest.mark.parametrize("seen", [2, 9_000_000])
def test_nobody_confirms_a_version_before_it_is_given(world: World, seen: int) -> None:
    """Kept, it would say of the next stop that this worker knows of it."""
    run = world.run()
    world.heartbeat(run, seen=seen)
    world.stop(run)
    assert (Worker.objects.get().confirmed_version or 0) < fresh(run).cancel_version
    world.heartbeat(run, seen=2)
    assert Worker.objects.get().confirmed_version == 2


def test_a_heartbeat_of_somebody_elses_run_is_refused(world: World) -> None:
    run = world.run()
    for actor, error in (
        (world.foreign_agent, NotFound),
        (world.mallory, NotFound),
        (world.alice, NotAllowed),
    ):
        with pytest.raises(error):
            drain.heartbeat(actor=actor, run_id=run.pk, worker="w-1", seen=1, tokens=[])
    assert Worker.objects.filter(run=run).count() == 1  # the one that admitted the run


# --- Finishing a step -------------------------------------------------------------------------------------


def test_a_step_is_finished_by_its_own_token_after_its_permits_were_reported(world: World) -> None:
    step = world.claimed(world.run())
    with pytest.raises(settle.NothingDispatched):
        world.finish(step)
    opened = intents.dispatch(world.ask_of(step), intention())
    assert isinstance(opened, Opened)
    with pytest.raises(Unsettled):
        world.finish(step)
    world.report(opened, "applied")
    forged = fresh(step)
    forged.claim_token = "forged"
    with pytest.raises(settle.LostClaim):
        world.finish(forged)
    assert world.finish(step).status == "SUCCEEDED"
    assert world.finish(step, "failed").status == "SUCCEEDED"  # the first word stands


@pytest.mark.parametrize("result", ["succeeded", "partial", "failed", "unknown"])
def test_a_step_with_an_unknown_effect_is_unknown_whatever_its_worker_says(world: World, result: str) -> None:
    step = world.claimed(world.run())
    opened = intents.dispatch(world.ask_of(step), intention())
    assert isinstance(opened, Opened)
    world.report(opened, "unknown")
    assert world.finish(step, result).status == "UNKNOWN"


def test_a_result_never_completes_a_run(world: World) -> None:
    run = world.run()
    world.report(world.opened(run), "applied")
    assert (fresh(run).status, Step.objects.get().status) == ("ACTIVE", "SUCCEEDED")
    assert gate.look(Permit.objects.get().pk, Permit.objects.get().token).answer == "ended"
