"""The gate of a workspace over the API: shut as a stop is pressed, released by a decision."""

from __future__ import annotations

import pytest

from runs import fanout
from runs.models import Press, StopRequest, Workspace
from tests.wire import Wire, agent_of
from tests.worlds import World, fresh

pytestmark = pytest.mark.django_db


@pytest.fixture
def keeper(world: World) -> Wire:
    """An admin's tool."""
    return agent_of(world.workspace, "gate:write")


def gate_of(world: World) -> str:
    return Workspace.objects.get(pk=world.workspace.pk).gate


def test_a_shut_gate_is_shut_until_it_is_released_with_a_reason(world: World, keeper: Wire) -> None:
    agent = agent_of(world.workspace)
    run = agent.run()
    assert keeper.get("/workspace/gate").data | {"workspace_id": ""} == {
        "workspace_id": "",
        "gate": "OPEN",
        "epoch": 1,
        "gate_at": None,
        "stop": None,
        "paused_runs": 0,
        "refused_runs": 0,
    }
    shut = keeper.post("/workspace/gate/shut", {"note": "wrong prices"})
    assert (shut.status, shut.data["created"], shut.data["scope"], shut.data["mode"]) == (
        *(201, True),
        *("workspace", "pause"),
    )
    assert "1 of 1 run is stopped." in shut.data["sentence"]
    assert shut.data["waiting"] is False
    refused = agent.effect(run)
    own = agent.get(f"/stops/{refused.data['stop_id']}").data
    assert (refused.problem, own["scope"], own["scope_stop_id"]) == ("stopped", "run", shut.data["id"])
    gate = keeper.get("/workspace/gate").data
    assert (gate["gate"], gate["epoch"], gate["stop"]["id"], gate["refused_runs"]) == (
        *("SHUT", 2),
        *(shut.data["id"], 0),
    )
    assert keeper.post("/workspace/gate/release", {"reason": " "}).problem == "invalid-request"
    other = keeper.post("/workspace/gate/release", {"reason": "right again", "stop_id": "stp_0"})
    assert (other.status, other.problem, gate_of(world)) == (409, "other-stop", "SHUT")
    released = keeper.post("/workspace/gate/release", {"reason": "right again", "stop_id": shut.data["id"]})
    assert (released.status, released.data["gate"], released.data["stop"]) == (200, "OPEN", None)
    assert keeper.post("/workspace/gate/release", {"reason": "again"}).problem == "gate-not-shut"
    told = keeper.get(f"/stops/{shut.data['id']}").data
    assert (told["released_at"] is None, "held its gate from" in told["sentence"]) == (False, True)


@pytest.mark.invariant("I4")
def test_a_shut_is_refused_for_no_formality_and_the_same_key_is_one_press(world: World, keeper: Wire) -> None:
    for raw, key in (
        (b"\xff{", "k-1"),
        (b'{"mode": "cancel", "deadline_s": "soon"}', "k-1"),
        (b"[1]", "k-2"),
    ):
        said = keeper.call("POST", "/workspace/gate/shut", raw=raw, key=key)
        assert said.status in (200, 201), said.text
    held = StopRequest.objects.filter(superseded_by__isnull=True)
    assert [stop.mode for stop in held] == ["cancel"], (
        "the same key with a stronger mode is a press of its own"
    )
    assert (StopRequest.objects.count(), Press.objects.count(), gate_of(world)) == (2, 3, "SHUT")


def test_a_release_that_comes_too_early_is_told_so(
    world: World, keeper: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent_of(world.workspace).run()
    monkeypatch.setattr(fanout, "fence", lambda *args, **named: False)
    keeper.post("/workspace/gate/shut")
    early = keeper.post("/workspace/gate/release", {"reason": "right again"})
    assert (early.status, early.problem, gate_of(world)) == (409, "still-fencing", "SHUT")
    assert (early.data["done"], early.data["total"]) == (0, 1)


def test_an_agent_may_shut_and_not_release_and_a_token_of_one_run_neither(world: World, keeper: Wire) -> None:
    bound = agent_of(world.workspace, "gate:write", run=world.run())
    assert bound.post("/workspace/gate/shut").status == 403
    agent = agent_of(world.workspace)
    assert agent.post("/workspace/gate/shut").status == 201
    assert agent.post("/workspace/gate/release", {"reason": "mine"}).problem == "not-allowed"
    assert agent_of(world.workspace, "runs:read").post("/workspace/gate/shut").status == 403
    assert gate_of(world) == "SHUT"


@pytest.mark.invariant("I28")
def test_a_token_reaches_the_gate_of_its_own_workspace_only(world: World, keeper: Wire) -> None:
    mallory = agent_of(world.elsewhere, "gate:write")
    keeper.post("/workspace/gate/shut")
    theirs = mallory.get(f"/workspace/gate?workspace_id={world.workspace.pk}")
    assert (theirs.status, theirs.text) == (404, mallory.get("/workspace/gate?workspace_id=ws_0").text)
    assert mallory.post("/workspace/gate/release", {"reason": "mine"}).problem == "gate-not-shut"
    assert mallory.post("/workspace/gate/shut").status == 201
    assert (gate_of(world), fresh(StopRequest.objects.get(workspace=world.workspace)).closed_at) == (
        "SHUT",
        None,
    )
    assert mallory.get("/stops").data["items"][0]["number"] == 1
    assert len(mallory.get("/stops").data["items"]) == 1
