"""Our sender of deliveries against a real receiver and a real mail server, behind the gate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from effects import deliveries, ends, handover, tasks
from effects.deliveries import Message, Queued
from effects.executor import worker_name
from effects.models import Delivery
from runs import wake
from runs.models import Permit, Run
from tests.effects.sending import at_work, before
from tests.post import Post
from tests.provider import Provider, refused_address
from tests.worlds import World, fresh, in_seconds

pytestmark = pytest.mark.django_db(transaction=True)
BODY = b'{"invoice": 7, "state": "paid"}'


@pytest.fixture
def receiver(tmp_path: Path, settings: Settings) -> Iterator[Provider]:
    with Provider(tmp_path / "ledger") as receiver:
        settings.ALLSTOP_OUTBOUND_ORIGINS = [receiver.url]
        yield receiver


@pytest.fixture
def post(settings: Settings) -> Iterator[Post]:
    with Post() as post:
        post.settle(settings)
        yield post


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def run(world: World) -> Run:
    return world.run()


def queued(world: World, run: Run, target: str, channel: str = "webhook", key: str = "tell:7") -> Delivery:
    message = Message(key, channel, target, "Invoice 7 is paid", BODY)
    answer = deliveries.queue(world.ask(run), message)
    assert isinstance(answer, Queued)
    return answer.delivery


def test_a_webhook_is_sent_once_with_its_bytes_and_its_key(
    receiver: Provider, world: World, run: Run
) -> None:
    delivery = queued(world, run, f"{receiver.url}/hooks")
    assert [handover.deliver(delivery.pk), handover.deliver(delivery.pk)] == ["applied", "nothing to do"]
    (sent,) = receiver.ledger.lines("request")
    assert (sent["key"], sent["text"], sent["path"]) == ("tell:7", BODY.decode(), "/hooks")
    assert fresh(delivery).state == "HANDED_OVER"
    assert Permit.objects.get().worker == worker_name()


# what the receiver does → (the outcome, the state of the delivery, how many requests it got)
ANSWERS = {
    "answer:400": ("not_applied", "NOT_HANDED_OVER", 1),
    "answer:429": ("unknown", "UNKNOWN", 1),
    "answer:500": ("unknown", "UNKNOWN", 1),
    "answer:302": ("unknown", "UNKNOWN", 1),
    "drop_after": ("unknown", "UNKNOWN", 1),
    "absent": ("not_applied", "NOT_HANDED_OVER", 0),
}


@pytest.mark.parametrize("fault", ANSWERS)
def test_what_an_answer_means_is_as_the_table_says(
    fault: str, receiver: Provider, world: World, run: Run, settings: Settings
) -> None:
    with refused_address() as nowhere:
        settings.ALLSTOP_OUTBOUND_ORIGINS = [receiver.url, nowhere]
        delivery = queued(world, run, f"{nowhere if fault == 'absent' else receiver.url}/hooks")
        word, _, status = fault.partition(":")
        if word != "absent":
            receiver.fault(word, status=int(status or 500))
        outcome, state, requests = ANSWERS[fault]
        assert handover.deliver(delivery.pk) == outcome
    assert (fresh(delivery).state, receiver.ledger.sends()) == (state, requests)


def test_a_stop_between_permit_and_send_keeps_the_message_here(
    receiver: Provider, world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery = queued(world, run, f"{receiver.url}/a")
    spared = queued(world, run, f"{receiver.url}/b", key="b")
    assert handover.deliver(spared.pk) == "applied"  # the control
    before(monkeypatch, handover, "look_again", lambda: world.stop(run))
    assert handover.deliver(delivery.pk) == "not_sent"
    assert (fresh(delivery).state, receiver.ledger.sends("tell:7")) == ("WITHHELD", 0)
    assert receiver.ledger.sends("b") == 1


def test_a_stop_while_the_message_is_on_the_wire_lists_it_and_calls_it_handed_over(
    receiver: Provider, world: World, run: Run
) -> None:
    delivery = queued(world, run, f"{receiver.url}/hooks")
    receiver.fault("hold_after")
    with at_work(lambda: handover.deliver(delivery.pk)) as came_to:
        receiver.ledger.wait_for("held")
        stop = world.stop(run).stop
        receiver.release()
    assert came_to == ["applied"]
    assert fresh(delivery).state == "HANDED_OVER"
    assert stop.in_flight.count() == 1


def test_two_workers_with_the_same_message_come_to_one_request(
    receiver: Provider, world: World, run: Run
) -> None:
    delivery = queued(world, run, f"{receiver.url}/hooks")
    receiver.fault("hold_before", for_s=0.3)
    with at_work(*[lambda: handover.deliver(delivery.pk)] * 3) as came_to:
        pass
    assert sorted(came_to) == ["applied", "nothing to do", "nothing to do"]
    assert receiver.ledger.sends() == 1


def test_an_address_that_became_forbidden_is_not_called(
    receiver: Provider, world: World, run: Run, settings: Settings
) -> None:
    delivery = queued(world, run, f"{receiver.url}/hooks")
    settings.ALLSTOP_OUTBOUND_ORIGINS = []
    assert handover.deliver(delivery.pk) == "not_applied"
    assert (fresh(delivery).state, receiver.ledger.sends()) == ("NOT_HANDED_OVER", 0)


def test_a_message_queued_before_the_end_is_handed_over_after_it(
    receiver: Provider, world: World, run: Run
) -> None:
    delivery = queued(world, run, f"{receiver.url}/hooks")
    ends.complete(actor=world.agent, run_id=run.pk, seen=1)
    assert handover.deliver(delivery.pk) == "applied"
    assert (fresh(delivery).state, fresh(run).status) == ("HANDED_OVER", "COMPLETED")


# what the mail server does → the outcome, the state, how many letters it kept
LETTERS = {
    "": ("applied", "HANDED_OVER", 1),
    "refuse": ("not_applied", "NOT_HANDED_OVER", 0),
    "refuse_text": ("not_applied", "NOT_HANDED_OVER", 0),
    "drop": ("unknown", "UNKNOWN", 1),
}


@pytest.mark.parametrize("fault", LETTERS)
def test_an_e_mail_ends_as_the_table_says(fault: str, post: Post, world: World, run: Run) -> None:
    delivery = queued(world, run, "dana@example.org", "email")
    post.fault(fault)
    outcome, state, letters = LETTERS[fault]
    assert handover.deliver(delivery.pk) == outcome
    assert (fresh(delivery).state, len(post.letters)) == (state, letters)
    for letter in post.letters:
        assert (letter["To"], letter["Subject"]) == ("dana@example.org", "Invoice 7 is paid")
        assert letter["Message-ID"] == f"<{delivery.pk}@allstop.invalid>"
    assert "dana" not in fresh(delivery).detail


def test_a_mail_server_that_is_away_was_sent_nothing(world: World, run: Run, settings: Settings) -> None:
    with Post() as gone:
        gone.settle(settings)
    delivery = queued(world, run, "dana@example.org", "email")
    assert handover.deliver(delivery.pk) == "not_applied"


def test_a_message_that_nobody_heard_of_is_found_by_the_sweep_and_a_held_one_is_not(
    receiver: Provider, world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        wake, "run_soon", lambda task, *ids: asked.extend(ids) if task == "effects.tasks.deliver" else None
    )
    delivery = queued(world, run, f"{receiver.url}/hooks")
    assert asked == [delivery.pk]
    asked.clear()
    tasks.sweep()
    assert asked == []  # its own message may still come
    Delivery.objects.update(turn_at=in_seconds(-6))
    tasks.sweep()
    tasks.sweep()
    assert asked == [delivery.pk]
    world.stop(run, mode="pause")
    assert fresh(delivery).turn_at is None
