"""Who may call: tokens by scope, signed-in people for reading, nobody else."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client

from runs import people
from runs.access import SET_UP
from runs.models import Membership, Run, Token, User
from runs.store import database_time
from runs.tokens import failed_tokens
from tests.wire import Wire, agent_of, kind_body, token_text
from tests.worlds import World

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def no_failures_before() -> None:
    failed_tokens.forget()


@pytest.fixture
def agent(world: World) -> Wire:
    return agent_of(world.workspace)


def test_without_a_token_one_is_asked_for(agent: Wire) -> None:
    run = agent.run()
    for method, path in (("GET", "/runs"), ("POST", "/runs"), ("POST", f"/runs/{run['id']}/stops")):
        said = Wire().call(method, path)
        assert (said.status, said.problem) == (401, "token-missing")
        assert said.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    "shown",
    [
        "Bearer nonsense",
        "Bearer als_00000000_" + "0" * 64 + "_00000000",
        "Bearer " + "x" * 10_000,
        "Basic YWxpY2U6c2VjcmV0",
        "Bearer als_é",
        "Bearer",
    ],
)
def test_a_token_that_is_none_is_refused(shown: str) -> None:
    said = Wire().get("/runs", Authorization=shown)
    assert (said.status, said.problem) == (401, "token-refused")
    assert "WWW-Authenticate" in said.headers


def test_expired_revoked_and_changed_tokens_are_refused_at_once(agent: Wire) -> None:
    assert agent.get("/runs").status == 200
    token = Token.objects.get(lookup=agent.token.split("_")[1])
    Token.objects.filter(pk=token.pk).update(
        created_at=database_time() - timedelta(days=2), expires_at=database_time() - timedelta(seconds=1)
    )
    assert agent.get("/runs").problem == "token-refused"
    Token.objects.filter(pk=token.pk).update(expires_at=None)
    assert agent.get("/runs").status == 200
    people.revoke_token(actor=SET_UP, workspace_id=token.workspace_id, token_id=token.pk)
    assert agent.get("/runs").problem == "token-refused"


def test_the_use_of_a_token_is_noted_once_a_minute(agent: Wire) -> None:
    tokens = Token.objects.filter(lookup=agent.token.split("_")[1])
    agent.get("/runs")
    first = tokens.get().last_used_at
    agent.get("/runs")
    assert first is not None
    assert tokens.get().last_used_at == first


def test_each_scope_allows_what_it_names(world: World, agent: Wire) -> None:
    run = agent.run()
    reader = agent_of(world.workspace, "runs:read")
    writer = agent_of(world.workspace, "runs:write")
    assert reader.get(f"/runs/{run['id']}").status == 200
    assert reader.post("/runs", {"key": "new"}).problem == "not-allowed"
    assert reader.effect(run).problem == "not-allowed"
    assert reader.put("/kinds/bank.charge", kind_body()).problem == "not-allowed"
    assert writer.put("/kinds/bank.charge", kind_body()).problem == "not-allowed"
    assert writer.effect(run).status == 201
    assert Run.objects.count() == 1


def test_a_token_of_one_run_sees_and_moves_that_run_only(world: World, agent: Wire) -> None:
    mine, other = agent.run("mine"), agent.run("other")
    bound = agent_of(world.workspace, run=Run.objects.get(pk=mine["id"]))
    assert [run["key"] for run in bound.get("/runs").data["items"]] == ["mine"]
    assert bound.get(f"/runs/{other['id']}").problem == "not-found"
    assert bound.effect(other).problem == "not-found"
    assert bound.run("mine")["id"] == mine["id"]
    assert bound.post("/runs", {"key": "another"}).problem == "not-allowed"
    assert bound.put("/kinds/bank.charge", kind_body()).problem == "not-allowed"
    assert bound.effect(mine).status == 201


def test_a_run_belongs_to_the_person_who_made_its_token(world: World) -> None:
    assert world.alice.user is not None
    owned = Wire(token_text(world.workspace, by=world.alice.user)).run()
    assert Run.objects.get(pk=owned["id"]).owner == world.alice.user


# --- People -----------------------------------------------------------------------------------------------


def signed_in(user: User | None) -> Wire:
    assert user is not None
    client = Client()
    client.force_login(user)
    return Wire(client=client)


def test_a_signed_in_person_reads_and_writes_nothing(world: World, agent: Wire) -> None:
    run = agent.run()
    dana = signed_in(world.dana.user)
    for path in ("", "/steps", "/effects", "/evidence", "/report"):
        assert dana.get(f"/runs/{run['id']}{path}").status == 200
    assert [one["id"] for one in dana.get("/runs").data["items"]] == [run["id"]]
    alice = signed_in(world.alice.user)
    assert alice.stop(run).problem == "token-missing"
    assert alice.post("/runs", {"key": "new"}).problem == "token-missing"
    assert alice.put("/kinds/bank.charge", kind_body()).problem == "token-missing"
    assert Run.objects.get().status == "ACTIVE"


def test_a_person_who_lost_the_role_sees_nothing_at_once(world: World, agent: Wire) -> None:
    run = agent.run()
    dana = signed_in(world.dana.user)
    Membership.objects.filter(user=world.dana.user).delete()
    assert dana.get(f"/runs/{run['id']}").problem == "not-found"
    assert dana.get("/runs").data["items"] == []


def test_a_session_does_not_help_a_token_that_failed(world: World) -> None:
    assert signed_in(world.dana.user).get("/runs", Authorization="Bearer nonsense").status == 401


# --- Failed tokens are slowed down, others never ----------------------------------------------------------


def test_failed_tokens_are_told_to_wait_and_a_good_one_never_is(agent: Wire) -> None:
    stranger = Wire("als_00000000_" + "0" * 64 + "_00000000")
    answers = [stranger.get("/runs") for _ in range(35)]
    assert [said.status for said in answers] == [401] * 30 + [429] * 5
    assert answers[-1].problem == "too-many-failed-tokens"
    assert answers[-1].headers["Retry-After"] == "60"
    assert agent.get("/runs").status == 200
