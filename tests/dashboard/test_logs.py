"""The log: one event a line with its ids, as JSON or as text, and nothing secret in either."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.test import AsyncClient, Client
from pytest_django.fixtures import Settings

from dashboard import logs
from tests.dashboard.scenes import browser
from tests.wire import agent_of
from tests.worlds import World, a_workspace

CANARY = "canary-7f3a"
ON = pytest.mark.parametrize("kind", ["json", "text"])


class Log(StringIO):
    """What a process with this format would have written."""

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


@pytest.fixture
def kind() -> str:
    return "json"


@pytest.fixture
def log(kind: str) -> Iterator[Log]:
    written = Log()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logs.formatter(kind))
    root, ours = logging.getLogger(), logging.getLogger("allstop")
    before = root.level, ours.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    ours.setLevel(logging.INFO)
    yield written
    root.removeHandler(handler)
    root.setLevel(before[0])
    ours.setLevel(before[1])


def broken(*args: object, **kwargs: object) -> None:
    raise RuntimeError(f"the first line\npassword={CANARY} and the row")


@pytest.mark.django_db(transaction=True)
def test_a_stop_is_told_with_request_run_stop_version_and_workspace(log: Log) -> None:
    world = World()
    run, agent = world.run(), agent_of(world.workspace)
    stop = agent.stop({"id": run.pk}, {"note": CANARY}, X_Request_Id="from-the-caller")
    told = [event for event in log.events() if event["event"].startswith("stop.")]
    assert [event["event"] for event in told] == ["stop.acknowledged", "stop.fenced"]
    ids = {"run": run.pk, "stop": stop.data["id"], "version": 2, "workspace": world.workspace.pk}
    for event in told:
        assert ids | {"request_id": "from-the-caller", "level": "info"} == {
            name: event[name] for name in (*ids, "request_id", "level")
        }
    assert stop.headers["X-Request-Id"] == "from-the-caller"
    assert CANARY not in log.getvalue()


@pytest.mark.django_db(transaction=True)
def test_a_stop_that_timed_out_is_a_warning_and_one_that_closed_is_told(log: Log) -> None:
    from effects import drain
    from runs.models import StopRequest
    from tests.worlds import in_seconds, lapse

    world = World()
    run = world.run()
    opened = world.opened(run)
    world.stop(run)
    StopRequest.objects.update(deadline_at=in_seconds(-1))
    drain.drain_run(run.pk)
    world.report(opened, "not_applied")
    lapse(opened.permit.step)
    drain.drain_run(run.pk)
    told = {event["event"]: event for event in log.events() if event.get("run") == run.pk}
    assert told["stop.timed_out"]["level"] == "warning"
    assert told["stop.timed_out"]["version"] == 2
    assert {"stop.quiet", "stop.closed", "run.cancelled"} <= set(told)


@pytest.mark.django_db(transaction=True)
def test_what_a_task_does_is_told_with_the_tasks_name(log: Log) -> None:
    from effects import tasks

    world = World()
    run = world.run()
    world.stop(run)
    tasks.sweep()
    (closed,) = [event for event in log.events() if event["event"] == "stop.closed"]
    assert (closed["task"], closed["run"], "request_id" in closed) == ("sweep", run.pk, False)


@pytest.mark.parametrize("shown", ["", "short", "with space", "x" * 65, "new\nline", "-starts-badly"])
def test_an_id_that_can_not_be_used_is_replaced(client: Client, shown: str) -> None:
    answer = client.get("/livez", headers={"X-Request-Id": shown})
    assert answer.headers["X-Request-Id"] not in ("", shown)
    assert len(answer.headers["X-Request-Id"]) == 16


async def test_served_without_a_thread_the_id_is_given_back_too(async_client: AsyncClient) -> None:
    answer = await async_client.get("/livez", headers={"X-Request-Id": "from-a-proxy"})
    assert answer.headers["X-Request-Id"] == "from-a-proxy"


@pytest.mark.django_db(transaction=True)
def test_the_error_that_a_page_shows_is_the_one_in_the_log(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dashboard.pages.home.page", broken)
    client = browser(World().alice)
    client.raise_request_exception = False
    answer = client.get("/help")
    assert answer.status_code == 500
    found = answer.headers["X-Request-Id"]
    assert f"Error {found}." in answer.content.decode()
    (event,) = [event for event in log.events() if "exception" in event]
    assert event["request_id"] == found
    assert "RuntimeError: the first line" in event["exception"]


@pytest.mark.django_db(transaction=True)
def test_the_error_that_the_api_tells_is_the_one_in_the_log(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agent_of(a_workspace())
    monkeypatch.setattr("runs.access.find_run", broken)
    said = agent.get(f"/runs/run_{'0' * 32}/report")
    assert (said.status, said.problem) == (500, "internal-error")
    (event,) = [event for event in log.events() if "exception" in event]
    assert said.data["error_id"] == said.headers["X-Request-Id"] == event["request_id"]


@ON
@pytest.mark.django_db(transaction=True)
def test_no_header_body_token_or_password_gets_into_the_log(
    log: Log, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    agent, page = agent_of(world.workspace), browser(world.alice)
    headers = {"Cookie": f"sessionid={CANARY}", "X-Api-Key": CANARY, "Idempotency-Key": CANARY}
    run = {"id": world.run().pk}
    agent.stop(run, {"note": CANARY, "password": CANARY}, **headers)
    agent.post("/runs", {"key": CANARY, "name": CANARY}, **headers)
    agent.call("POST", "/runs", raw=CANARY.encode(), **headers)
    Client().post("/sign-in", {"login": "alice@example.org", "password": CANARY})
    page.get(f"/nowhere?token={CANARY}")
    page.post(f"/runs/{run['id']}/stop", {"note": CANARY, "key": CANARY})
    for where in ("runs.access.find_run", "effects.stop_api.stops.request_stop"):
        monkeypatch.setattr(where, broken)
    agent.get(f"/runs/{run['id']}/report", **headers)
    agent.stop(run, {"note": CANARY}, **headers)
    assert "the first line" in log.getvalue()
    assert [secret for secret in (CANARY, agent.token, agent.token[4:]) if secret in log.getvalue()] == []


@ON
@pytest.mark.parametrize(
    "said",
    [
        f"als_01234567_{'f' * 64}_89abcdef",
        f"Authorization: Bearer {CANARY}",
        f"{{'Authorization': 'Bearer {CANARY}'}}",
        f'{{"password": "{CANARY}"}}',
        f"postgres://allstop:{CANARY}@db/allstop",
        f"GET /x?claim_token={CANARY}&page=2",
        f"sessionid={CANARY}; path=/",
        f"SECRET_KEY={CANARY}",
    ],
)
def test_what_looks_like_a_secret_is_taken_out_of_any_line(log: Log, said: str) -> None:
    logging.getLogger("anything").error("it said %s", said)
    assert CANARY not in log.getvalue()
    assert "ffff" not in log.getvalue()
    assert "it said" in log.getvalue()


def test_an_event_is_one_line_whatever_it_quotes(log: Log) -> None:
    logging.getLogger("anything").warning("a path /x\nstop.acknowledged %s", "\u2028", extra={"run": "a\nb"})
    (event,) = log.events()
    assert (event["run"], event["logger"]) == ("a\nb", "anything")


@pytest.mark.parametrize("kind", ["text"])
def test_a_line_of_text_is_one_line_too(log: Log) -> None:
    logging.getLogger("anything").warning("a path /x\nstop.acknowledged", extra={"run": "a\nb", "other": 1})
    (line,) = log.getvalue().splitlines()
    assert line.endswith(r"WARNING anything: a path /x\x0astop.acknowledged run=a\x0ab")


def test_a_format_that_there_is_not_is_named() -> None:
    with pytest.raises(ValueError, match="it can be text or json"):
        logs.formatter("xml")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("behind", "address"), [(True, "203.0.113.9"), (False, "127.0.0.1")])
def test_behind_a_proxy_the_address_is_the_one_that_the_proxy_met(
    settings: Settings, behind: bool, address: str
) -> None:
    settings.ALLSTOP_BEHIND_PROXY = behind
    agent = agent_of(a_workspace())
    agent.stop(agent.run(), X_Forwarded_For="198.51.100.1, 203.0.113.9")
    from runs.models import Press

    assert Press.objects.get().address == address
