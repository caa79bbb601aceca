"""Reviews over HTTP: the gate's fourth answer, reading, and that no token decides."""

from __future__ import annotations

import pytest
from django.test import Client

from effects import approvals
from effects.models import Review
from runs.models import IdempotencyRecord
from tests.wire import Wire, agent_of, effect_body
from tests.worlds import World, fresh

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent(world: World) -> Wire:
    return agent_of(world.workspace)


def approve(world: World, review_id: str) -> None:
    review = Review.objects.get(pk=review_id)
    approvals.approve(actor=world.bob, review_id=review_id, digest=review.digest, signed_in_s=1)


def test_people_first_is_202_and_the_same_request_asks_again(world: World, agent: Wire) -> None:
    run = agent.run()
    body, key = effect_body(run, approval=True), "ask-1"
    said = agent.post(f"/runs/{run['id']}/effects", body, key=key)
    assert (said.status, said.data["permit"], said.data["known"]) == (202, None, "waiting")
    assert said.data["what_to_do"].startswith("Do not send.")
    review = said.data["review"]
    assert (review["status"], review["needed"], review["given"]) == ("waiting", 1, 0)
    assert said.data["effect"]["settlement"] == "DECLARED"
    assert not IdempotencyRecord.objects.filter(key=key).exists(), "an answer that will change is not kept"
    assert agent.post(f"/runs/{run['id']}/effects", body, key=key).status == 202
    approve(world, review["id"])
    granted = agent.post(f"/runs/{run['id']}/effects", body, key=key)
    assert (granted.status, granted.data["permit"]["state"]) == (201, "OPEN")
    assert agent.post(f"/runs/{run['id']}/effects", body, key=key).data == granted.data, "a permit is kept"


def test_an_effect_that_was_declared_can_be_dispatched_with_a_wish_for_people(
    world: World, agent: Wire
) -> None:
    run = agent.run()
    step = agent.claimed(run)
    held = {"id": step["id"], "claim_token": step["claim_token"]}
    declared = agent.post(f"/runs/{run['id']}/effects", effect_body(run, step=held, dispatch=False))
    assert declared.status == 201
    ask = {"step_claim_token": step["claim_token"], "worker": "w-1", "seen_version": 1, "approval": 2}
    said = agent.post(f"/effects/{declared.data['effect']['id']}/dispatch", ask)
    assert (said.status, said.data["review"]["needed"]) == (202, 2)
    claim = {"worker": "w-1", "seen_version": 1}
    assert agent.post(f"/steps/{step['id']}/claim", claim).problem == "lost-claim"


def test_a_refusal_by_people_has_a_type_of_its_own(world: World, agent: Wire) -> None:
    run = agent.run()
    review = agent.effect(run, approval=True).data["review"]
    approvals.reject(actor=world.bob, review_id=review["id"], reason="wrong card")
    said = agent.effect(run, approval=True)
    assert (said.status, said.problem, said.data["run_status"]) == (409, "not-approved", "ACTIVE")
    read = agent.get(f"/reviews/{review['id']}").data
    assert (read["status"], read["reason"], read["closed_by"]) == ("rejected", "wrong card", world.bob.id)


def test_no_token_decides_whatever_its_scopes(world: World) -> None:
    every = ("runs:read", "runs:write", "stop:write", "resume:write", "kinds:write", "rules:write")
    agent = agent_of(world.workspace, *every)
    review = agent.effect(agent.run(), approval=True).data["review"]
    for decision in ("approve", "reject", "revoke"):
        said = agent.post(f"/reviews/{review['id']}/decisions", {"decision": decision})
        assert (said.status, said.problem) == (403, "people-only")
        assert "Tokens never count" in said.data["detail"]
    found = fresh(Review.objects.get())
    assert (found.closed_at, found.granted_at, found.approvals.count()) == (None, None, 0)


def test_a_signed_in_reviewer_decides_on_the_page_and_not_over_the_api(world: World, agent: Wire) -> None:
    review = agent.effect(agent.run(), approval=True).data["review"]
    assert world.bob.user is not None
    client = Client()
    client.force_login(world.bob.user)
    said = Wire(client=client).post(f"/reviews/{review['id']}/decisions", {"decision": "approve"})
    assert said.status == 401, "a session reads; it writes on pages, behind their forms' tokens"
    assert Wire(client=client).get(f"/reviews/{review['id']}").status == 200


def test_reviews_are_listed_by_run_and_by_whether_they_wait(world: World, agent: Wire) -> None:
    run, other = agent.run(), agent.run("other")
    first = agent.effect(run, "charge:1", approval=True).data["review"]["id"]
    second = agent.effect(other, "charge:2", approval=2).data["review"]["id"]
    approve(world, first)
    agent.effect(run, "charge:1", approval=True)
    ids = [item["id"] for item in agent.get("/reviews").data["items"]]
    assert ids == [second, first]
    assert [item["id"] for item in agent.get(f"/reviews?run_id={run['id']}").data["items"]] == [first]
    assert [item["id"] for item in agent.get("/reviews?waiting=true").data["items"]] == [second]
    used = agent.get("/reviews?waiting=false").data["items"]
    assert [(item["status"], item["given"], item["approvals"][0]["state"]) for item in used] == [
        ("used", 1, "CONSUMED")
    ]
    bound = agent_of(world.workspace, run=Review.objects.get(pk=second).run)
    assert [item["id"] for item in bound.get("/reviews").data["items"]] == [second]
    assert bound.get(f"/reviews/{first}").status == 404


@pytest.mark.parametrize("approval", ["true", 1.5, -1, 10, None])
def test_a_wish_that_can_not_be_is_refused(agent: Wire, approval: object) -> None:
    said = agent.effect(agent.run(), approval=approval)
    assert (said.status, said.problem) == (422, "invalid-request")
