"""Unknowns over HTTP: lists by due time, one with its answers, a look-up at once. No token resolves."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from effects import resolve
from effects.models import Effect, Resolution
from runs.models import Token
from tests.effects.unknowns import MATTERS, an_unknown, looked_up, now, recorded, settled
from tests.wire import Wire, agent_of
from tests.worlds import World, a_kind, a_run, a_step, an_effect, in_seconds

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent(world: World) -> Wire:
    return agent_of(world.workspace)


def ids(said: object) -> list[str]:
    return [one["id"] for one in said.data["items"]]  # type: ignore[attr-defined]


def test_what_falls_due_first_comes_first_and_a_cursor_goes_on(world: World, agent: Wire) -> None:
    rows = [
        an_unknown(world, matter, unknown_since=in_seconds(-hours * 3600))
        for matter, hours in (("effect", 1), ("delivery", 3), ("compensation", 2), ("effect", 9))
    ]
    settled(world, "CONFIRMED", "looked up")
    an_unknown(World())
    expected = [rows[3].pk, rows[1].pk, rows[2].pk, rows[0].pk]
    assert ids(agent.get("/unknowns")) == expected
    found, cursor = [], ""
    while True:
        page = agent.get(f"/unknowns?limit=1&cursor={cursor}")
        found += ids(page)
        cursor = page.data["next_cursor"]
        if not cursor:
            break
    assert found == expected
    assert agent.get("/unknowns?cursor=nonsense").problem == "invalid-request"


def test_the_list_is_narrowed_by_kind_run_due_time_and_who_looks_after_it(world: World, agent: Wire) -> None:
    late = an_unknown(world, unknown_since=in_seconds(-5 * 3600))
    soon, message = an_unknown(world), an_unknown(world, "delivery")
    Effect.objects.filter(pk=soon.pk).update(kind_name="crm.note")
    resolve.take(actor=world.alice, subject_id=message.pk)
    Token.objects.filter(workspace=world.workspace).update(created_by=world.alice.user)
    for query, expected in {
        "overdue=true": [late],
        "overdue=false": [soon, message],
        "kind=crm.note": [soon],
        "kind=delivery": [message],
        f"run_id={late.run_id}": [late],
        "mine=true": [message],
        "due_before=2020-01-01T00:00:00Z": [],
    }.items():
        assert sorted(ids(agent.get(f"/unknowns?{query}"))) == sorted(row.pk for row in expected), query


def test_a_token_of_one_run_sees_that_run(world: World) -> None:
    mine, other = an_unknown(world), an_unknown(world)
    bound = agent_of(world.workspace, run=mine.run)
    assert ids(bound.get("/unknowns")) == [mine.pk]
    assert ids(bound.get(f"/unknowns?run_id={other.run_id}")) == []
    assert bound.get(f"/unknowns/{other.pk}").status == 404


@pytest.mark.parametrize("matter", MATTERS)
def test_one_is_read_with_its_answers_and_verdicts(world: World, agent: Wire, matter: str) -> None:
    row = an_unknown(world, matter)
    line = looked_up(row, "can't tell", detail="500")
    made = recorded(row, world.alice, "cannot be determined")
    told = agent.get(f"/unknowns/{row.pk}").data
    assert (told["id"], told["matter"], told["state"]) == (row.pk, matter, "UNKNOWN")
    assert (told["answers"][0]["seq"], told["answers"][0]["kind"]) == (line, "effect.looked_up")
    kept = told["answers"][0]["payload"]
    assert (kept["answer"], kept["detail"], kept["attempt"]) == ("can't tell", "500", row.attempt)
    assert kept["asked_at"], "so that what it proves can be judged as it was"
    assert [(one["id"], one["in_force_at"]) for one in told["resolutions"]] == [(made.pk, None)]
    assert told["cannot_ask"].startswith("Nobody can be asked:")


def test_what_never_was_unknown_is_not_here(world: World, agent: Wire) -> None:
    effect = an_effect(a_step(a_run("ACTIVE", world.workspace)), "CONFIRMED")
    assert agent.get(f"/unknowns/{effect.pk}").status == 404


@pytest.mark.parametrize("matter", MATTERS)
def test_where_nobody_can_be_asked_the_answer_says_why(world: World, agent: Wire, matter: str) -> None:
    row = an_unknown(world, matter)
    said = agent.post(f"/unknowns/{row.pk}/check", {})
    reasons = {"effect": "no_kind", "delivery": "a_message", "compensation": "no_look_up"}
    assert (said.status, said.problem) == (409, "cannot-be-asked")
    assert said.data["reason"] == reasons[matter]


@pytest.mark.invariant("I9")
@pytest.mark.parametrize("scope", ["runs:write", "runs:read", "resume:write"])
def test_no_token_says_what_happened(world: World, scope: str) -> None:
    row = an_unknown(world)
    token = agent_of(world.workspace, scope)
    body = {"verdict": "happened", "evidence": "The ledger has it"}
    said = token.post(f"/unknowns/{row.pk}/resolutions", body)
    assert (said.status, said.problem, now(row)) == (403, "people-only", "UNKNOWN")
    assert not Resolution.objects.exists()


def test_a_long_list_is_read_in_as_many_queries_as_a_short_one(world: World, agent: Wire) -> None:
    kind = a_kind(world.workspace)
    counts = []
    agent.get("/unknowns")  # notes the use of its token
    for many in (3, 40):
        for _ in range(many):
            an_unknown(world, kind=kind)
        with CaptureQueriesContext(connection) as captured:
            assert len(ids(agent.get("/unknowns?limit=40"))) == min(many + 3 * (many == 40), 40)
        counts.append(len(captured))
    assert counts[0] == counts[1]
