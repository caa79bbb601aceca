"""Compensations over HTTP: an agent proposes and reads; it decides nothing, whatever its scopes."""

from __future__ import annotations

from typing import Any

import pytest

from effects.models import Compensation, Review
from runs.models import Token
from tests.effects.compensations import a_charge, allow, approve, brought_to, charged, edit, proposed, said
from tests.wire import Wire, agent_of, kind_body
from tests.worlds import World, fresh

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent(world: World) -> Wire:
    return agent_of(world.workspace)


def test_an_agent_proposes_what_it_declared_and_reads_what_becomes_of_it(world: World, agent: Wire) -> None:
    effect = a_charge(world)
    told = agent.post(f"/effects/{effect.pk}/compensations", {"wish": "charged twice"})
    assert told.status == 201
    made = told.data
    assert (made["state"], made["queued"], made["number"], made["effect_key"]) == (
        "PROPOSED",
        False,
        1,
        "charge:7",
    )
    assert (made["key"], made["amount"], made["class"]) == (made["id"], "€100.00", "external_write")
    assert (made["review"]["status"], made["review"]["needed"], made["review"]["step_id"]) == (
        "waiting",
        1,
        None,
    )
    assert "body" not in made
    again = agent.post(f"/effects/{effect.pk}/compensations", {})
    assert (again.status, again.data) == (200, made), "one is open at a time"
    row = Compensation.objects.get()
    assert said(approve(row, world.bob)) == "granted"
    read = agent.get(f"/compensations/{row.pk}").data
    assert (read["state"], read["queued"], read["review"]["status"]) == ("APPROVED", True, "granted")
    assert agent.get(f"/reviews/{read['review']['id']}").data["subject_id"] == row.pk
    assert [one["id"] for one in agent.get(f"/compensations?run_id={row.run_id}").data["items"]] == [row.pk]
    assert [one["id"] for one in agent.get("/compensations?state=approved").data["items"]] == [row.pk]
    for other in ("state=verified", "run_id=run_0", "effect_id=eff_0"):
        assert agent.get(f"/compensations?{other}").data["items"] == []


def test_why_nothing_is_proposed_has_a_code_and_a_sentence(world: World, agent: Wire) -> None:
    effect = a_charge(world, "CANCELLED")
    allow(world, after_a_stop=False)
    told = agent.post(f"/effects/{effect.pk}/compensations", {})
    assert (told.status, told.problem, told.data["reason"]) == (409, "not-proposed", "stopped")
    assert told.data["detail"] == "The rules don't let it run for a run that was stopped."
    assert not Compensation.objects.exists()
    allow(world)
    made = proposed(effect, world.alice)
    itself = agent.post(f"/effects/{made.pk}/compensations", {})
    assert (itself.status, itself.data["reason"]) == (409, "itself")


def test_no_token_edits_or_decides_whatever_its_scopes(world: World) -> None:
    every = ("runs:read", "runs:write", "stop:write", "resume:write", "kinds:write", "rules:write")
    agent = agent_of(world.workspace, *every)
    made = proposed(a_charge(world), world.alice)
    before = fresh(made).__dict__
    for path, body in (("edit", {"amount": "€1.00"}), ("not-needed", {"reason": "paid in cash"})):
        said_ = agent.post(f"/compensations/{made.pk}/{path}", body)
        assert (said_.status, said_.problem) == (403, "people-only")
    review = Review.objects.get()
    refused = agent.post(f"/reviews/{review.pk}/decisions", {"decision": "approve"})
    assert (refused.status, refused.problem) == (403, "people-only")
    now = fresh(made).__dict__
    assert {name: now[name] for name in now if name != "_state"} == {
        name: before[name] for name in before if name != "_state"
    }
    reads = agent_of(world.workspace, "runs:read", "stop:write")
    assert reads.post(f"/effects/{made.effect_id}/compensations", {}).status == 403


def test_whoever_made_the_token_that_proposed_may_not_approve(world: World, agent: Wire) -> None:
    effect = a_charge(world)
    Token.objects.update(created_by=world.bob.user)
    made = agent.post(f"/effects/{effect.pk}/compensations", {}).data
    row = Compensation.objects.get(pk=made["id"])
    assert row.proposer == world.bob.user
    assert said(approve(row, world.bob)) == "proposer"
    assert said(approve(row, world.carol)) == "granted"


def test_a_token_of_another_run_and_a_stranger_see_nothing(world: World, agent: Wire) -> None:
    made = proposed(a_charge(world), world.alice)
    bound = agent_of(world.workspace, run=world.run("another"))
    for who in (bound, agent_of(world.elsewhere)):
        assert who.get(f"/compensations/{made.pk}").status == 404
        assert who.get("/compensations").data["items"] == []
        assert who.post(f"/effects/{made.effect_id}/compensations", {}).status == 404
        assert who.post(f"/effects/{made.pk}/compensations", {}).status == 404
        assert who.post(f"/compensations/{made.pk}/edit", {}).status == 404
    own = agent_of(world.workspace, run=made.run)
    assert own.get(f"/compensations/{made.pk}").status == 200


def test_a_kind_says_on_the_wire_what_lessens_its_effects(world: World, agent: Wire) -> None:
    template = {"kind": "bank.refund", "body": '{"charge": "{ref}"}', "expected": "one refund"}
    agent.put("/kinds/bank.charge", kind_body(compensate=template))
    refund: dict[str, Any] = {"provider": "http", "send": {"url": "https://bank.example/refunds"}}
    agent.put("/kinds/bank.refund", kind_body(**refund))
    allow(world)
    run = agent.run()
    got = agent.permitted(run, plan={"kind": "bank.refund"})
    report = {"claim_token": got["permit"]["claim_token"], "outcome": "applied", "provider_ref": "ch_9"}
    agent.post(f"/permits/{got['permit']['id']}/report", report)
    agent.post(f"/runs/{run['id']}/complete", {"seen_version": 1})
    made = agent.post(f"/effects/{got['effect']['id']}/compensations", {})
    assert (made.status, made.data["expected"]) == (201, "one refund")
    assert bytes(Compensation.objects.get().body) == b'{"charge": "ch_9"}', "to the byte"


@pytest.mark.parametrize("number", [1, 5])
def test_a_page_of_them_takes_the_same_queries_whatever_their_number(
    world: World, agent: Wire, number: int, django_assert_max_num_queries: Any
) -> None:
    first = a_charge(world)
    proposed(first, world.alice)
    for n in range(1, number):
        run = world.run(f"run-{n}")
        effect = charged(world, run, key=f"charge:{n}")
        brought_to(world, run, "COMPLETED")
        edit(proposed(effect, world.alice), world.alice)
    agent.get("/compensations")  # the first call of a token is noted for the audit
    with django_assert_max_num_queries(6):
        assert len(agent.get("/compensations").data["items"]) == number
