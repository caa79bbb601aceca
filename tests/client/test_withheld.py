"""A stop of one step, or of effects of a kind, is no stop of the run: the agent may go on."""

# ruff: noqa: PT012 - what raises is the end of the run's own block

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from allstop import Client, Effect, Step, StopRequested, Withheld, http_outcome
from allstop.aio import AsyncClient
from allstop.base import target
from allstop.errors import from_problem

from tests.client.site import Site, until


@pytest.fixture
def client(site: Site) -> Iterator[Client]:
    with site.client() as client:
        yield client


def effect_of(step: Step, key: str) -> Effect:
    return step.effect(key=key, kind="bank.charge", none_because="a test", outcome_of=http_outcome)


def test_a_stopped_step_is_withheld_and_its_run_completes(site: Site, client: Client) -> None:
    with client.run("withheld:one") as run:
        with run.step("first") as step:
            effect_of(step, "withheld:1").send(site.charge, "withheld:1")
            stop = client.request_stop(step_id=step.id)
            with pytest.raises(Withheld) as caught:
                effect_of(step, "withheld:2").send(site.charge, "withheld:2")
        assert (caught.value.scope, caught.value.stop_id) == ("step", stop["id"])
        assert isinstance(caught.value, Exception), "an agent may catch it, and go on"
        run.checkpoint(ask=True)
        site.effect(run, "withheld:3").send(site.charge, "withheld:3")
    assert site.see(f"runs/{run.id}")["status"] == "COMPLETED"
    assert [site.bank.ledger.sends(f"withheld:{n}") for n in (1, 2, 3)] == [1, 0, 1]
    assert site.see(f"steps/{step.id}")["status"] == "SUCCEEDED"


def test_a_stop_between_permit_and_send_shuts_the_second_look_alone(site: Site, client: Client) -> None:
    with client.run("withheld:between") as run, run.step("first") as step:
        effect = effect_of(step, "withheld:between:1")
        answer, asked_at = effect._ask()
        permit = run.permit_in(answer, asked_at)
        client.request_stop(step_id=step.id)
        with pytest.raises(Withheld):
            step.spend(permit, lambda: site.charge("withheld:between:1"), http_outcome, keep_result=True)
        with pytest.raises(Withheld):
            step.checkpoint()
        run.checkpoint()
    assert site.bank.ledger.sends("withheld:between:1") == 0
    assert site.see(f"steps/{step.id}")["status"] == "WITHHELD"


def test_a_heartbeat_tells_a_step_that_it_was_stopped(site: Site, client: Client) -> None:
    with client.run("withheld:beat") as run:
        with pytest.raises(Withheld), run.step("long") as step:
            client.request_stop(step_id=step.id)

            def told() -> bool:
                try:
                    step.checkpoint()
                except Withheld:
                    return True
                return False

            assert until(told)
            step.checkpoint()
        run.checkpoint()
    assert site.see(f"runs/{run.id}")["status"] == "COMPLETED"


def test_a_run_that_ends_with_it_is_neither_failed_nor_completed(site: Site, client: Client) -> None:
    with pytest.raises(Withheld), client.run("withheld:left") as run, run.step("only") as step:
        client.request_stop(step_id=step.id)
        effect_of(step, "withheld:left:1").send(site.charge, "withheld:left:1")
    assert site.see(f"runs/{run.id}")["status"] == "ACTIVE"


def test_a_stopped_session_stops_its_runs_for_good(site: Site, client: Client) -> None:
    with pytest.raises(StopRequested), client.run("of-session", session="evening") as run:
        stop = client.request_stop(session="evening", reason="wrong list")
        assert (stop["scope"], stop["runs"]["done"]) == ("session", 1)
        site.effect(run, "evening:1").send(site.charge, "evening:1")
    assert site.bank.ledger.sends("evening:1") == 0


async def test_the_async_client_does_the_same(site: Site) -> None:
    async with (
        AsyncClient(site.web.url, site.token, worker="w-1", heartbeat_s=0.2) as client,
        client.run("aio:withheld") as run,
    ):
        async with run.step("first") as step:
            await client.request_stop(step_id=step.id)
            effect = step.effect(key="aio:w", kind="bank.charge", none_because="a test")
            async with httpx2.AsyncClient() as http:
                with pytest.raises(Withheld):
                    await effect.send(http.post, f"{site.bank.url}/charges", json={})
        run.checkpoint()
    assert site.see(f"runs/{run.id}")["status"] == "COMPLETED"
    assert site.bank.ledger.sends("aio:w") == 0


@pytest.mark.parametrize(
    ("problem", "raised"),
    [
        ({"run_goes_on": True, "scope": "step"}, Withheld),
        ({"run_goes_on": True, "scope": "policy"}, Withheld),
        ({"run_goes_on": False, "scope": "workspace", "run_status": "ACTIVE"}, StopRequested),
        ({"run_status": "ACTIVE"}, StopRequested),
        ({"run_goes_on": "yes"}, StopRequested),
    ],
)
def test_only_what_says_that_the_run_goes_on_lets_it(problem: dict[str, Any], raised: type) -> None:
    assert type(from_problem(409, {"type": "/problems/stopped", **problem})) is raised


def test_a_stop_names_one_thing() -> None:
    assert target(None, run_id="run_1") == ("runs/run_1/stops", {})
    assert target("step", step_id="ste_1") == ("steps/ste_1/stops", {})
    assert target(None, run_key="a") == ("stops", {"run_key": "a"})
    assert target("workspace") == ("stops", {"scope": "workspace"})
    assert target(None, run_ids=["run_1"]) == ("stops", {"run_ids": ["run_1"], "scope": "runs"})
    wrong: list[tuple[str | None, dict[str, Any]]] = [
        (None, {}),
        ("session", {}),
        ("session", {"policy": "eu"}),
        ("workspace", {"session": "nightly"}),
        (None, {"run_id": "run_1", "run_key": "a"}),
    ]
    for scope, named in wrong:
        with pytest.raises(TypeError, match="what to stop"):
            target(scope, **named)
