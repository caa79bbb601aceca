"""Bad input is answered with a problem that says what to do; nothing is changed, nothing is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from effects.models import Effect, Kind
from runs import bodies
from runs.fields import Class
from runs.models import Evidence, IdempotencyRecord, OperationClass, Permit, Refusal, Run, Step, Worker
from runs.problems import Problem
from tests.wire import Wire, agent_of, effect_body, kind_body
from tests.worlds import World

pytestmark = pytest.mark.django_db

DEEP = b'{"key": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
RTL = "invoice\u202egnp.exe"
ABSENT = "f" * 32


@pytest.fixture
def agent(world: World) -> Wire:
    return agent_of(world.workspace)


def rows() -> list[int]:
    """How many rows there are of everything that a request could have made."""
    tables = (Run, Step, Permit, Effect, Kind, Evidence, Refusal, IdempotencyRecord, Worker)
    return [table.objects.count() for table in tables]


# --- What is no JSON, or too much of it -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "status", "problem"),
    [
        (b"{", 400, "malformed-body"),
        (b"key=7", 400, "malformed-body"),
        (b"\x1f\x8b\x08\x00 gzip", 400, "malformed-body"),
        ('{"key": "é"}'.encode("latin-1"), 400, "malformed-body"),
        ('{"key": "a"}'.encode("utf-16"), 400, "malformed-body"),
        (b'{"key": "\\ud800"}', 400, "malformed-body"),
        (b'{"key": NaN}', 400, "malformed-body"),
        (b'{"key": -Infinity}', 400, "malformed-body"),
        (b'{"key": 1e999}', 400, "malformed-body"),
        (b'{"key": ' + b"9" * 5000 + b"}", 400, "malformed-body"),
        (b'["key"]', 400, "malformed-body"),
        (b"null", 400, "malformed-body"),
        (DEEP, 400, "malformed-body"),
        (b'{"key": "' + b"x" * bodies.LIMIT + b'"}', 413, "too-large"),
        (b"", 422, "invalid-request"),
    ],
)
def test_a_body_that_cannot_be_read_is_a_problem(agent: Wire, raw: bytes, status: int, problem: str) -> None:
    before = rows()
    said = agent.post("/runs", raw=raw)
    assert (said.status, said.problem) == (status, problem)
    assert "hanged" in said.data["detail"], "it says that nothing was changed"
    assert rows() == before


def test_nesting_is_counted_outside_of_texts_only() -> None:
    deep = "[" * (bodies.DEPTH - 1) + "]" * (bodies.DEPTH - 1)
    assert bodies.read_object(f'{{"a": {deep}, "b": "{"[" * 500}"}}'.encode())
    with pytest.raises(Problem, match="malformed-body"):
        bodies.read_object(f'{{"a": [{deep}]}}'.encode())
    with pytest.raises(Problem, match="malformed-body"):
        bodies.read_object(b'"' + b'\\"' * 100_000 + b"[" * 40)


def test_a_key_that_is_named_twice_counts_once(agent: Wire) -> None:
    said = agent.post("/runs", raw=b'{"key": "first", "key": "last"}')
    assert (said.status, said.data["key"]) == (201, "last")


# --- Versions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [-1, 0, 2**63, 10**400, "3", 3.0, None, True, [1], {}])
@pytest.mark.parametrize(
    "verb", ["effects", "permits", "steps", "heartbeat", "complete", "claim", "dispatch"]
)
def test_a_version_is_a_whole_number_that_the_database_can_hold(
    agent: Wire, verb: str, version: object
) -> None:
    path, body = _asking(agent, agent.run(), verb)
    asked = {**body, "claim": {**body["claim"], "seen_version": version}} if "claim" in body else body
    before = rows()
    said = agent.post(path, asked if "claim" in body else {**body, "seen_version": version})
    assert (said.status, said.problem) == (422, "invalid-request")
    assert said.data["errors"][0]["field"] == ("claim.seen_version" if "claim" in body else "seen_version")
    assert rows() == before


def _asking(agent: Wire, run: dict[str, Any], verb: str) -> tuple[str, dict[str, Any]]:
    """A path and a body that is right but for the version that the test puts in."""
    seen = {"worker": "w-1", "seen_version": 1}
    given: dict[str, tuple[str, dict[str, Any]]] = {
        "effects": (f"/runs/{run['id']}/effects", effect_body(run)),
        "permits": (
            f"/runs/{run['id']}/permits",
            {"boundary": "model", "class": "model_turn", "step": {"key": "turn"}, **seen},
        ),
        "steps": (f"/runs/{run['id']}/steps", {"key": "pay", "class": "read", "claim": seen}),
        "heartbeat": (f"/runs/{run['id']}/heartbeat", seen),
        "complete": (f"/runs/{run['id']}/complete", {"seen_version": 1}),
    }
    if verb == "claim":
        step = agent.post(f"/runs/{run['id']}/steps", {"key": "pay", "class": "read"}).data
        return f"/steps/{step['id']}/claim", seen
    if verb == "dispatch":
        effect = agent.effect(run, dispatch=False).data["effect"]
        return f"/effects/{effect['id']}/dispatch", {"step_claim_token": "t", **seen}
    return given[verb]


def test_the_largest_version_is_refused_by_the_gate_and_not_by_the_database(agent: Wire) -> None:
    said = agent.effect({**agent.run(), "cancel_version": 2**63 - 1})
    assert (said.status, said.problem) == (409, "stale-version")
    assert said.data["carried_version"] == 2**63 - 1


# --- Fields -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"colour": "red"}, "colour"),
        ({"key": ""}, "key"),
        ({"key": 7}, "key"),
        ({"key": None}, "key"),
        ({"key": "x" * 201}, "key"),
        ({"key": "two\nlines"}, "key"),
        ({"key": RTL}, "key"),
        ({"key": "zero\u200bwidth"}, "key"),
        ({"key": " padded"}, "key"),
        ({"key": "nul\0"}, "key"),
        ({"name": "bell\a"}, "name"),
        ({"name": "x" * 301}, "name"),
        ({"session": RTL}, "session"),
        ({"labels": {"team": 7}}, "labels.team"),
        ({"labels": {str(number): "x" for number in range(33)}}, "labels"),
        ({"ungateable": "web"}, "ungateable"),
        ({"drill": "true"}, "drill"),
        ({"drill": 1}, "drill"),
        ({"silent_after_s": 0}, "silent_after_s"),
        ({"silent_after_s": 2**31}, "silent_after_s"),
        ({"silent_after_s": 1.5}, "silent_after_s"),
    ],
)
def test_a_field_that_cannot_be_used_is_named(agent: Wire, fields: dict[str, Any], field: str) -> None:
    before = rows()
    said = agent.post("/runs", {"key": "close-books", **fields})
    assert (said.status, said.problem) == (422, "invalid-request")
    assert said.data["errors"][0]["field"] == field
    assert said.data["errors"][0]["message"]
    assert said.data["detail"].startswith(f"{field}: ")
    assert rows() == before


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"step": {}}, "step"),
        ({"step": {"id": "ste_" + ABSENT}}, "step"),
        ({"step": {"id": "ste_" + ABSENT, "claim_token": "t", "key": "k"}}, "step"),
        ({"step": {"key": "k", "colour": 1}}, "step.colour"),
        ({"plan": {}}, ""),
        ({"plan": {"kind": "bank.refund", "none_because": "no"}}, "plan"),
        ({"class": "teleport"}, "class"),
        ({"lease_s": 0}, "lease_s"),
        ({"lease_s": True}, "lease_s"),
        ({"lease_s": 3601}, "lease_s"),
        ({"dispatch": "no"}, "dispatch"),
        ({"worker": ""}, "worker"),
        ({"target": "a\0b"}, "target"),
        ({"body": 7}, "body"),
    ],
)
def test_an_effect_is_described_whole_or_not_at_all(agent: Wire, fields: dict[str, Any], field: str) -> None:
    run = agent.run()
    before = rows()
    said = agent.post(f"/runs/{run['id']}/effects", effect_body(run, **fields))
    assert (said.status, said.problem) == (422, "invalid-request" if field else "no-plan")
    assert not field or said.data["errors"][0]["field"] == field
    assert rows() == before


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"outcome": "done"}, "outcome"),
        ({"outcome": None}, "outcome"),
        ({"result": "x" * 70_000}, "result"),
        ({"result": {"deep": ["a\0b"]}}, "result"),
        ({"items": {"nul\0": 1}}, "items"),
        ({"usage": [1]}, "usage"),
        ({"detail": "\x1b[31m"}, "detail"),
        ({"reported_at": "yesterday"}, "reported_at"),
        ({"reported_at": "2026-01-01T00:00:00"}, "reported_at"),
        ({"reported_at": 1_700_000_000}, "reported_at"),
        ({"reported_at": "1700000000"}, "reported_at"),
        ({"reported_at": "9999-12-31T23:59:59-14:00"}, "reported_at"),
        ({"reported_at": "0001-01-01T00:00:00+00:00"}, "reported_at"),
    ],
)
def test_a_report_that_cannot_be_kept_leaves_the_permit_open(
    agent: Wire, fields: dict[str, Any], field: str
) -> None:
    permit = agent.permitted(agent.run())["permit"]
    said = agent.report(permit, **{"outcome": "applied", **fields})
    assert (said.status, said.problem) == (422, "invalid-request")
    assert said.data["errors"][0]["field"].startswith(field)
    assert Permit.objects.get(pk=permit["id"]).state == "OPEN"
    assert agent.report(permit).status == 200


def test_hostile_names_are_kept_as_they_are_and_escaped_nowhere(agent: Wire) -> None:
    name = "<img src=x onerror=alert(1)> {{ 7*7 }} javascript:alert(1) \u202e"
    assert agent.run(name=name)["name"] == name


def test_unknown_fields_are_told_without_their_values_and_not_without_end(agent: Wire) -> None:
    said = agent.post("/runs", {"key": "k", **{f"field-{n}" + "x" * 200: "secret" for n in range(50)}})
    assert len(said.data["errors"]) == 20
    assert len(said.data["errors"][0]["field"]) == 60
    assert "secret" not in said.text


# --- Ids, addresses, methods ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        f"/runs/run_{ABSENT}",
        "/runs/run_1",
        "/runs/%00",
        "/runs/1%20OR%201=1",
        "/runs/..%2f..%2fadmin",
        f"/runs/ste_{ABSENT}",
        f"/permits/prm_{ABSENT}?claim_token=%00",
        "/nothing/here",
        "/",
    ],
)
def test_what_is_not_there_has_one_answer(agent: Wire, path: str) -> None:
    said = agent.get(path)
    assert (said.status, said.problem) == (404, "not-found")
    assert said.text == agent.get(f"/runs/run_{ABSENT}").text


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("DELETE", "/runs"),
        ("GET", f"/runs/run_{ABSENT}/stops"),
        ("PATCH", f"/runs/run_{ABSENT}"),
        ("POST", "/kinds"),
    ],
)
def test_a_method_that_an_address_does_not_take_is_a_problem(agent: Wire, method: str, path: str) -> None:
    said = agent.call(method, path)
    assert (said.status, said.problem) == (405, "method-not-allowed")
    assert said.headers["Allow"]


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=201",
        "limit=x",
        "cursor=zzz",
        "cursor=%00",
        "status=ON",
        "q=%00",
        "has_unknown=perhaps",
        f"cursor={'A' * 121}",
    ],
)
def test_a_query_that_cannot_be_used_is_a_problem(agent: Wire, query: str) -> None:
    said = agent.get(f"/runs?{query}")
    assert (said.status, said.problem) == (422, "invalid-request")
    assert said.data["errors"][0]["field"] == query.partition("=")[0]


def test_a_kind_with_a_hostile_name_is_refused(agent: Wire) -> None:
    said = agent.put("/kinds/bank%E2%80%AEegrahc", kind_body())
    assert (said.status, said.data["errors"][0]["field"]) == (422, "name")


def test_the_classes_of_the_wire_are_those_of_the_tables() -> None:
    assert set(Class.__args__) == set(OperationClass.values)  # type: ignore[attr-defined]


def test_a_problem_is_a_document_of_rfc_9457(agent: Wire) -> None:
    said = agent.post("/runs", {"key": ""})
    assert said.headers["Content-Type"] == "application/problem+json"
    assert said.headers["Cache-Control"] == "no-store"
    assert {"type", "title", "status", "detail"} <= set(json.loads(said.text))
    assert said.data["status"] == said.status
