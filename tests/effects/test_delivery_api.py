"""Deliveries over the API: queue, ask, look, report; and what a stranger gets."""

from __future__ import annotations

import re
from typing import Any

import pytest

from effects import deliveries, settle
from effects.models import Delivery
from runs.access import EXECUTOR
from runs.guard import Opened
from tests.wire import Json, Said, Wire, agent_of
from tests.worlds import World

pytestmark = pytest.mark.django_db
SEEN = {"worker": "w-1", "seen_version": 1}


@pytest.fixture
def agent() -> Wire:
    return agent_of(World().workspace)


def message(key: str = "tell:7", **fields: Any) -> Json:
    return {"key": key, "channel": "outside", "target": "the chat", "body": "done", **SEEN, **fields}


def queued(agent: Wire, run: Json, **fields: Any) -> Said:
    return agent.post(f"/runs/{run['id']}/deliveries", message(**fields))


def test_an_agent_queues_asks_looks_and_reports(agent: Wire) -> None:
    run = agent.run()
    made = queued(agent, run)
    assert (made.status, made.data["state"], queued(agent, run).status) == (201, "QUEUED", 200)
    asked = agent.post(f"/deliveries/{made.data['id']}/hand-over", SEEN)
    assert (asked.status, asked.data["permit"]["boundary"]) == (201, "deliver")
    assert agent.look(asked.data["permit"]).data["look"] == "open"
    reported = agent.report(asked.data["permit"], "applied", provider_ref="msg-9")
    assert (reported.status, reported.data["effect"]) == (200, None)
    read = agent.get(f"/deliveries/{made.data['id']}").data
    assert (read["state"], read["provider_ref"], read["attempt"]) == ("HANDED_OVER", "msg-9", 1)
    again = agent.post(f"/deliveries/{made.data['id']}/hand-over", SEEN)
    assert (again.status, again.data["known"], again.data["permit"]) == (200, "settled", None)
    assert [row["key"] for row in agent.get(f"/runs/{run['id']}/deliveries").data["items"]] == ["tell:7"]


def test_completing_says_when_to_come_back_while_only_allstop_is_at_it(agent: Wire) -> None:
    run = agent.run()
    made = queued(agent, run, channel="webhook", target="https://example.org/hook").data
    sent = deliveries.hand_over(actor=EXECUTOR, delivery_id=made["id"], worker="here:1")
    assert isinstance(sent, Opened)
    path, body = f"/runs/{run['id']}/complete", {"seen_version": 1}
    said = agent.post(path, body, key="k-1")
    assert (said.status, said.problem, said.headers.get("Retry-After")) == (409, "not-quiet", "1")
    mine = agent.permitted(run)["permit"]
    assert "Retry-After" not in agent.post(path, body).headers, "one of them is its own to report"
    agent.report(mine)
    told = settle.Told("applied")
    settle.report(actor=EXECUTOR, permit_id=sent.permit.pk, token=sent.permit.token, told=told)
    assert agent.post(path, body, key="k-1").data["status"] == "COMPLETED"


def test_what_a_stop_holds_is_refused_with_the_stops_id(agent: Wire) -> None:
    run = agent.run()
    made = queued(agent, run).data
    stop = agent.stop(run).data
    refused = agent.post(f"/deliveries/{made['id']}/hand-over", SEEN)
    assert (refused.status, refused.problem, refused.data["stop_id"]) == (409, "stopped", stop["id"])
    assert agent.get(f"/deliveries/{made['id']}").data["state"] == "WITHHELD"
    late = queued(agent, run, key="late")
    assert (late.status, late.problem) == (409, "stopped")


def test_what_failed_is_queued_again_and_what_is_unknown_is_not(agent: Wire) -> None:
    run = agent.run()
    for outcome, status, problem in (("not_applied", 200, ""), ("unknown", 409, "nothing-to-retry")):
        made = queued(agent, run, key=outcome).data
        permit = agent.post(f"/deliveries/{made['id']}/hand-over", SEEN).data["permit"]
        agent.report(permit, outcome)
        again = agent.post(f"/deliveries/{made['id']}/retry")
        assert (again.status, again.problem) == (status, problem)


@pytest.mark.parametrize(
    "fields",
    [
        {"channel": "webhook", "target": "http://example.org/"},
        {"channel": "webhook", "target": "https://169.254.169.254@evil/"},
        {"channel": "email", "target": "dana@example.org"},  # no mail server is configured here
        {"channel": "fax"},
        {"target": ""},
        {"title": "Paid\nBcc: all@example.org"},
        {"body": "x" * 200_001},
    ],
)
def test_a_message_that_can_not_be_handed_over_is_refused(agent: Wire, fields: Json) -> None:
    said = queued(agent, agent.run(), **fields)
    assert (said.status, said.problem) == (422, "invalid-request")
    assert Delivery.objects.count() == 0


def test_another_message_under_the_same_key_is_refused(agent: Wire) -> None:
    run = agent.run()
    queued(agent, run)
    said = queued(agent, run, body="other")
    assert (said.status, said.problem) == (422, "delivery-key-reused")


def test_the_path_of_a_webhook_and_the_text_of_a_message_are_not_told_again(agent: Wire) -> None:
    run = agent.run()
    target = "https://hooks.example.org/T0/s3cret"
    said = queued(agent, run, channel="webhook", target=target, body="dear Dana")
    assert said.status == 201
    assert re.fullmatch(r"https://hooks.example.org:443/\[redacted path [0-9a-f]{8}\]", said.data["target"])
    back = queued(agent, run, channel="webhook", target=said.data["target"], key="tell:back")
    assert (back.status, "send it whole" in back.text) == (422, True)
    assert "s3cret" not in said.text
    assert "Dana" not in said.text
    asked = agent.post(f"/deliveries/{said.data['id']}/hand-over", SEEN)
    assert (asked.status, asked.problem) == (409, "nothing-to-hand-over")
