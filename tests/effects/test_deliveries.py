"""A run's own messages: queued, held or withheld by its stop, handed over through its gate."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import DatabaseError, transaction

from effects import deliveries, ends, handover
from effects.close import outcome_of
from effects.deliveries import BadTarget, DeliveryKeyReused, Message, NoRetry, Queued
from effects.drain import drain_run
from effects.models import Delivery
from effects.resume import NotResumed, Resumed, resume
from runs import gate, gates
from runs.access import NotFound
from runs.guard import Known, Opened, Refusal
from runs.models import Evidence, InFlight, Permit, Run, Step
from runs.stops import Wish
from tests.worlds import World, a_delivery, a_run, fresh, in_flight, kinds_of, lapse

pytestmark = pytest.mark.django_db


class Scene:
    """A run of Finance with one queued message that its agent hands over itself."""

    def __init__(self) -> None:
        self.world = World()
        self.run = self.world.run()
        self.delivery = self.queued()

    def queued(self, key: str = "tell:7", **fields: Any) -> Delivery:
        message = Message(key, **{"channel": "outside", "target": "the chat", "body": b"done", **fields})
        answer = deliveries.queue(self.world.ask(self.run), message)
        assert isinstance(answer, Queued)
        return answer.delivery

    def ask(self, delivery: Delivery | None = None, seen: int | None = None) -> Opened | Known | Refusal:
        chosen = delivery or self.delivery
        return deliveries.hand_over(
            actor=self.world.agent,
            delivery_id=chosen.pk,
            worker="w-1",
            seen=chosen.queued_version if seen is None else seen,
        )

    def opened(self, delivery: Delivery | None = None) -> Opened:
        answer = self.ask(delivery)
        assert isinstance(answer, Opened)
        return answer

    def told(self, outcome: str, delivery: Delivery | None = None) -> Opened:
        opened = self.opened(delivery)
        self.world.report(opened, outcome)
        return opened

    def refused(self, delivery: Delivery | None = None) -> Refusal:
        answer = self.ask(delivery)
        assert isinstance(answer, Refusal)
        return answer

    def complete(self) -> None:
        done = ends.complete(actor=self.world.agent, run_id=self.run.pk, seen=1)
        assert isinstance(done, Run)

    @property
    def state(self) -> str:
        return str(fresh(self.delivery).state)


# --- queue ------------------------------------------------------------------------------------------------


def test_a_message_is_queued_once_and_the_same_key_with_another_text_is_refused() -> None:
    scene = Scene()
    again = deliveries.queue(
        scene.world.ask(scene.run), Message("tell:7", "outside", "the chat", body=b"done")
    )
    assert isinstance(again, Queued)
    assert (again.created, again.delivery.pk) == (False, scene.delivery.pk)
    with pytest.raises(DeliveryKeyReused):
        scene.queued(body=b"something else")
    assert kinds_of(scene.run).count("delivery.queued") == 1


def test_no_message_is_queued_after_a_stop_and_the_refusal_is_recorded() -> None:
    scene = Scene()
    scene.world.stop(scene.run)
    answer = deliveries.queue(scene.world.ask(scene.run), Message("late", "outside", "the chat"))
    assert isinstance(answer, Refusal)
    assert (answer.reason, answer.boundary) == ("stopped", "deliver")
    assert not Delivery.objects.filter(key="late").exists()


@pytest.mark.parametrize(
    ("channel", "target"),
    [
        ("webhook", "http://example.org/hook"),
        ("webhook", "https://user:pass@example.org/"),
        ("webhook", "ftp://example.org/"),
        ("email", "two@example.org, three@example.org"),
        ("email", "dana@example.org\nBcc: all@example.org"),
    ],
)
def test_a_target_that_we_could_not_reach_is_refused_when_it_is_queued(
    channel: str, target: str, settings: Any
) -> None:
    settings.EMAIL_CONFIGURED = True
    with pytest.raises(BadTarget):
        deliveries.check_target(Message("k", channel, target))


# --- hand over --------------------------------------------------------------------------------------------

# outcome of the report → (the delivery, the step of this attempt, the permit)
REPORTS = {
    "applied": ("HANDED_OVER", "SUCCEEDED", "REPORTED"),
    "partial": ("HANDED_OVER", "SUCCEEDED", "REPORTED"),
    "not_applied": ("NOT_HANDED_OVER", "FAILED", "REPORTED"),
    "unknown": ("UNKNOWN", "UNKNOWN", "REPORTED"),
    "not_sent": ("QUEUED", "WITHHELD", "NOT_SENT"),
}


@pytest.mark.parametrize("outcome", REPORTS)
def test_a_report_moves_delivery_step_and_permit_as_the_table_says(outcome: str) -> None:
    scene = Scene()
    opened = scene.told(outcome)
    permit = fresh(opened.permit)
    assert (scene.state, fresh(permit.step).status, permit.state) == REPORTS[outcome]
    assert (permit.boundary, permit.guard, permit.effect_key) == ("deliver", "ordinary", "tell:7")
    assert f"delivery.{REPORTS[outcome][0].lower()}" in kinds_of(scene.run)


def test_a_message_in_flight_and_one_handed_over_are_never_sent_twice() -> None:
    scene = Scene()
    opened = scene.opened()
    waits = scene.ask()
    scene.world.report(opened, "applied")
    skips = scene.ask()
    assert isinstance(waits, Known)
    assert isinstance(skips, Known)
    assert (waits.answer, skips.answer) == ("must_wait", "settled")
    assert Permit.objects.count() == 1


def test_what_was_not_handed_over_is_queued_again_through_the_gate_and_sent_under_another_permit() -> None:
    scene = Scene()
    scene.told("not_applied")
    tried = scene.ask()
    assert isinstance(tried, Known)
    assert tried.answer == "not_handed_over"
    again = deliveries.retry(actor=scene.world.agent, delivery_id=scene.delivery.pk)
    assert isinstance(again, Delivery)
    assert again.state == "QUEUED"
    scene.told("applied")
    assert (scene.state, fresh(scene.delivery).attempt) == ("HANDED_OVER", 2)
    assert Step.objects.filter(run=scene.run).count() == 2
    with pytest.raises(NoRetry):
        deliveries.retry(actor=scene.world.agent, delivery_id=scene.delivery.pk)


def test_a_lost_lease_makes_it_unknown_until_its_holder_speaks() -> None:
    scene = Scene()
    opened = scene.opened()
    lapse(opened.permit, opened.permit.step)
    drain_run(scene.run.pk)
    assert (scene.state, fresh(opened.permit.step).status) == ("UNKNOWN", "UNKNOWN")
    with pytest.raises(NoRetry):
        deliveries.retry(actor=scene.world.agent, delivery_id=scene.delivery.pk)
    scene.world.report(opened, "applied")
    assert (scene.state, fresh(scene.delivery).late) == ("HANDED_OVER", True)
    assert fresh(opened.permit.step).status == "SUCCEEDED"


# --- the guard `deliver` ----------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["complete", "fail"])
def test_a_queued_message_outlives_the_end_that_its_runtime_reports(end: str) -> None:
    scene = Scene()
    if end == "complete":
        scene.complete()
    else:
        ends.fail(actor=scene.world.agent, run_id=scene.run.pk)
    opened = scene.opened()
    assert gate.look(opened.permit.pk, opened.permit.token).answer == "open"
    assert fresh(opened.permit).guard == "deliver"
    reported = scene.world.report(opened, "applied")
    assert (scene.state, reported.late) == ("HANDED_OVER", False)


def test_a_stop_of_a_finished_run_shuts_the_gate_of_its_messages_and_lists_what_was_handed_over() -> None:
    scene = Scene()
    over, flying = scene.queued("over"), scene.queued("flying")
    scene.told("applied", over)
    scene.complete()
    opened = scene.opened(flying)
    answer = scene.world.stop(scene.run)
    assert (answer.answer, fresh(scene.run).cancel_version) == ("finished", 1)
    assert (scene.state, fresh(over).state, fresh(flying).state) == ("WITHHELD", "HANDED_OVER", "DISPATCHED")
    assert gate.look(opened.permit.pk, opened.permit.token).answer == "shut"
    assert in_flight(answer.stop) == {opened.permit.pk}
    assert scene.refused().reason == "stopped"
    listed = Evidence.objects.get(stream=scene.run.pk, kind="delivery.listed")
    assert listed.stop_id == answer.stop.pk
    scene.world.report(opened, "not_sent")  # the second look kept it; the stop has it
    assert fresh(flying).state == "WITHHELD"


def test_a_stop_of_a_run_that_was_paused_resumed_and_completed_shuts_the_gate_all_the_same() -> None:
    scene = Scene()
    scene.world.stop(scene.run, mode="pause")
    drain_run(scene.run.pk)
    assert isinstance(resume(actor=scene.world.alice, run_id=scene.run.pk, reason="go on"), Resumed)
    done = ends.complete(actor=scene.world.agent, run_id=scene.run.pk, seen=3)
    assert isinstance(done, Run)
    answer = scene.world.stop(scene.run)
    assert (answer.answer, scene.state) == ("finished", "WITHHELD")
    assert scene.refused(fresh(scene.delivery)).reason == "stopped"


def test_a_message_that_failed_before_the_stop_of_its_finished_run_is_not_tried_again() -> None:
    scene = Scene()
    scene.told("not_applied")
    scene.complete()
    scene.world.stop(scene.run)
    assert scene.state == "WITHHELD"
    again = deliveries.retry(actor=scene.world.agent, delivery_id=scene.delivery.pk)
    assert isinstance(again, Refusal)
    assert again.reason == "stopped"


def test_a_message_of_a_finished_run_is_not_handed_over_behind_a_shut_gate() -> None:
    scene = Scene()
    scene.complete()
    type(scene.world.workspace).objects.filter(pk=scene.world.workspace.pk).update(gate="SHUT", epoch=2)
    assert scene.refused().reason == "stopped"


# --- stops and resumes ------------------------------------------------------------------------------------

# state before → after a pause, a cancel, an abandon; and after a stop of the finished run
STOPS = {
    "QUEUED": ("HELD", "WITHHELD", "WITHHELD", "WITHHELD"),
    "DISPATCHED": ("DISPATCHED", "DISPATCHED", "UNKNOWN", "DISPATCHED"),
    "HELD": ("HELD", "WITHHELD", "WITHHELD", "WITHHELD"),
    "WITHHELD": ("WITHHELD", "WITHHELD", "WITHHELD", "WITHHELD"),
    "HANDED_OVER": ("HANDED_OVER", "HANDED_OVER", "HANDED_OVER", "HANDED_OVER"),
    "NOT_HANDED_OVER": ("NOT_HANDED_OVER", "WITHHELD", "WITHHELD", "WITHHELD"),
    "UNKNOWN": ("UNKNOWN", "UNKNOWN", "UNKNOWN", "UNKNOWN"),
    "ACCEPTED_UNKNOWN": ("ACCEPTED_UNKNOWN", "ACCEPTED_UNKNOWN", "ACCEPTED_UNKNOWN", "ACCEPTED_UNKNOWN"),
}


@pytest.mark.parametrize(("column", "mode"), list(enumerate(["pause", "cancel", "abandon", "finished"])))
def test_a_stop_holds_or_withholds_in_its_own_transaction_as_the_table_says(column: int, mode: str) -> None:
    world = World()
    run = world.run()
    rows = {state: a_delivery(run, state) for state in STOPS}
    if mode == "finished":
        ends.complete(actor=world.agent, run_id=run.pk, seen=1)
    answer = world.stop(run, mode="cancel" if mode == "finished" else mode)
    assert {s: fresh(row).state for s, row in rows.items()} == {s: STOPS[s][column] for s in STOPS}
    moved = Evidence.objects.filter(stream=run.pk, kind__in=["delivery.held", "delivery.withheld"])
    held_back = [
        s for s, after in STOPS.items() if after[column] in ("HELD", "WITHHELD") and s != after[column]
    ]
    assert {line.effect_key for line in moved} == {rows[s].key for s in held_back}
    assert {line.stop_id for line in moved} == {answer.stop.pk}


def test_a_pause_that_becomes_a_cancel_withholds_what_it_held() -> None:
    scene = Scene()
    scene.world.stop(scene.run, mode="pause")
    assert scene.state == "HELD"
    scene.world.stop(scene.run, mode="cancel")
    assert scene.state == "WITHHELD"


def test_a_stop_holds_more_messages_than_one_statement_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("effects.delivery_moves.AT_ONCE", 3)
    world = World()
    run = world.run()
    rows = [a_delivery(run) for _ in range(8)]
    world.stop(run)
    assert {fresh(row).state for row in rows} == {"WITHHELD"}
    assert kinds_of(run).count("delivery.withheld") == 8


def test_what_a_pause_held_is_queued_again_by_the_resume_and_by_nothing_else() -> None:
    scene = Scene()
    scene.world.stop(scene.run, mode="pause")
    drain_run(scene.run.pk)
    assert scene.refused().reason == "stopped"
    done = resume(actor=scene.world.alice, run_id=scene.run.pk, reason="checked")
    assert isinstance(done, Resumed)
    assert [(item.key, item.answer) for item in done.items] == [("tell:7", "safe to run")]
    delivery = fresh(scene.delivery)
    assert (delivery.state, delivery.queued_version) == ("QUEUED", done.run.cancel_version)
    scene.told("applied", delivery)
    assert scene.state == "HANDED_OVER"


def test_a_message_in_flight_holds_up_the_resume_and_the_quiet_of_its_run() -> None:
    scene = Scene()
    opened = scene.opened()
    scene.world.stop(scene.run, mode="pause")
    assert drain_run(scene.run.pk) == "PAUSING"
    lapse(opened.permit, opened.permit.step)
    assert drain_run(scene.run.pk) == "PAUSED"
    refused = resume(actor=scene.world.alice, run_id=scene.run.pk, reason="checked")
    assert isinstance(refused, NotResumed)
    assert refused.reason == "must wait"
    scene.world.report(opened, "not_sent")
    assert scene.state == "NOT_HANDED_OVER"
    assert isinstance(resume(actor=scene.world.alice, run_id=scene.run.pk, reason="checked"), Resumed)


def test_an_unknown_message_keeps_a_cancelled_run_awaiting_verification_until_it_is_known() -> None:
    scene = Scene()
    opened = scene.told("unknown")
    scene.world.stop(scene.run)
    assert drain_run(scene.run.pk) == "UNKNOWN"
    assert outcome_of(fresh(scene.run)) == "awaiting verification"
    scene.world.report(opened, "applied")
    assert fresh(scene.run).status == "CANCELLED"
    assert outcome_of(fresh(scene.run)) == "partially completed"


def test_a_message_taken_back_while_its_run_stops_is_withheld_not_queued() -> None:
    scene = Scene()
    opened = scene.opened()
    scene.world.stop(scene.run)
    scene.world.report(opened, "not_sent")
    assert scene.state == "WITHHELD"
    assert drain_run(scene.run.pk) == "CANCELLED"
    assert outcome_of(fresh(scene.run)) == "stopped after safe settlement"


def test_a_run_that_fails_makes_what_is_in_flight_unknown_at_once() -> None:
    scene = Scene()
    scene.opened()
    ends.fail(actor=scene.world.agent, run_id=scene.run.pk)
    assert scene.state == "UNKNOWN"


# --- who may ----------------------------------------------------------------------------------------------


def test_a_stranger_can_neither_queue_nor_hand_over_nor_learn_that_it_exists() -> None:
    scene = Scene()
    mallory = scene.world.foreign_agent
    with pytest.raises(NotFound):
        deliveries.hand_over(actor=mallory, delivery_id=scene.delivery.pk, worker="w", seen=1)
    with pytest.raises(NotFound):
        deliveries.retry(actor=mallory, delivery_id=scene.delivery.pk)
    with pytest.raises(NotFound):
        deliveries.queue(scene.world.ask(scene.run, actor=mallory), Message("x", "outside", "y"))
    assert (scene.state, InFlight.objects.count()) == ("QUEUED", 0)


def test_the_record_of_a_message_stays_as_it_was_queued() -> None:
    row = a_delivery(a_run())
    with pytest.raises(DatabaseError), transaction.atomic():
        Delivery.objects.filter(pk=row.pk).update(target="elsewhere")
    with pytest.raises(DatabaseError), transaction.atomic():
        Delivery.objects.filter(pk=row.pk).delete()
    assert fresh(row).target == "the chat"


def test_a_sender_that_comes_late_with_the_step_of_an_attempt_that_was_taken_back_is_told_of_no_people() -> (
    None
):
    scene = Scene()
    scene.told("not_sent")
    assert scene.state == "QUEUED"
    late = scene.world.ask(
        scene.run, step_key=f"delivery:{scene.delivery.pk}:1", op_class="delivery", queued=True
    )
    answer = gate.deliver(late, deliveries._Intent(scene.delivery.pk, scene.world.agent.id))
    assert isinstance(answer, Refusal)
    assert (answer.reason, scene.state) == ("lost_claim", "QUEUED")


@pytest.mark.parametrize(("end", "state"), [("ended", "WITHHELD"), ("active", "HELD")])
def test_a_message_that_no_gate_will_let_through_any_more_is_withheld_and_not_asked_for_again(
    end: str, state: str
) -> None:
    scene = Scene()
    told = scene.queued("tell:8", channel="webhook", target="https://example.org/hook")
    if end == "ended":
        scene.complete()
    stop = gates.shut(actor=scene.world.alice, workspace_id=scene.world.workspace.pk, wish=Wish()).stop
    assert handover.deliver(told.pk) == ("refused" if end == "ended" else "nothing to do")
    assert fresh(told).state == state, "a run that was held may be resumed, one that ended may not"
    withheld = Evidence.objects.filter(stream=scene.run.pk, kind="delivery.withheld", effect_key="tell:8")
    assert [line.stop_id for line in withheld] == ([stop.pk] if end == "ended" else [])
    assert handover.deliver(told.pk) == "nothing to do"
