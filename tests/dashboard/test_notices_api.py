"""Endpoints over the API: put, read, rotate, test, redeliver, remove; by tokens with notices:write alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_django.fixtures import Settings

from dashboard.models import Endpoint
from dashboard.notices import outbox, sending
from runs import wake
from runs.models import IdempotencyRecord
from tests.receiver import Receiver
from tests.wire import Wire, token_text
from tests.worlds import World

pytestmark = pytest.mark.django_db


@pytest.fixture
def receiver(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setattr(wake, "run_soon", lambda *message: None)
    with Receiver() as receiver:
        settings.ALLSTOP_OUTBOUND_ORIGINS = [receiver.origin]
        yield receiver


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def manager(world: World) -> Wire:
    return Wire(token_text(world.workspace, "notices:write"))


def test_an_endpoint_is_put_told_rotated_and_removed(world: World, manager: Wire, receiver: Receiver) -> None:
    body = {"url": receiver.url, "events": ["stop.recorded"]}
    made, again = manager.put("/endpoints/ops", body), manager.put("/endpoints/ops", body)
    assert (made.status, again.status, again.data["secret"]) == (201, 200, None)
    receiver.state.secret = made.data["secret"]
    world.stop(world.run())
    outbox.fan_out(outbox.untold()[0])
    assert sending.send_due(Endpoint.objects.get().pk) == 1
    assert receiver.letters[0].genuine
    (row,) = manager.get("/endpoints/ops/log").data["items"]
    assert (row["event"], row["state"], row["tries"][0]["status"]) == ("stop.recorded", "SENT", 204)
    assert manager.post(f"/postings/{row['id']}/redeliver").data["state"] == "WAITING"
    new = manager.post("/endpoints/ops/rotate").data
    assert (new["endpoint"]["secrets_in_force"], new["secret"] != made.data["secret"]) == (2, True)
    assert manager.post("/endpoints/ops/end-old-secrets").data["secrets_in_force"] == 1
    read = manager.get("/endpoints/ops")
    assert (read.data["events"], "whsec_" in read.text) == (["stop.recorded"], False)
    assert read.data["url"].startswith(f"{receiver.origin}/[redacted path ")
    assert "s3cret-path" not in made.text + again.text + read.text + manager.get("/endpoints").text
    back = manager.put("/endpoints/ops", body | {"url": read.data["url"]})
    assert (back.status, Endpoint.objects.get().url) == (422, receiver.url)
    assert [one["name"] for one in manager.get("/endpoints").data["items"]] == ["ops"]
    assert manager.post("/endpoints/ops/test").data["event"] == "test"
    assert manager.post("/endpoints/ops/turn", {"on": False}).data["off_because"]
    off = manager.post("/endpoints/ops/test")
    assert (off.status, off.problem) == (409, "endpoint-is-off")
    assert manager.call("DELETE", "/endpoints/ops").status == 204
    assert manager.get("/endpoints/ops").status == 404
    kept = " ".join(IdempotencyRecord.objects.values_list("body", flat=True))
    assert "whsec_" not in kept


def test_another_token_reads_and_changes_nothing(world: World, manager: Wire, receiver: Receiver) -> None:
    manager.put("/endpoints/ops", {"url": receiver.url, "events": ["stop.closed"]})
    agent = Wire(token_text(world.workspace, "runs:write", "stop:write", "kinds:write"))
    for said in (
        agent.get("/endpoints"),
        agent.get("/endpoints/ops"),
        agent.get("/endpoints/ops/log"),
        agent.post("/endpoints/ops/rotate"),
        agent.call("DELETE", "/endpoints/ops"),
    ):
        assert (said.status, said.problem) == (403, "not-allowed")
    mallory = Wire(token_text(world.elsewhere, "notices:write"))
    assert mallory.get("/endpoints/ops").text == mallory.get("/endpoints/never").text
    assert mallory.get("/endpoints").data == {"items": [], "next_cursor": None}
    assert mallory.put("/endpoints/ops", {"url": receiver.url, "events": ["stop.closed"]}).status == 201
    assert Endpoint.objects.count() == 2


@pytest.mark.parametrize(
    "body",
    [
        {"url": "http://example.org/", "events": ["stop.closed"]},
        {"url": "https://example.org/", "events": []},
        {"url": "https://example.org/", "events": ["test"]},
        {"url": "https://example.org/", "events": ["stop.closed"], "secret": "mine"},
    ],
)
def test_what_can_not_be_used_is_named(manager: Wire, body: dict[str, object]) -> None:
    said = manager.put("/endpoints/ops", body)
    assert (said.status, said.problem) == (422, "invalid-request")


def test_a_workspace_has_so_many_endpoints_and_no_more(
    manager: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dashboard.notices.endpoints.MOST", 1)
    body = {"url": "https://example.org/", "events": ["stop.closed"]}
    assert manager.put("/endpoints/one", body).status == 201
    said = manager.put("/endpoints/two", body)
    assert (said.status, said.problem) == (409, "too-many-endpoints")
