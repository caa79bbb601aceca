"""Allstop's own notices: none is lost, each is signed, a dead receiver delays nobody, no stop holds them."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections
from pytest_django.fixtures import Settings

from dashboard.models import Attempt, Endpoint, Notice, Posting, Subscription
from dashboard.notices import endpoints, mailing, outbox, postings, sending
from dashboard.notices.endpoints import EVENTS
from dashboard.tasks import tell
from effects import care, signing, unknowns
from effects.deliveries import BadTarget
from effects.drain import drain_run
from effects.models import Effect
from runs import access, scopes, stops, wake
from runs.access import Actor
from runs.models import Evidence, Membership, Role, StopRequest
from runs.presses import Wish
from runs.scopes import Target
from tests.post import Post
from tests.provider import refused_address
from tests.receiver import Receiver
from tests.worlds import World, a_delivery, a_person, a_step, an_effect, fresh, in_seconds

pytestmark = pytest.mark.django_db


@pytest.fixture
def receiver(settings: Settings) -> Iterator[Receiver]:
    with Receiver() as receiver:
        settings.ALLSTOP_OUTBOUND_ORIGINS = [receiver.origin]
        yield receiver


@pytest.fixture
def post(settings: Settings) -> Iterator[Post]:
    with Post() as post:
        post.settle(settings)
        yield post


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture(autouse=True)
def woken(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Wake-ups are kept, not delivered: a test says when a task runs."""
    kept: list[tuple[Any, ...]] = []
    monkeypatch.setattr(wake, "run_soon", lambda *message: kept.append(message))
    return kept


def admin(world: World) -> Actor:
    return access.person(a_person("root", world.workspace, Role.ADMIN))


def added(world: World, receiver: Receiver, *events: str, url: str = "", name: str = "ops") -> Endpoint:
    done = endpoints.put(
        actor=admin(world),
        workspace_id=world.workspace.pk,
        name=name,
        url=url or receiver.url,
        events=list(events) or EVENTS,
    )
    if not url:
        receiver.state.secret = done.secret
    return done.endpoint


def told() -> list[Notice]:
    """Fan out what waits, as the task does; all notices."""
    for subject_id in unknowns.overdue():
        care.tell_overdue(subject_id)
    for notice_id in outbox.untold():
        outbox.fan_out(notice_id)
    return list(Notice.objects.order_by("pk"))


def sent(endpoint: Endpoint) -> int:
    told()
    return sending.send_due(endpoint.pk)


def later(endpoint: Endpoint, seconds: float = 100_000) -> None:
    """Let so much time pass for what waits for this endpoint."""
    Posting.objects.filter(endpoint=endpoint, next_at__isnull=False).update(next_at=in_seconds(-1))
    Endpoint.objects.filter(pk=endpoint.pk).update(rest_until=None)


# --- what is told ------------------------------------------------------------------------------------------


def test_a_stop_of_many_runs_is_one_letter_to_a_person_and_one_notice_of_each_run_to_an_endpoint(
    world: World, receiver: Receiver
) -> None:
    endpoint, run = added(world, receiver), world.run()
    world.run("other")
    assert world.dana.user is not None
    Subscription.objects.create(user=world.dana.user, workspace=world.workspace, events=EVENTS)
    target = Target("workspace", world.workspace.pk)
    wide = scopes.request_scope_stop(actor=world.alice, wish=Wish(mode="cancel"), target=target).stop
    assert drain_run(run.pk) == "CANCELLED"
    told()
    posted = Posting.objects.filter(endpoint=endpoint).values_list("notice__event", flat=True)
    assert sorted(posted) == ["stop.closed", *["stop.recorded"] * 3]
    to_dana = Posting.objects.filter(user=world.dana.user).values_list("notice__event", "notice__stop_id")
    assert list(to_dana) == [("stop.recorded", wide.pk)]
    late = StopRequest.objects.get(run__key="other")
    Notice.objects.create(workspace=world.workspace, event="stop.timed_out", run=late.run, stop_id=late.pk)
    told()
    assert ("stop.timed_out", late.pk) in list(to_dana.all())


def test_a_stop_is_told_once_signed_with_ids_status_version_and_link(
    world: World, receiver: Receiver
) -> None:
    endpoint = added(world, receiver)
    run = world.run(name="Books of <Finance>")
    stop = world.stop(run, note="the price list is wrong").stop
    assert sent(endpoint) == 1
    (letter,) = receiver.letters
    assert letter.genuine
    assert letter.content_type == "application/cloudevents+json"
    notice = Notice.objects.get()
    assert (letter.id, letter.body["id"]) == (notice.pk, notice.pk)
    assert letter.body["type"] == "allstop.stop.recorded"
    data = letter.body["data"]
    assert (data["run_id"], data["run_status"], data["run_version"]) == (run.pk, "CANCELLING", 2)
    assert (data["stop_id"], data["stop_number"], data["stop_mode"]) == (stop.pk, 1, "cancel")
    assert data["url"].endswith(f"/runs/{run.pk}/")
    assert "Books" not in str(letter.body)
    assert "price list" not in str(letter.body)
    assert sent(endpoint) == 0
    assert Posting.objects.get().state == "SENT"


def test_each_event_that_can_be_asked_for_is_told(world: World) -> None:
    run = world.run()
    world.opened(run)
    world.stop(run, deadline_s=0)
    drain_run(run.pk)
    world.stop(run, mode="abandon")
    world.stop_key("not-there-yet")
    Effect.objects.update(unknown_since=in_seconds(-20_000))
    an_effect(a_step(), "UNKNOWN", unknown_since=in_seconds(-20_000))
    a_delivery(state="UNKNOWN", unknown_since=in_seconds(-20_000))
    an_effect(a_step(), "UNKNOWN", unknown_since=in_seconds(-30))  # not yet
    with_review = Evidence(stream=run.pk, seq=1, kind="review.waiting")
    outbox.heard([(run, with_review.seq, with_review)])  # type: ignore[list-item]
    events = sorted(notice.event for notice in told())
    assert events == [
        "review.waiting",
        "stop.closed",
        "stop.recorded",
        "stop.recorded",
        "stop.recorded",
        "stop.timed_out",
        "unknown.past_due",
        "unknown.past_due",
    ]
    assert len(told()) == 8, "an unknown is told once, and none of a run that was abandoned"


def test_a_review_that_waits_is_heard_of() -> None:
    assert set(outbox.EVENT_OF) >= {"review.waiting", "stop.acknowledged", "stop.timed_out", "stop.closed"}


def test_a_notice_is_kept_or_lost_together_with_its_stop(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = world.run()
    real = stops.record_press

    def fails(*args: Any) -> Any:
        raise RuntimeError("the process died before the commit")

    monkeypatch.setattr(stops, "record_press", fails)
    with pytest.raises(RuntimeError):
        world.stop(run)
    assert (StopRequest.objects.count(), Notice.objects.count()) == (0, 0)
    monkeypatch.setattr(stops, "record_press", real)
    world.stop(run)
    assert (StopRequest.objects.count(), Notice.objects.count()) == (1, 1)


def test_a_stop_of_the_run_itself_holds_no_notice_and_neither_does_a_shut_workspace(
    world: World, receiver: Receiver
) -> None:
    endpoint = added(world, receiver, "stop.recorded", "stop.closed")
    run = world.run()
    world.stop(run, mode="abandon")
    type(world.workspace).objects.filter(pk=world.workspace.pk).update(gate="SHUT", epoch=2)
    assert sent(endpoint) == 2
    types = [letter.body["type"] for letter in receiver.letters]
    assert sorted(types) == ["allstop.stop.closed", "allstop.stop.recorded"]


def test_only_those_who_asked_for_an_event_are_told_and_only_of_their_own_workspace(
    world: World, receiver: Receiver
) -> None:
    closed = added(world, receiver, "stop.closed")
    elsewhere = Endpoint.objects.create(workspace=world.elsewhere, name="x", url=receiver.url, events=EVENTS)
    world.stop(world.run())
    assert (sent(closed), sent(elsewhere)) == (0, 0)
    assert Posting.objects.count() == 0


def test_an_endpoint_is_not_told_of_what_happened_before_it_was_there(
    world: World, receiver: Receiver
) -> None:
    world.stop(world.run())
    Notice.objects.update(at=in_seconds(-1))
    assert sent(added(world, receiver)) == 0


# --- tries -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [("answer", 500), ("answer", 302), ("drop", 0)])
def test_what_was_not_taken_is_tried_again_under_the_same_id(
    fault: tuple[str, int], world: World, receiver: Receiver
) -> None:
    endpoint = added(world, receiver)
    world.stop(world.run())
    receiver.fault(fault)
    assert sent(endpoint) == 0
    assert sending.due() == [], "it rests"
    later(endpoint)
    assert sending.due() == [endpoint.pk]
    assert sending.send_due(endpoint.pk) == 1
    first, second = receiver.letters
    assert first.id == second.id
    assert first.body == second.body
    assert first.genuine
    assert second.genuine
    assert [attempt.taken for attempt in Attempt.objects.order_by("pk")] == [False, True]
    assert (fresh_endpoint(endpoint).failures, Posting.objects.get().state) == (0, "SENT")


def fresh_endpoint(endpoint: Endpoint) -> Endpoint:
    return Endpoint.objects.get(pk=endpoint.pk)


def test_the_schedule_ends_and_a_person_may_have_it_sent_again(world: World, receiver: Receiver) -> None:
    endpoint = added(world, receiver)
    world.stop(world.run())
    receiver.fault(*[("answer", 503)] * postings.TRIES)
    sent(endpoint)
    for _ in range(postings.TRIES + 2):
        later(endpoint)
        sending.send_due(endpoint.pk)
    posting = Posting.objects.get()
    assert (posting.state, posting.tries, len(receiver.letters)) == ("GIVEN_UP", 8, 8)
    assert sum(postings.BACK_OFF_S) < 23 * 3600
    endpoints.send_again(actor=admin(world), workspace_id=world.workspace.pk, posting_id=posting.pk)
    assert sending.send_due(endpoint.pk) == 1
    assert {letter.id for letter in receiver.letters} == {posting.notice_id}


def test_an_endpoint_that_failed_all_day_is_turned_off_with_a_line_and_one_that_failed_for_an_hour_is_not(
    world: World, receiver: Receiver
) -> None:
    endpoint = added(world, receiver)
    world.stop(world.run())
    told()
    rows = Endpoint.objects.filter(pk=endpoint.pk)
    rows.update(failures=30, failing_since=in_seconds(-3600))
    receiver.fault(("answer", 500), ("answer", 500))
    sending.send_due(endpoint.pk)
    assert fresh_endpoint(endpoint).off_at is None
    rows.update(failing_since=in_seconds(-90_000))
    later(endpoint)
    sending.send_due(endpoint.pk)
    assert fresh_endpoint(endpoint).off_at is not None
    assert Posting.objects.get().state == "GIVEN_UP"
    line = Evidence.objects.get(stream=world.workspace.pk, kind="endpoint.turned_off")
    assert line.actor == "system"
    endpoints.turn(actor=admin(world), workspace_id=world.workspace.pk, endpoint_id=endpoint.pk, on=True)
    world.stop(world.run("another"))
    assert sent(endpoint) == 1


def test_an_endpoint_that_is_gone_is_turned_off_at_once(world: World, receiver: Receiver) -> None:
    endpoint = added(world, receiver)
    world.stop(world.run())
    receiver.fault(("answer", 410))
    sent(endpoint)
    assert fresh_endpoint(endpoint).off_because == "it answered 410, gone"


def test_a_sender_that_died_in_the_middle_leaves_the_notice_to_the_next(
    world: World, receiver: Receiver
) -> None:
    endpoint = added(world, receiver)
    world.stop(world.run())
    told()
    posting = postings.waiting().get()
    assert postings.take(posting)  # and then nothing
    assert not postings.take(posting)
    assert sending.send_due(endpoint.pk) == 0
    later(endpoint)
    assert sending.send_due(endpoint.pk) == 1


def test_the_outbound_rules_hold_for_endpoints_when_they_are_saved_and_when_they_are_called(
    world: World, receiver: Receiver, settings: Settings
) -> None:
    endpoint = added(world, receiver)
    world.stop(world.run())
    settings.ALLSTOP_OUTBOUND_ORIGINS = []
    assert sent(endpoint) == 0
    assert receiver.letters == []
    assert "not https" in Attempt.objects.get().detail
    with pytest.raises(BadTarget):
        added(world, receiver, name="second")


# --- nobody waits for a dead one ---------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_receiver_that_hangs_delays_neither_a_stop_nor_another_receiver(
    world: World, settings: Settings
) -> None:
    with Receiver() as slow, Receiver() as quick:
        settings.ALLSTOP_OUTBOUND_ORIGINS = [slow.origin, quick.origin]
        dead, alive = added(world, slow, name="dead"), added(world, quick, name="alive")
        world.stop(world.run("one"))
        told()
        slow.fault(("hold", 0))
        thread = threading.Thread(target=in_thread, args=(dead.pk,))
        thread.start()
        assert slow.state.held.wait(10)
        assert sending.due() == [alive.pk], "one sender an endpoint"
        assert sending.send_due(dead.pk) == 0
        assert sending.send_due(alive.pk) == 1
        stop = world.stop(world.run("two")).stop  # while a request to the dead one is on the wire
        assert sent(alive) == 1
        assert stop.gate_at is not None
        assert thread.is_alive()
        slow.release()
        thread.join(10)
    assert [len(slow.letters), len(quick.letters)] == [2, 2]


def in_thread(endpoint_id: str) -> None:
    try:
        sending.send_due(endpoint_id)
    finally:
        connections.close_all()


def test_the_task_wakes_one_sender_for_each_endpoint_with_something_due(
    world: World, receiver: Receiver, woken: list[tuple[Any, ...]]
) -> None:
    with refused_address() as nowhere:
        urls = f"{nowhere}/hook"
        first = added(world, receiver)
        Endpoint.objects.create(workspace=world.workspace, name="dead", url=urls, events=EVENTS)
    world.stop(world.run())
    woken.clear()
    inspect.unwrap(tell.run)()
    assert {message[0] for message in woken} == {"dashboard.tasks.send_notices"}
    assert first.pk in {message[1] for message in woken}
    assert len(woken) == 2


# --- secrets -----------------------------------------------------------------------------------------------


def test_while_a_secret_is_rotated_both_sign_and_afterwards_the_new_one_alone(
    world: World, receiver: Receiver
) -> None:
    endpoint = added(world, receiver)
    old = receiver.state.secret
    ids = {"workspace_id": world.workspace.pk, "endpoint_id": endpoint.pk}
    new = endpoints.rotate(actor=admin(world), **ids).secret
    for number, (secret, genuine) in enumerate([(old, True), (new, True)]):
        receiver.state.secret = secret
        world.stop(world.run(f"run-{number}"))
        assert sent(endpoint) == 1
        assert (receiver.letters[-1].genuine, len(receiver.letters[-1].signatures)) == (genuine, 2)
    endpoints.end_old_secrets(actor=admin(world), **ids)
    for number, (secret, genuine) in enumerate([(old, False), (new, True)]):
        receiver.state.secret = secret
        world.stop(world.run(f"again-{number}"))
        sent(endpoint)
        assert (receiver.letters[-1].genuine, len(receiver.letters[-1].signatures)) == (genuine, 1)


def test_an_old_secret_ends_by_itself_after_a_day(world: World, receiver: Receiver) -> None:
    endpoint = added(world, receiver)
    endpoints.rotate(actor=admin(world), workspace_id=world.workspace.pk, endpoint_id=endpoint.pk)
    old, new = fresh_endpoint(endpoint).secrets
    assert new["until"] is None
    assert len(sending.in_force(fresh_endpoint(endpoint))) == 2
    passed = {**old, "until": in_seconds(-1).isoformat()}
    Endpoint.objects.filter(pk=endpoint.pk).update(secrets=[passed, new])
    assert len(sending.in_force(fresh_endpoint(endpoint))) == 1


def test_no_secret_lies_open_in_the_database_and_one_of_another_key_signs_nothing(
    world: World, receiver: Receiver, settings: Settings
) -> None:
    endpoint = added(world, receiver)
    secret = receiver.state.secret
    assert secret.startswith("whsec_")
    stored = str(Endpoint.objects.filter(pk=endpoint.pk).values().get())
    assert secret not in stored
    lines = Evidence.objects.filter(stream=world.workspace.pk)
    assert secret not in str(list(lines.values()))
    world.stop(world.run())
    settings.SECRET_KEY = "another one, and the old one is lost"
    assert sent(endpoint) == 0
    assert "another SECRET_KEY" in Attempt.objects.get().detail


def test_a_signature_is_that_of_the_standards_own_example() -> None:
    """The example of the Standard Webhooks libraries."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    made = signing.signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert made == "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


# --- e-mail ------------------------------------------------------------------------------------------------


def subscribe(world: World, who: Actor, *events: str) -> None:
    endpoints.subscribe(actor=who, workspace_id=world.workspace.pk, events=list(events) or EVENTS)


def test_who_asked_gets_an_e_mail_and_nobody_else(world: World, post: Post) -> None:
    subscribe(world, world.bob)
    subscribe(world, world.dana, "stop.closed")
    run = world.run(name="Books of Finance")
    world.stop(run, note="wrong list")
    told()
    assert mailing.is_due()
    assert mailing.send_due() == 1
    (letter,) = post.letters
    assert world.bob.user is not None
    assert letter["To"] == world.bob.user.email
    assert letter["Subject"] == "Allstop: A stop was recorded (stop #1)"
    text = str(letter.get_payload(decode=True))
    assert f"/runs/{run.pk}/" in text
    assert "CANCELLING" in text
    assert "Books" not in text
    assert "wrong list" not in text
    assert not mailing.is_due()


def test_a_person_switches_all_e_mail_off_and_who_left_gets_none(world: World, post: Post) -> None:
    for who in (world.bob, world.carol, world.dana):
        subscribe(world, who)
    assert world.bob.user is not None
    endpoints.switch_mail(user=world.bob.user, on=False)
    world.stop(world.run())
    told()  # after this: two are queued
    Membership.objects.filter(user=world.carol.user).delete()
    while mailing.is_due():
        mailing.send_due()
    assert world.dana.user is not None
    assert [letter["To"] for letter in post.letters] == [world.dana.user.email]
    assert Posting.objects.count() == 2


def test_one_address_that_is_refused_holds_up_no_other(world: World, post: Post) -> None:
    subscribe(world, world.bob)
    subscribe(world, world.dana)
    world.stop(world.run())
    told()
    post.fault("refuse")
    mailing.send_due()
    assert mailing.send_due() == 1
    assert len(post.letters) == 1


def test_without_a_mail_server_nothing_is_due(world: World) -> None:
    subscribe(world, world.bob)
    world.stop(world.run())
    told()
    assert not mailing.is_due()


# --- who may -----------------------------------------------------------------------------------------------


def test_only_admins_manage_endpoints_and_strangers_learn_nothing(world: World, receiver: Receiver) -> None:
    endpoint = added(world, receiver)
    ids = {"workspace_id": world.workspace.pk, "endpoint_id": endpoint.pk}
    for verb in (endpoints.rotate, endpoints.end_old_secrets, endpoints.remove, endpoints.test):
        with pytest.raises(access.NotAllowed):
            verb(actor=world.bob, **ids)
        with pytest.raises(access.NotFound):
            verb(actor=world.mallory, **ids)
        with pytest.raises(access.NotFound):  # her own workspace, Finance's endpoint
            verb(actor=world.mallory, workspace_id=world.elsewhere.pk, endpoint_id=endpoint.pk)
    with pytest.raises(access.NotFound):
        subscribe(world, world.mallory)


def test_old_notices_and_their_log_are_forgotten_and_the_evidence_stays(
    world: World, receiver: Receiver
) -> None:
    endpoint = added(world, receiver)
    run = world.run()
    world.stop(run)
    sent(endpoint)
    assert outbox.forget() == 0
    Notice.objects.update(at=in_seconds(-31 * 86_400))
    assert outbox.forget() == 3
    assert fresh(run).status == "CANCELLING"
    assert Evidence.objects.filter(stream=run.pk, kind="stop.acknowledged").exists()
