"""The API as it is served: to the real client over HTTP, to bodies without a length, to a crowd."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from allstop import Client, MustWait, NotQuiet, StopRequested
from asgiref.testing import ApplicationCommunicator
from django.core.asgi import get_asgi_application
from django.db import connections

from dashboard import crowd
from effects.models import Effect, Kind
from runs import bodies
from runs.models import Permit, Run, Step, StopRequest, Worker, Workspace
from tests.wire import Wire, agent_of, kind_body, token_text
from tests.worlds import World, a_workspace

pytestmark = pytest.mark.django_db(transaction=True)


# --- The real client --------------------------------------------------------------------------------------


@pytest.fixture
def client(live_server: Any) -> Iterator[Client]:
    with Client(live_server.url, token_text(a_workspace()), worker="w-1", heartbeat_s=0.05) as client:
        yield client


def test_the_client_runs_effects_turns_and_steps_to_their_end(client: Client) -> None:
    client.put_kind("bank.charge", kind_body())
    with client.run("close-books", name="Close the books", session="november") as run:
        charge = run.effect(key="charge:7", kind="bank.charge", none_because="a test", body="{}")
        assert charge.send(lambda: {"charge": "ch_1"}) == {"charge": "ch_1"}
        assert run.model_turn(lambda: "words") == "words"
        with run.step("invoice-7", "Invoice 7") as step:
            step.effect(key="mail:7", kind="mailer.send", none_because="a mail").send(lambda: None)
        again = run.effect(key="charge:7", kind="bank.charge", none_because="a test", body="{}")
        assert again.send(lambda: pytest.fail("sent twice")) == {"charge": "ch_1"}
        assert again.skipped
    assert Run.objects.get().status == "COMPLETED"
    assert set(Effect.objects.values_list("key", "settlement")) == {
        ("charge:7", "CONFIRMED"),
        ("mail:7", "CONFIRMED"),
    }
    assert set(Step.objects.values_list("status", flat=True)) == {"SUCCEEDED"}
    assert set(Permit.objects.values_list("state", flat=True)) == {"REPORTED"}
    assert Kind.objects.get().name == "bank.charge"


def test_a_stop_reaches_the_client_in_its_next_call_and_its_heartbeat_confirms_it(client: Client) -> None:
    with pytest.raises(StopRequested) as stopped:
        _stop_itself_and_go_on(client)
    stop = StopRequest.objects.get()
    assert (stopped.value.stop_id, stopped.value.current_version) == (stop.pk, 2)
    assert stop.note == "Wrong file"
    assert not Permit.objects.exists()
    assert Worker.objects.get().confirmed_version == 2


def _stop_itself_and_go_on(client: Client) -> None:
    with client.run("close-books") as run:
        assert client.request_stop(run_id=run.id, note="Wrong file")["created"]
        charge = run.effect(key="charge:7", kind="bank.charge", none_because="a test")
        charge.send(lambda: pytest.fail("sent after the stop"))


def test_the_client_is_told_to_wait_and_what_is_still_open(client: Client) -> None:
    with client.run("close-books") as run:
        send = run.effect(key="charge:7", kind="bank.charge", none_because="a test").send
        with pytest.raises(ConnectionError):
            send(_lose)
        with pytest.raises(MustWait, match="may not be sent"):
            send(lambda: pytest.fail("sent twice"))
        step = run.step("held")
        step.__enter__()
        with pytest.raises(NotQuiet):
            run.complete()
        step.__exit__(None, None, None)
        run.complete()
    assert Effect.objects.get().settlement == "UNKNOWN"


def _lose() -> None:
    raise ConnectionError("the wire was cut")


# --- Bodies without a length ------------------------------------------------------------------------------


def sent_in_parts(path: str, token: str, parts: list[bytes]) -> tuple[int, bytes]:
    """A POST whose body comes in parts and whose headers tell no length, as chunked ones do."""
    headers = [(b"host", b"testserver"), (b"authorization", f"Bearer {token}".encode())]
    headers += [(b"content-type", b"application/json"), (b"idempotency-key", b"k-1")]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers}
    return asyncio.run(_exchange({**scope, "http_version": "1.1", "asgi": {"version": "3.0"}}, parts))


async def _exchange(scope: dict[str, Any], parts: list[bytes]) -> tuple[int, bytes]:
    asked: Any = ApplicationCommunicator(get_asgi_application(), scope)  # type: ignore[no-untyped-call]
    for part in parts:
        await asked.send_input({"type": "http.request", "body": part, "more_body": True})
    await asked.send_input({"type": "http.request", "body": b""})
    start = await asked.receive_output(10)
    body = (await asked.receive_output(10))["body"]
    await asked.wait(10)
    return start["status"], body


def test_a_body_without_a_length_is_bounded_and_a_stop_is_recorded_all_the_same() -> None:
    workspace: Workspace = World().workspace
    token = token_text(workspace)
    run = Wire(token).run()
    huge = [b'{"note": "', *[b"x" * bodies.LIMIT] * 4, b'"}']
    status, body = sent_in_parts("/api/v1/runs", token, huge)
    assert (status, b"/problems/too-large" in body) == (413, True)
    status, body = sent_in_parts(f"/api/v1/runs/{run['id']}/stops", token, huge)
    assert (status, b"larger than" in body) == (201, True)
    assert StopRequest.objects.count() == 1
    status, _ = sent_in_parts("/api/v1/runs", token, [b'{"key": ', b'"in parts"}'])
    assert (status, Run.objects.filter(key="in parts").count()) == (201, 1)


# --- A crowd ----------------------------------------------------------------------------------------------


def test_a_crowd_waits_and_a_stop_passes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = agent_of(a_workspace())
    run, narrow = agent.run(), crowd.Crowd(1)
    monkeypatch.setattr("dashboard.api.crowd", narrow)
    monkeypatch.setattr(crowd, "PATIENCE_S", 0.05)
    inside, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with narrow.place():
            inside.set()
            leave.wait(30)
        connections.close_all()

    staying = threading.Thread(target=stay)
    staying.start()
    try:
        assert inside.wait(30)
        said = agent.effect(run)
        assert (said.status, said.problem) == (503, "store-unavailable")
        assert said.headers["Retry-After"] == "1"
        assert agent.stop(run).status == 201
    finally:
        leave.set()
        staying.join(30)
    assert agent.get(f"/runs/{run['id']}").status == 200


def test_a_crowd_leaves_some_connections_of_a_pool_free() -> None:
    assert crowd.places({"OPTIONS": {"pool": {"max_size": 20}}}) == 16
    assert crowd.places({"OPTIONS": {"pool": {"max_size": 2}}}) == 1
    assert crowd.places({"OPTIONS": {}}) is None
    assert crowd.places({}) is None
