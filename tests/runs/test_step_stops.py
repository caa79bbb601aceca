"""A stop of one step: nothing more of it may be sent, and its run goes on at the version it has."""

from __future__ import annotations

from typing import Any

import pytest

from effects import deliveries, executor, intents, queue, resume, retries, settle
from effects.drain import drain_run
from effects.models import Delivery, Effect
from runs import gate, step_stops, stops
from runs.access import Actor, NotAllowed, NotFound
from runs.guard import Known, Opened, Refusal
from runs.models import Evidence, Press, Run, Step, StopRequest
from runs.stops import StopAnswer, Wish
from tests.worlds import (
    World,
    a_delivery,
    a_kind,
    a_permit,
    a_review,
    a_step,
    an_effect,
    fresh,
    in_flight,
    in_seconds,
    intention,
    kinds_of,
    lapse,
)

pytestmark = pytest.mark.django_db


def stop(world: World, step: Step, by: Actor | None = None, **wish: Any) -> StopAnswer:
    return step_stops.request_step_stop(actor=by or world.alice, wish=Wish(**wish), step_id=step.pk)


def lines_of(answer: StopAnswer) -> list[str]:
    rows = Evidence.objects.filter(stop_id=answer.stop.pk).order_by("seq")
    return list(rows.values_list("kind", flat=True))


# --- What it moves ----------------------------------------------------------------------------------------


# Written by hand from the contract: (status, an effect happened) -> (status after, answer, closed at once).
CELLS: dict[tuple[str, bool], tuple[str, str, bool]] = {
    ("PENDING", False): ("WITHHELD", "recorded", True),
    ("PENDING", True): ("PARTIAL", "recorded", True),
    ("CLAIMED", False): ("WITHHELD", "recorded", True),
    ("CLAIMED", True): ("PARTIAL", "recorded", True),
    ("WAITING_APPROVAL", False): ("WITHHELD", "recorded", True),
    ("RETRY_WAIT", False): ("WITHHELD", "recorded", True),
    ("DISPATCHED", False): ("DISPATCHED", "recorded", False),
    ("UNKNOWN", False): ("UNKNOWN", "recorded", False),
    ("SUCCEEDED", True): ("SUCCEEDED", "finished", True),
    ("PARTIAL", True): ("PARTIAL", "finished", True),
    ("FAILED", False): ("FAILED", "finished", True),
    ("WITHHELD", False): ("WITHHELD", "finished", True),
}


@pytest.mark.parametrize(("cell", "after"), CELLS.items())
def test_each_status_of_a_step_goes_where_the_contract_says_and_its_run_goes_on(
    world: World, cell: tuple[str, bool], after: tuple[str, str, bool]
) -> None:
    run = world.run()
    other = a_step(run)
    step = a_step(run, cell[0], happened=cell[1])
    if cell[0] == "DISPATCHED":
        a_permit(step)
    answer = stop(world, step)
    found = fresh(answer.stop)
    assert (fresh(step).status, answer.answer, found.closed_at is not None) == after
    assert fresh(step).stopped_at == found.gate_at == found.fenced_at
    assert (fresh(run).status, fresh(run).cancel_version) == ("ACTIVE", 1)
    assert fresh(other).status == "PENDING"
    assert stops.stop_of(run) is None
    assert (found.scope, found.step_id, found.run_id, found.mode) == ("step", step.pk, run.pk, "cancel")


def test_what_is_in_flight_is_listed_and_the_second_look_is_shut(world: World) -> None:
    run = world.run()
    mine, other = world.opened(run, "charge:1"), world.opened(run, "charge:2")
    answer = stop(world, mine.step)
    assert in_flight(answer.stop) == {mine.permit.pk}
    looks = [gate.look(one.permit.pk, one.permit.token) for one in (mine, other)]
    assert [(look.answer, look.run_goes_on, look.scope, look.run_status) for look in looks] == [
        ("shut", True, "step", "ACTIVE"),
        ("open", False, "", "ACTIVE"),
    ]
    world.report(mine, "not_sent")
    assert (fresh(mine.step).status, fresh(mine.subject).settlement) == ("WITHHELD", "DECLARED")
    assert step_stops.to_close() == [answer.stop.pk]
    assert step_stops.close_if_over(answer.stop.pk)
    assert not step_stops.close_if_over(answer.stop.pk)
    assert fresh(answer.stop).closed_because == "its step is over"
    assert lines_of(answer) == ["step.stopped", "stop.closed"]


def test_a_dispatched_step_under_which_nothing_was_sent_is_withheld_at_once(world: World) -> None:
    run = world.run()
    step = a_step(run, "DISPATCHED")
    a_permit(step, "NOT_SENT")
    answer = stop(world, step)
    assert fresh(step).status == "WITHHELD"
    assert lines_of(answer) == ["step.stopped", "step.withheld", "stop.closed"]


def test_a_result_that_comes_after_it_settles_the_step_and_says_that_it_came_late(world: World) -> None:
    run = world.run()
    opened = world.opened(run)
    answer = stop(world, opened.step)
    world.report(opened, "applied")
    assert (fresh(opened.step).status, fresh(opened.step).reported_after_stop) == ("SUCCEEDED", True)
    assert fresh(opened.subject).settlement == "CONFIRMED"
    assert step_stops.to_close() == [answer.stop.pk]


# --- Who asks afterwards ----------------------------------------------------------------------------------


def refused(answer: object) -> tuple[str, str | None, str, bool]:
    assert isinstance(answer, Refusal), answer
    return answer.reason, answer.stop_id, answer.scope, answer.run_goes_on


def test_every_boundary_refuses_its_holder_by_name_of_the_stop_and_lets_other_steps_begin(
    world: World,
) -> None:
    run = world.run()
    claimed, sent = world.claimed(run), world.claimed(run, "sent")
    assert isinstance(gate.dispatch(world.ask_of(sent)), Opened)
    failed = a_step(run, "FAILED")
    an_effect(failed, "NOT_APPLIED", ground="webhook")
    answers = [stop(world, step) for step in (claimed, sent, failed)]
    told = [
        gate.claim(world.ask(run, step_id=claimed.pk)),
        gate.claim(world.ask(run, step_key="pay")),
        gate.dispatch(world.ask_of(claimed)),
        gate.release(world.ask_of(claimed)),
        gate.dispatch(world.ask_of(sent)),
        intents.declare(world.ask_of(sent), intention("charge:8")),
        retries.schedule(actor=world.agent, step=failed, worker="w-1", seen=1, delay_s=0),
        retries.decide(actor=world.alice, step=failed, seen=1, reason="once more"),
    ]
    mine = [0, 0, 0, 0, 1, 1, 2, 2]
    assert [refused(one) for one in told] == [("stopped", answers[n].stop.pk, "step", True) for n in mine]
    assert "Its run goes on" in told[0].what_to_do  # type: ignore[union-attr]
    assert isinstance(world.opened(run, "charge:9"), Opened)


def test_without_its_stop_the_same_calls_are_let_through(world: World) -> None:
    """The control of the one above."""
    run = world.run()
    claimed = world.claimed(run)
    failed = a_step(run, "FAILED")
    an_effect(failed, "NOT_APPLIED", ground="webhook")
    assert isinstance(gate.dispatch(world.ask_of(claimed)), Opened)
    again = retries.schedule(actor=world.agent, step=failed, worker="w-1", seen=1, delay_s=0)
    assert isinstance(again, Step)


def test_a_timer_that_fires_later_leaves_its_refusal_once_and_no_second(world: World) -> None:
    run = world.run()
    step = a_step(run, "RETRY_WAIT", due_at=in_seconds(-1), claim_version=1)
    answer = stop(world, step)
    assert queue.retries_due() == [step.pk]
    assert refused(queue.fall_due(step.pk))[:2] == ("stopped", answer.stop.pk)
    assert queue.retries_due() == []


def test_our_executor_sends_nothing_of_a_stopped_step(world: World) -> None:
    run = world.run()
    kind = a_kind(world.workspace, provider="http", send={"url": "http://127.0.0.1:9/"})
    step = a_step(run)
    effect = an_effect(step, kind=kind, queued_at=in_seconds(-60))
    stop(world, step)
    assert (queue.waiting(), fresh(effect).queued_at) == ([], None)
    assert executor.execute(effect.pk) == "refused"
    assert not effect.run.permits.exists()


def test_people_need_not_decide_about_it_any_more(world: World) -> None:
    run = world.run()
    waiting = a_step(run, "WAITING_APPROVAL")
    review = a_review(an_effect(waiting))
    kept = a_review(an_effect(a_step(run, "WAITING_APPROVAL")))
    answer = stop(world, waiting)
    closed = fresh(review)
    assert (closed.closed_as, closed.stop_id, closed.reason) == ("cancelled", answer.stop.pk, "stop #1")
    assert fresh(kept).closed_at is None
    assert lines_of(answer) == ["step.stopped", "step.withheld", "review.cancelled", "stop.closed"]


def test_a_message_of_a_stopped_attempt_is_not_queued_again(world: World) -> None:
    run = world.run()
    delivery = a_delivery(run)
    handed = deliveries.hand_over(actor=world.agent, delivery_id=delivery.pk, worker="w-1")
    assert isinstance(handed, Opened)
    other = a_delivery(run)
    stop(world, handed.step)
    world.report(handed, "not_sent")
    assert (fresh(delivery).state, fresh(other).state) == ("WITHHELD", "QUEUED")
    tried = a_delivery(run)
    again = deliveries.hand_over(actor=world.agent, delivery_id=tried.pk, worker="w-1")
    assert isinstance(again, Opened)
    stop(world, again.step)
    world.report(again, "not_applied")
    assert Delivery.objects.get(pk=tried.pk).state == "NOT_HANDED_OVER"
    assert refused(deliveries.retry(actor=world.agent, delivery_id=tried.pk))[0] == "stopped"


def test_a_lost_holder_of_a_stopped_step_gives_it_back_to_nobody(world: World) -> None:
    run = world.run()
    step = a_step(run, "DISPATCHED")
    permit = a_permit(step, op_class="read")
    answer = stop(world, step)
    world.stop(run, mode="pause")
    lapse(step, permit)
    drain_run(run.pk)
    assert (fresh(run).status, fresh(step).status) == ("PAUSED", "FAILED")
    assert step_stops.to_close() == [answer.stop.pk]


def test_a_resume_lists_its_effect_as_one_to_skip_and_keeps_it_stopped(world: World) -> None:
    run = world.run()
    step = a_step(run)
    effect = an_effect(step)
    safe = an_effect(a_step(run))
    stop(world, step)
    world.stop(run, mode="pause")
    drain_run(run.pk)
    items = {item.id: item.answer for item in resume.plan(fresh(run))}
    assert items == {effect.pk: resume.STEP, safe.pk: resume.SAFE}
    resumed = resume.resume(actor=world.alice, run_id=run.pk, reason="go on")
    assert isinstance(resumed, resume.Resumed)
    refusal = gate.claim(world.ask(resumed.run, step_id=step.pk))
    assert refused(refusal)[0] == "stopped"


# --- Presses ----------------------------------------------------------------------------------------------


def test_another_mode_is_recorded_as_cancel_and_says_so(world: World) -> None:
    step = a_step(world.run())
    answer = stop(world, step, mode="pause", requested_mode="pause")
    assert (answer.stop.mode, answer.stop.requested_mode) == ("cancel", "pause")
    assert answer.press.ignored == [step_stops.CANCELS]
    assert stop(world, a_step(step.run)).press.ignored == []


def test_presses_join_the_one_stop_of_a_step_and_a_repeated_key_is_one_press(world: World) -> None:
    opened = world.opened(world.run())
    first = stop(world, opened.step, key="k-1")
    again = stop(world, opened.step, key="k-1")
    other = stop(world, opened.step, by=world.bob)
    world.report(opened, "not_sent")
    late = stop(world, opened.step, by=world.carol)
    assert [one.stop.pk for one in (again, other, late)] == [first.stop.pk] * 3
    assert (again.repeated, other.answer, late.answer) == (True, "joined", "finished")
    assert Press.objects.filter(stop=first.stop).count() == 3
    assert kinds_of(opened.step.run).count("stop.joined") == 2


def test_it_neither_replaces_nor_is_joined_by_a_stop_of_its_run(world: World) -> None:
    run = world.run()
    opened = world.opened(run)
    mine = stop(world, opened.step, key="k-1").stop
    whole = world.stop(run, key="k-1").stop
    assert (whole.scope, whole.pk != mine.pk, whole.number) == ("run", True, 2)
    assert (fresh(run).status, fresh(run).cancel_version) == ("CANCELLING", 2)
    assert stops.stop_of(run) == whole
    assert fresh(mine).superseded_by_id is None
    assert stop(world, opened.step).stop == mine


def test_it_reaches_no_child_of_its_run(world: World) -> None:
    run = world.run()
    child = world.run("child", parent=run.pk)
    stop(world, a_step(run))
    from runs import children

    assert children.to_pass_on() == []
    later = world.run("later", parent=run.pk)
    assert {fresh(child).status, fresh(later).status} == {"ACTIVE"}


def test_who_may_not_stop_the_run_may_not_stop_its_step(world: World) -> None:
    step = a_step(world.run())
    with pytest.raises(NotAllowed):
        stop(world, step, by=world.dana)
    with pytest.raises(NotFound):
        stop(world, step, by=world.mallory)
    with pytest.raises(NotFound):
        step_stops.request_step_stop(actor=world.alice, wish=Wish(), step_id="ste_0")
    assert (StopRequest.objects.count(), fresh(step).stopped_at) == (0, None)


def test_what_is_known_of_a_key_is_still_told(world: World) -> None:
    run = world.run()
    opened = world.opened(run)
    world.report(opened)
    stop(world, opened.step)
    known = intents.dispatch(world.ask(run, step_key="charge:7"), intention("charge:7"))
    assert isinstance(known, Known)
    assert (known.answer, known.subject) == ("settled", Effect.objects.get(pk=opened.subject.pk))


def test_the_run_may_complete_when_its_stopped_step_holds_nothing(world: World) -> None:
    from effects import ends

    run = world.run()
    opened = world.opened(run)
    stop(world, opened.step)
    with pytest.raises(ends.NotQuiet):
        ends.complete(actor=world.agent, run_id=run.pk, seen=1)
    world.report(opened, "not_applied")
    done = ends.complete(actor=world.agent, run_id=run.pk, seen=1)
    assert isinstance(done, Run)
    assert (done.status, fresh(opened.step).status) == ("COMPLETED", "FAILED")
    with pytest.raises(settle.LostClaim):
        settle.finish_step(actor=world.agent, step_id=opened.step.pk, token="other", result="succeeded")
