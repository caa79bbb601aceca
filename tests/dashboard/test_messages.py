"""What pages and reports say of a run's own messages: handed over · held · unknown."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from dashboard import reports, words
from effects import deliveries, ends
from effects.drain import drain_run
from effects.models import Delivery, DeliveryState
from runs.guard import Opened
from runs.models import Run
from tests.wire import agent_of
from tests.worlds import World, a_delivery, fresh

pytestmark = pytest.mark.django_db
NOT_UNSENT = "Cancelling the run does not prove a notification unsent."


def told(world: World, delivery: Delivery, outcome: str) -> None:
    opened = deliveries.hand_over(actor=world.agent, delivery_id=delivery.pk, worker="w-1", seen=1)
    assert isinstance(opened, Opened)
    world.report(opened, outcome, detail="the line was cut")


def a_stopped_run(world: World) -> Run:
    """Three messages: one handed over, one unknown, one withheld by the stop."""
    run = world.run()
    told(world, a_delivery(run, key="over"), "applied")
    told(world, a_delivery(run, key="doubt", title="Tell <Dana>"), "unknown")
    a_delivery(run, key="late")
    world.stop(run)
    drain_run(run.pk)
    return fresh(run)


def claims(run: Run) -> dict[str, list[str]]:
    report = reports.build(run.pk)
    return {section.key: [claim.says for claim in section.claims] for section in report.sections}


def test_the_report_says_which_messages_were_handed_over_withheld_and_unknown() -> None:
    run = a_stopped_run(World())
    report = reports.build(run.pk)
    assert (run.status, report.outcome) == ("UNKNOWN", "awaiting verification")
    assert report.sentence == "We cannot yet say whether the hand-over of 1 message happened."
    assert report.messages == "1 handed over · 1 withheld · 1 unknown"
    said = claims(run)
    assert "1 message was withheld and will not be handed over." in said["stopped"]
    assert f"1 message was handed over. {NOT_UNSENT}" in said["completed"]
    doubt = f"1 message may have been handed over; no word of it came back yet. {NOT_UNSENT}"
    assert said["uncertain"] == ["No effect is uncertain.", doubt]
    assert "Ask the receiver of 1 message whether it came" in str(said["next"])
    cited = {line.seq for line in report.evidence}
    for section in report.sections:
        for claim in section.claims:
            assert "message" not in claim.text or (claim.lines and set(claim.lines) <= cited)


def test_a_run_without_messages_says_nothing_of_any() -> None:
    run = World().run()
    assert "message" not in str(claims(run))
    assert reports.build(run.pk).messages == ""


def test_a_completed_run_is_not_final_while_a_message_is_queued_or_unknown() -> None:
    world = World()
    run = world.run()
    delivery = a_delivery(run)
    ends.complete(actor=world.agent, run_id=run.pk, seen=1)
    assert "1 message is queued" in str(claims(run)["more"])
    first = reports.issue(run.pk)
    told(world, delivery, "unknown")
    second = reports.issue(run.pk)
    Delivery.hand_over(Delivery.objects.filter(pk=delivery.pk))
    third = reports.issue(run.pk)
    assert first
    assert second
    assert [(v.outcome, v.final) for v in (first, second)] == [
        ("completed", False),
        ("awaiting verification", False),
    ]
    assert third is None or third.final


def test_the_run_page_lists_the_messages_with_their_state_and_hides_a_webhooks_path() -> None:
    world = World()
    run = a_stopped_run(world)
    a_delivery(run, "WITHHELD", channel="webhook", target="https://hooks.example.org/T0/s3cret")
    assert world.dana.user is not None
    client = Client()
    client.force_login(world.dana.user)
    page = client.get(f"/runs/{run.pk}/").content.decode()
    assert "1 handed over · 2 withheld · 1 unknown" in page
    assert "Tell &lt;Dana&gt;" in page
    assert "We cannot yet say whether the hand-over of 1 message happened." in page
    assert "of 2 known" in page
    assert "https://hooks.example.org:443" in page
    assert "s3cret" not in page
    assert NOT_UNSENT in page


def test_a_stop_of_a_finished_run_is_told_with_the_messages_that_it_withheld() -> None:
    world = World()
    run = world.run()
    a_delivery(run)
    ends.complete(actor=world.agent, run_id=run.pk, seen=1)
    world.stop(run)
    assert "came after the run had ended, and withheld the messages that were still queued" in str(
        claims(run)
    )
    again = agent_of(world.workspace).call("POST", f"/runs/{run.pk}/stops").data["sentence"]
    assert "no message that is still queued will be handed over" in again


def test_the_stop_dialog_says_what_becomes_of_queued_messages_and_of_those_that_left(client: Client) -> None:
    world = World()
    run = world.run()
    a_delivery(run, key="waits")
    told(world, a_delivery(run, key="over"), "applied")
    assert world.alice.user is not None
    client.force_login(world.alice.user)
    page = client.get(f"/runs/{run.pk}/stop").content.decode()
    assert "1 queued message will be refused." in page
    assert "1 queued message will be held and keeps its place." in page
    assert "1 message was handed over; stopping calls none of them back." in page


def test_every_reader_of_an_outcome_counts_the_messages(client: Client) -> None:
    world = World()
    run = a_stopped_run(world)
    assert agent_of(world.workspace).get(f"/runs/{run.pk}").data["outcome"] == "awaiting verification"
    assert world.dana.user is not None
    client.force_login(world.dana.user)
    assert "Awaiting verification" in client.get("/runs/").content.decode()


def test_each_state_of_a_message_has_its_words(settings: Any) -> None:
    assert set(words.DELIVERY) == set(DeliveryState.values)
    assert words.messages({"HELD": 2, "QUEUED": 0}) == "2 held"
