"""Mallory's token meets every address of the API: nothing tells her that a thing exists elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client

from dashboard.models import Statement
from effects.models import Effect
from runs.models import Run, StopRequest, Workspace
from tests.dashboard.test_api_schema import operations
from tests.kept import kept
from tests.wire import Json, Said, Wire, agent_of, effect_body, kind_body
from tests.worlds import World, a_compensation, a_delivery, in_seconds

pytestmark = [pytest.mark.django_db, pytest.mark.invariant("I28")]
SEEN = {"worker": "w-1", "seen_version": 1}
ALL = operations()
IDS = [(method, path, told["operationId"]) for method, path, told in ALL if re.search(r"{\w+_id}", path)]
BODIES: dict[str, Json] = {
    "complete_run": {"seen_version": 1},
    "fail_run": {},
    "heartbeat": SEEN,
    "resume_run": {"reason": "morning", "seen_version": 1},
    "add_step": {"key": "pay", "class": "read", "claim": SEEN},
    "claim_step": SEEN,
    "release_step": {"claim_token": "t"},
    "finish_step": {"claim_token": "t", "result": "succeeded"},
    "retry_step": {"seen_version": 1},
    "open_permit": {"boundary": "model", "class": "model_turn", "step": {"key": "turn"}, **SEEN},
    "report_permit": {"claim_token": "t", "outcome": "applied"},
    "add_effect": effect_body({"cancel_version": 1}),
    "dispatch_effect": {"step_claim_token": "t", **SEEN},
    "add_delivery": {"key": "tell", "channel": "outside", "target": "the chat", **SEEN},
    "hand_over": SEEN,
    "retry_delivery": {},
    "stop_run": {"note": "mine now"},
    "stop_step": {"note": "mine now"},
    "stop_policy": {"note": "mine now"},
    "release_stop": {"reason": "mine now"},
    "review_stop": {"review_at": "2100-01-01T00:00:00Z"},
    "withdraw_scheduled_stop": {},
    "force_deadline": {},
    "decide_review": {"decision": "approve"},
    "redeliver": {},
    "propose_compensation": {"wish": "mine now"},
    "edit_compensation": {"amount": "9999"},
    "skip_compensation": {"reason": "mine now"},
    "check_unknown": {},
    "answer_look_up": {"turn": "1.x", "answer": "present"},
    "answer_compensation": {"turn": "1.x", "answer": "present"},
    "resolve_unknown": {"verdict": "happened", "evidence": "mine now"},
}
ABSENT = {
    f"{name}_id": f"{prefix}_{'0' * 32}"
    for name, prefix in {
        "run": "run",
        "step": "ste",
        "permit": "prm",
        "effect": "eff",
        "stop": "stp",
        "delivery": "dlv",
        "review": "rev",
        "policy": "pol",
        "scheduled": "sch",
        "posting": "pst",
        "compensation": "cmp",
        "subject": "dlv",
        "statement": "sta",
    }.items()
}


Scene = tuple[World, dict[str, str]]


@pytest.fixture(scope="module")
def scene(django_db_setup: None, django_db_blocker: Any) -> Iterator[Callable[[], Scene]]:
    yield from kept(django_db_blocker, set_the_scene)


@pytest.fixture
def world(scene: Callable[[], Scene], db: None) -> World:
    return scene()[0]


@pytest.fixture
def finance(scene: Callable[[], Scene], db: None) -> dict[str, str]:
    return scene()[1]


def set_the_scene() -> Scene:
    world = World()
    return world, one_of_everything(world)


def one_of_everything(world: World) -> dict[str, str]:
    """In Finance: ids by the names of the path's parts, and the permit's token."""
    agent = agent_of(world.workspace)
    run = agent.run()
    got = agent.permitted(run)
    agent.put("/kinds/bank.charge", kind_body())
    told = agent.post(f"/runs/{run['id']}/deliveries", BODIES["add_delivery"] | {"key": "told"})
    asked = agent.effect(run, "charge:asked", approval=True)
    agent.put("/endpoints/ops", {"url": "https://example.org/", "events": ["stop.closed"]})
    notice = agent.post("/endpoints/ops/test").data
    agent.run("stopped", session="nightly")
    stop = agent.post("/stops", {"scope": "session", "session": "nightly"}).data
    policy = agent.post("/policies", {"name": "cards", "match": {"kinds": ["bank.charge"]}}).data
    at = in_seconds(3600).isoformat()
    later = agent.post("/scheduled-stops", {"scope": "workspace", "at": at}).data
    permit = got["permit"]
    return {
        "run_id": run["id"],
        "step_id": permit["step_id"],
        "permit_id": permit["id"],
        "effect_id": got["effect"]["id"],
        "stop_id": stop["id"],
        "policy_id": policy["id"],
        "scheduled_id": later["id"],
        "delivery_id": told.data["id"],
        "posting_id": notice["id"],
        "review_id": asked.data["review"]["id"],
        "compensation_id": a_compensation(Effect.objects.get(pk=got["effect"]["id"])).pk,
        "subject_id": a_delivery(Run.objects.get(pk=run["id"]), "UNKNOWN", unknown_since=in_seconds(-60)).pk,
        "statement_id": a_statement(world.workspace).pk,
        "claim_token": permit["claim_token"],
    }


def a_statement(workspace: Workspace) -> Statement:
    at = in_seconds(0)
    row = Statement(kind="daily", workspace=workspace, day=at.date(), at=at, body="{}", unsigned="not signed")
    row.save()
    return row


def ask(who: Wire, method: str, path: str, name: str, ids: dict[str, str], token: str) -> Any:
    """The request as it would be right for the one whose thing it is."""
    address = path.removeprefix("/api/v1").format(**ids)
    if name == "look_again":
        address += f"?claim_token={token}"
    body = {key: token if "claim_token" in key else value for key, value in BODIES.get(name, {}).items()}
    if method == "post":
        return who.post(address, body)
    return who.call(method.upper(), address)


def headers_of(said: Said) -> Json:
    """The headers of an answer but for those that differ from call to call."""
    return {name: value for name, value in said.headers.items() if name not in ("X-Request-Id", "RateLimit")}


def test_every_address_with_an_id_is_among_those_that_are_tried() -> None:
    assert len(IDS) == 55
    assert {name for method, _, name in IDS if method == "post"} == set(BODIES)


@pytest.mark.parametrize(("method", "path", "name"), IDS, ids=[name for _, _, name in IDS])
def test_what_is_foreign_is_answered_as_what_is_absent(
    world: World, finance: dict[str, str], method: str, path: str, name: str
) -> None:
    mallory, before = agent_of(world.elsewhere), StopRequest.objects.count()
    foreign = ask(mallory, method, path, name, finance, finance["claim_token"])
    absent = ask(mallory, method, path, name, ABSENT, finance["claim_token"])
    assert (foreign.status, foreign.problem) == (404, "not-found")
    assert (foreign.text, headers_of(foreign)) == (absent.text, headers_of(absent))
    assert StopRequest.objects.count() == before
    owner = ask(agent_of(world.workspace), method, path, name, finance, finance["claim_token"])
    assert owner.status != 404, "the same request is right for its owner"


@pytest.mark.parametrize(
    ("method", "path", "name"), [one for one in IDS if one[0] == "get"], ids=lambda v: str(v)
)
def test_a_signed_in_stranger_reads_nothing(
    world: World, finance: dict[str, str], method: str, path: str, name: str
) -> None:
    client = Client()
    assert world.mallory.user is not None
    client.force_login(world.mallory.user)
    said = ask(Wire(client=client), method, path, name, finance, finance["claim_token"])
    assert (said.status, said.problem) == (404, "not-found")


@pytest.mark.parametrize(("method", "path", "told"), ALL, ids=[told["operationId"] for _, _, told in ALL])
def test_nobody_gets_an_answer_without_a_token(
    world: World, finance: dict[str, str], method: str, path: str, told: Json
) -> None:
    address = path.removeprefix("/api/v1").format(**finance, name="bank.charge")
    for known in (address, re.sub(r"[0-9a-f]{32}", "0" * 32, address)):
        said = Wire().call(method.upper(), known, {})
        assert (said.status, said.problem) == (401, "token-missing")


def test_names_and_lists_of_others_are_not_told(world: World, finance: dict[str, str]) -> None:
    mallory = agent_of(world.elsewhere)
    assert mallory.get("/kinds/bank.charge").text == mallory.get("/kinds/never.seen").text
    for path in (
        "/runs",
        "/stops",
        "/kinds",
        "/reviews",
        "/policies",
        "/scheduled-stops",
        "/unknowns",
        "/statements",
    ):
        assert mallory.get(path).data == {"items": [], "next_cursor": None}
    own = mallory.post("/runs", {"key": "close-books"})
    assert own.status == 201, "a key that others use is free here"
    assert own.data["id"] != finance["run_id"]
    waiting = mallory.post("/stops", {"run_key": "stopped"})
    assert (waiting.status, waiting.data["waiting"], waiting.data["number"]) == (201, True, 1)
    assert mallory.put("/kinds/bank.charge", kind_body()).status == 201


def test_a_cursor_of_others_leads_to_ones_own_rows_only(world: World, finance: dict[str, str]) -> None:
    agent, mallory = agent_of(world.workspace), agent_of(world.elsewhere)
    cursor = agent.get("/runs?limit=1").data["next_cursor"]
    assert mallory.get(f"/runs?cursor={cursor}").data["items"] == []
