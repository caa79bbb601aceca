"""Steps, permits, the second look, heartbeats, resume and evidence over the API."""

from __future__ import annotations

import json

import pytest

from runs.evidence import canonical, digest, seal_stream
from runs.models import Permit, Refusal, Run, Step, Worker, Workspace
from tests.wire import Json, Wire, agent_of
from tests.worlds import World, in_seconds, lapse

pytestmark = pytest.mark.django_db
SEEN = {"worker": "w-1", "seen_version": 1}


@pytest.fixture
def agent(world: World) -> Wire:
    return agent_of(world.workspace)


@pytest.fixture
def run(agent: Wire) -> Json:
    return agent.run()


# --- Steps ------------------------------------------------------------------------------------------------


def test_a_step_is_queued_claimed_released_and_claimed_again(agent: Wire, run: Json) -> None:
    queued = agent.post(f"/runs/{run['id']}/steps", {"key": "pay", "name": "Pay", "class": "external_write"})
    assert (queued.status, queued.data["status"], queued.data["claim_token"]) == (201, "PENDING", None)
    path = f"/steps/{queued.data['id']}"
    claimed = agent.call("POST", f"{path}/claim", {**SEEN, "lease_s": 60})
    assert (claimed.status, claimed.data["status"], claimed.data["attempt"]) == (200, "CLAIMED", 1)
    token = claimed.data["claim_token"]
    assert token
    assert agent.get(path).data["claim_token"] is None
    released = agent.call("POST", f"{path}/release", {"claim_token": token})
    assert (released.status, released.data["status"]) == (200, "PENDING")
    again = agent.call("POST", f"{path}/claim", SEEN)
    assert again.data["claim_token"] not in (None, token)


def test_a_known_key_answers_that_step(agent: Wire, run: Json) -> None:
    body = {"key": "pay", "class": "read"}
    first = agent.post(f"/runs/{run['id']}/steps", body)
    again = agent.post(f"/runs/{run['id']}/steps", body)
    assert (first.status, again.status) == (201, 200)
    assert again.data["id"] == first.data["id"]
    claimed = agent.post(f"/runs/{run['id']}/steps", {**body, "claim": SEEN})
    assert (claimed.status, claimed.data["status"]) == (200, "CLAIMED")


def test_a_step_that_ended_is_an_answer_and_no_refusal(agent: Wire, run: Json) -> None:
    done = agent.permitted(run, "pay")
    agent.report(done["permit"])
    said = agent.post(f"/runs/{run['id']}/steps", {"key": "pay", "class": "external_write", "claim": SEEN})
    assert (said.status, said.data["status"], said.data["claim_token"]) == (200, "SUCCEEDED", None)
    assert not Refusal.objects.exists()


def test_a_claim_of_another_worker_is_a_refusal(agent: Wire, run: Json) -> None:
    step = agent.claimed(run)
    taken = agent.call("POST", f"/steps/{step['id']}/claim", {"worker": "w-2", "seen_version": 1})
    forged = agent.call("POST", f"/steps/{step['id']}/release", {"claim_token": "forged"})
    assert [said.problem for said in (taken, forged)] == ["lost-claim", "lost-claim"]
    assert taken.data["what_to_do"].startswith("Do nothing")


def test_after_a_stop_a_claim_is_refused_with_both_versions(agent: Wire, run: Json) -> None:
    stop = agent.stop(run).data
    said = agent.post(f"/runs/{run['id']}/steps", {"key": "pay", "class": "read", "claim": SEEN})
    assert (said.status, said.problem) == (409, "stopped")
    told = {name: said.data[name] for name in ("boundary", "carried_version", "current_version", "stop_id")}
    assert told == {"boundary": "claim", "carried_version": 1, "current_version": 2, "stop_id": stop["id"]}
    assert said.data["refusal_count"] == 1
    assert said.data["run_status"] in ("CANCELLING", "CANCELLED")


def test_a_step_is_finished_by_its_holder_only(agent: Wire, run: Json) -> None:
    step = agent.claimed(run)
    held = {"id": step["id"], "claim_token": step["claim_token"]}
    path, done = f"/steps/{step['id']}/finish", {"claim_token": step["claim_token"], "result": "succeeded"}
    assert agent.post(path, done).problem == "nothing-dispatched"
    permit = agent.permitted(run, step=held)["permit"]
    assert agent.post(path, done).problem == "unsettled"
    agent.report(permit)
    assert agent.post(path, {**done, "claim_token": "forged"}).problem == "lost-claim"
    ended = agent.post(path, done)
    assert (ended.status, ended.data["status"]) == (200, "SUCCEEDED")


def test_steps_are_paged_newest_first(agent: Wire, run: Json) -> None:
    for number in range(5):
        agent.post(f"/runs/{run['id']}/steps", {"key": f"step-{number}", "class": "read"})
    first = agent.get(f"/runs/{run['id']}/steps?limit=3").data
    agent.post(f"/runs/{run['id']}/steps", {"key": "newer", "class": "read"})
    rest = agent.get(f"/runs/{run['id']}/steps?limit=3&cursor={first['next_cursor']}").data
    keys = [step["key"] for step in first["items"] + rest["items"]]
    assert keys == [f"step-{number}" for number in reversed(range(5))]
    assert rest["next_cursor"] is None


# --- Permits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op_class", "boundary"),
    [("model_turn", "model"), ("read", "dispatch")],
)
def test_a_permit_without_an_effect_crosses_the_boundary_of_its_class(
    agent: Wire, run: Json, op_class: str, boundary: str
) -> None:
    body = {"boundary": boundary, "class": op_class, "step": {"key": "turn"}, **SEEN}
    said = agent.post(f"/runs/{run['id']}/permits", body)
    assert said.status == 201
    permit = said.data["permit"]
    assert (permit["boundary"], permit["effect_id"], permit["state"]) == (boundary, None, "OPEN")
    assert permit["permit_ttl_s"] == pytest.approx(10, abs=0.5)
    other = agent.post(f"/runs/{run['id']}/permits", {**body, "boundary": "model", "class": "read"})
    assert other.data["errors"][0]["field"] == "boundary"


@pytest.mark.parametrize(
    ("op_class", "boundary"),
    [("external_write", "dispatch"), ("browser_action", "act"), ("delivery", "deliver")],
)
def test_what_can_change_the_world_gets_no_permit_without_an_effect(
    agent: Wire, run: Json, op_class: str, boundary: str
) -> None:
    body = {"boundary": boundary, "class": op_class, "step": {"key": "turn"}, **SEEN}
    said = agent.post(f"/runs/{run['id']}/permits", body)
    assert (said.status, said.data["errors"][0]["field"]) == (422, "class")
    assert "declare an effect" in said.text
    assert not Permit.objects.exists()
    with_effect = agent.effect(run, **{"class": op_class})
    assert with_effect.data["permit"]["boundary"] == boundary


def test_the_second_look_is_read_afresh_each_time(agent: Wire, run: Json) -> None:
    permit = agent.permitted(run)["permit"]
    assert agent.look(permit).data["look"] == "open"
    Permit.objects.filter(pk=permit["id"]).update(permit_until=in_seconds(-1))
    assert agent.look(permit).data["look"] == "expired"
    Permit.objects.filter(pk=permit["id"]).update(permit_until=in_seconds(10))
    agent.stop(run)
    shut = agent.look(permit).data
    assert (shut["look"], shut["run_status"], shut["current_version"]) == ("shut", "CANCELLING", 2)
    agent.report(permit, "not_sent")
    assert agent.look(permit).data["look"] == "ended"


@pytest.mark.parametrize("token", ["", "forged", "%00", "é", "x" * 2000])
def test_the_second_look_needs_the_permits_own_token(agent: Wire, run: Json, token: str) -> None:
    permit = agent.permitted(run)["permit"]
    assert agent.get(f"/permits/{permit['id']}?claim_token={token}").problem == "not-found"
    assert agent.get(f"/permits/{permit['id']}").problem == "not-found"


# --- Heartbeats, resume -----------------------------------------------------------------------------------


def test_a_heartbeat_renews_leases_confirms_and_tells_of_a_stop(agent: Wire, run: Json) -> None:
    permit = agent.permitted(run)["permit"]
    path, body = f"/runs/{run['id']}/heartbeat", {**SEEN, "claim_tokens": [permit["claim_token"], "other"]}
    said = agent.call("POST", path, body)
    told = {"status": "ACTIVE", "cancel_version": 1, "stop": None, "renewed": 1, "stopped_steps": []}
    assert said.data == {**told, "lost": ["other"], "may_go_on": True}
    assert Permit.objects.get().lease_until.isoformat() > permit["lease_until"].replace("Z", "+00:00")
    stop = agent.stop(run).data
    said = agent.call("POST", path, {**body, "seen_version": 2})
    assert (said.data["status"], said.data["cancel_version"]) == ("CANCELLING", 2)
    assert (said.data["stop"]["id"], said.data["stop"]["number"]) == (stop["id"], stop["number"])
    assert Worker.objects.get(name="w-1").confirmed_version == 2


def test_a_lost_lease_is_not_renewed(agent: Wire, run: Json) -> None:
    permit = agent.permitted(run)["permit"]
    lapse(Permit.objects.get(), Step.objects.get())
    Permit.lose(Permit.objects.get())
    body = {**SEEN, "claim_tokens": [permit["claim_token"]]}
    assert agent.call("POST", f"/runs/{run['id']}/heartbeat", body).data["renewed"] == 0


def test_a_resume_is_asked_for_with_its_own_scope(agent: Wire, run: Json) -> None:
    path = f"/runs/{run['id']}/resume"
    assert agent.call("POST", path, {"reason": "morning", "seen_version": 1}).problem == "not-allowed"
    keeper = agent_of(Workspace.objects.get(name="Finance"), "resume:write", "stop:write")
    said = keeper.call("POST", path, {"reason": "morning", "seen_version": 1})
    assert (said.status, said.problem, said.data["run_status"]) == (409, "nothing-to-resume", "ACTIVE")
    for body in ({}, {"seen_version": 1}, {"seen_version": 1, "reason": " "}, {"reason": "morning"}):
        assert keeper.call("POST", path, body).problem == "invalid-request", body
    assert Run.objects.get().cancel_version == 1


def test_a_refused_resume_is_the_list_and_a_granted_one_the_run(agent: Wire, run: Json) -> None:
    keeper = agent_of(Workspace.objects.get(name="Finance"), "resume:write", "stop:write")
    permit, path = agent.permitted(run)["permit"], f"/runs/{run['id']}/resume"
    keeper.stop(run, {"mode": "pause"})
    decision = {"reason": "morning", "seen_version": 2}
    draining = keeper.call("POST", path, decision)
    assert (draining.status, draining.problem, draining.data["reason"]) == (409, "not-resumed", "draining")
    agent.report(permit, "unknown")
    waits = keeper.call("POST", path, decision)
    assert (waits.status, waits.data["reason"]) == (409, "must wait")
    assert [(e["key"], e["answer"]) for e in waits.data["effects"]] == [("charge:7", "must wait")]
    agent.report(permit, "applied")
    done = keeper.call("POST", path, decision)
    assert (done.status, done.data["status"], done.data["cancel_version"]) == (200, "ACTIVE", 3)


# --- Evidence ---------------------------------------------------------------------------------------------


def test_evidence_is_read_in_order_without_gap_and_says_what_is_sealed(agent: Wire, run: Json) -> None:
    agent.permitted(run)
    path = f"/runs/{run['id']}/evidence"
    first = agent.get(f"{path}?limit=3").data
    seal_stream(run["id"])
    agent.stop(run)
    rest = agent.get(f"{path}?after={first['next_after']}").data
    lines = first["items"] + rest["items"]
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert not any(line["sealed"] for line in first["items"]), "they were not, when they were read"
    assert {line["kind"]: line["sealed"] for line in rest["items"]}["stop.fenced"] is False
    assert agent.get(path).data["items"][0]["sealed"] is True
    assert agent.get(f"{path}?after={rest['next_after']}").data == {
        "items": [],
        "next_after": rest["next_after"],
    }


def test_a_payload_has_the_digest_of_its_line(agent: Wire, run: Json) -> None:
    agent.stop(run, {"note": "Wrong file"})
    lines = agent.get(f"/runs/{run['id']}/evidence").data["items"]
    told = next(line for line in lines if line["kind"] == "stop.acknowledged")
    assert told["payload"]["note"] == "Wrong file"
    assert digest(canonical(told["payload"])) == told["payload_digest"]
    assert "als_" not in json.dumps(lines), "no token is ever a part of evidence"
