"""Limits of API calls: everything but what stops, what reports and what beats; told in headers; bounded."""

from __future__ import annotations

from typing import Any

import pytest

from runs import throttle
from runs.throttle import Buckets, Limits
from runs.tokens import failed_tokens
from tests.wire import Wire, agent_of, token_text
from tests.worlds import World

QUOTA = 4


@pytest.fixture
def world(db: None) -> World:
    return World()


@pytest.fixture
def agent(world: World) -> Wire:
    return agent_of(world.workspace)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr("runs.throttle.time.monotonic", lambda: now[0])
    return now


@pytest.fixture
def narrow(agent: Wire, clock: list[float], monkeypatch: pytest.MonkeyPatch) -> Limits:
    """From here on a token may make QUOTA calls a minute, an address three times as many."""
    failed_tokens.forget()  # they were counted by the clock of before
    limits = Limits(QUOTA, 3 * QUOTA)
    monkeypatch.setattr(throttle, "limits", limits)
    return limits


def spend(agent: Wire, calls: int = QUOTA) -> None:
    assert {agent.get("/runs").status for _ in range(calls)} == {200}


def test_a_token_that_calls_too_often_is_told_when_to_come_back(
    agent: Wire, narrow: Limits, clock: list[float]
) -> None:
    first = agent.get("/runs")
    assert first.headers["RateLimit-Policy"] == '"address";q=12;w=60, "token";q=4;w=60'
    assert first.headers["RateLimit"] == '"address";r=11;t=5, "token";r=3;t=15'
    spend(agent, QUOTA - 1)
    said = agent.get("/runs")
    assert (said.status, said.problem) == (429, "too-many-requests")
    assert said.headers["Retry-After"] == "15"
    assert said.headers["RateLimit-Policy"] == '"token";q=4;w=60'
    assert said.headers["RateLimit"] == '"token";r=0;t=60'
    clock[0] += 15
    assert [agent.get("/runs").status for _ in range(2)] == [200, 429]


def test_stops_reports_and_heartbeats_have_no_limit(world: World, agent: Wire, narrow: Limits) -> None:
    run = agent.run()
    permit = agent.permitted(run)["permit"]
    spend(agent, QUOTA - 2)
    assert agent.get("/runs").status == 429
    seen = {"worker": "w-1", "seen_version": 1}
    beats = [agent.post(f"/runs/{run['id']}/heartbeat", seen).status for _ in range(2 * QUOTA)]
    stops = [agent.stop(run, key=f"press-{n}").status for n in range(2 * QUOTA)]
    by_key = agent.post("/stops", {"run_key": "not there yet"}).status
    assert (beats, stops, by_key) == ([200] * 8, [201] + [200] * 7, 201)
    stop = agent.stop(run).data["id"]
    assert {agent.post(f"/stops/{stop}/deadline").status for _ in range(2 * QUOTA)} == {200}
    assert agent.report(permit).status == 200
    assert agent.effect(run, "charge:8").status == 429


def test_what_was_held_up_was_not_done_and_its_key_is_still_good(
    agent: Wire, narrow: Limits, clock: list[float]
) -> None:
    spend(agent)
    assert agent.post("/runs", {"key": "later"}, key="one").status == 429
    clock[0] += 60
    said = agent.post("/runs", {"key": "later"}, key="one")
    assert (said.status, said.replayed) == (201, False)


def test_each_token_has_its_own_limit_and_an_address_has_one_for_all(world: World, narrow: Limits) -> None:
    agents = [agent_of(world.workspace) for _ in range(4)]
    for agent in agents[:3]:
        spend(agent)
    said = agents[3].get("/runs")
    assert (said.status, said.headers["RateLimit"]) == (429, '"address";r=0;t=60')


def test_who_knows_only_a_tokens_id_can_not_use_up_its_calls(world: World, narrow: Limits) -> None:
    text = token_text(world.workspace)
    forged = Wire(text[:13] + "0" * 64 + text[77:])
    assert {forged.get("/runs").status for _ in range(QUOTA)} == {401}
    assert forged.get("/runs").status == 429
    assert Wire(text).get("/runs").status == 200


def test_a_flood_of_names_takes_bounded_room(clock: list[float]) -> None:
    buckets = Buckets(2, kept=100)
    for n in range(1000):
        buckets.take(f"address {n}")
    assert len(buckets) == 100
    assert [buckets.take("address 999").wait_s, buckets.take("address 999").wait_s] == [0, 30]
    clock[0] += 3600
    assert buckets.take("address 999").left == 1


@pytest.mark.parametrize("given", [(0, 0), (0, 5), (5, 0)])
def test_a_limit_of_none_is_none(given: tuple[int, int], rf: Any) -> None:
    limits = Limits(*given)
    found = limits.take(rf.get("/", headers={"Authorization": "Bearer x"}), "here")
    assert set(found) == {name for name, quota in zip(("token", "address"), given, strict=True) if quota}


def test_the_limits_as_shipped_are_far_above_what_an_agent_needs() -> None:
    assert throttle.limits.of_token is not None
    assert throttle.limits.of_address is not None
    assert throttle.limits.of_token.quota == 6000
    assert throttle.limits.of_address.quota == 12000
