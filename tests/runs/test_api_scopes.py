"""Stops beyond one run over the API: never refused for their form; what to stop must be understood."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from effects import scope_api, stop_words
from effects.drain import drain_run
from runs import fanout, releases
from runs.models import Policy, Run, Session, Step, StopPart, StopRequest, Workspace
from tests.wire import Json, Said, Wire, agent_of
from tests.worlds import World, a_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent(world: World) -> Wire:
    return agent_of(world.workspace)


@pytest.fixture
def keeper(world: World) -> Wire:
    """An admin's tool."""
    return agent_of(world.workspace, "gate:write")


def policy(agent: Wire, name: str = "cards", **match: Any) -> Json:
    said = agent.post("/policies", {"name": name, "match": match or {"kinds": ["bank.charge"]}})
    assert said.status in (200, 201), said.text
    return dict(said.data)


# --- Steps ------------------------------------------------------------------------------------------------


def test_a_step_is_stopped_by_either_address_and_its_worker_learns_that_the_run_goes_on(agent: Wire) -> None:
    run = agent.run()
    step, other = agent.claimed(run), agent.claimed(run, "other")
    said = agent.post(f"/steps/{step['id']}/stops", {"note": "wrong account", "mode": "pause"})
    assert (said.status, said.data["scope"], said.data["step_id"], said.data["run_id"]) == (
        *(201, "step"),
        *(step["id"], run["id"]),
    )
    assert said.data["ignored"] == ["mode: recorded as cancel; a stop of a step knows no other"]
    assert said.data["sentence"] == (
        "Stop #1 of step “pay” is recorded. Nothing more of it may be sent; its run goes on."
    )
    refused = agent.effect(run, step={"id": step["id"], "claim_token": step["claim_token"]})
    assert (refused.status, refused.problem, refused.data["stop_id"]) == (409, "stopped", said.data["id"])
    assert (refused.data["scope"], refused.data["run_goes_on"]) == ("step", True)
    assert (refused.data["run_status"], agent.get(f"/runs/{run['id']}").data["stop"]) == ("ACTIVE", None)
    again = agent.post("/stops", {"scope": "step", "step": step["id"]})
    assert (again.status, again.data["id"], again.data["already_finished"]) == (200, said.data["id"], True)
    assert agent.effect(run, step={"id": other["id"], "claim_token": other["claim_token"]}).status == 201


def test_a_heartbeat_names_the_steps_of_its_worker_that_were_stopped(agent: Wire) -> None:
    run = agent.run()
    step = agent.claimed(run)
    beat = {"worker": "w-1", "seen_version": 1, "claim_tokens": [step["claim_token"]]}
    assert agent.post(f"/runs/{run['id']}/heartbeat", beat).data["stopped_steps"] == []
    agent.post(f"/steps/{step['id']}/stops")
    told = agent.post(f"/runs/{run['id']}/heartbeat", beat).data
    assert (told["stopped_steps"], told["may_go_on"], told["stop"]) == ([step["id"]], True, None)
    other = agent.post(f"/runs/{run['id']}/heartbeat", beat | {"worker": "w-2"}).data
    assert other["stopped_steps"] == []


def test_a_token_of_one_run_stops_its_steps_and_nothing_wider(world: World, agent: Wire) -> None:
    run, other = agent.run(), agent.run("other")
    step, foreign = agent.claimed(run), agent.claimed(other)
    mine = agent_of(world.workspace, run=Run.objects.get(pk=run["id"]))
    assert mine.post(f"/steps/{step['id']}/stops").status == 201
    assert mine.post(f"/steps/{foreign['id']}/stops").status == 404
    made = policy(agent)
    wider: list[Json] = [
        {"scope": "workspace"},
        {"scope": "session", "session": "nightly"},
        {"scope": "policy", "policy": made["id"]},
        {"scope": "runs", "run_ids": [other["id"]]},
        {"scope": "all"},
    ]
    said = [mine.post("/stops", body) for body in wider] + [mine.post(f"/policies/{made['id']}/stops")]
    assert [(one.status, one.problem) for one in said] == [(403, "not-allowed")] * 6
    assert StopRequest.objects.exclude(scope="step").count() == 0
    assert not Session.objects.exists()


# --- Scopes -----------------------------------------------------------------------------------------------


def test_a_session_is_stopped_with_its_runs_and_released_once_each_was_reached(
    agent: Wire, keeper: Wire
) -> None:
    runs = [agent.run(key, session="nightly") for key in "abc"]
    agent.run("elsewhere")
    said = agent.post("/stops", {"scope": "session", "session": "nightly", "mode": "cancel"})
    assert (said.status, said.data["scope"], said.data["scope_name"]) == (201, "session", "session “nightly”")
    assert said.data["runs"] == {"done": 3, "total": 3, "results": {"recorded": 3}}
    assert said.data["sentence"].startswith(
        "Stop #1 of session “nightly” is recorded. Its gate is shut since"
    )
    assert said.data["sentence"].endswith("3 of 3 runs are stopped.")
    assert agent.post("/runs", {"key": "d", "session": "nightly"}).data["stop_id"] == said.data["id"]
    parts = agent.get(f"/stops/{said.data['id']}/runs?limit=2")
    more = agent.get(f"/stops/{said.data['id']}/runs?limit=2&cursor={parts.data['next_cursor']}")
    found = [*parts.data["items"], *more.data["items"]]
    assert [one["run_id"] for one in found] == [run["id"] for run in reversed(runs)]
    assert {one["result"] for one in found} == {"recorded"}
    assert agent.get(f"/stops/{said.data['id']}/runs?result=joined").data["items"] == []
    joined = agent.post("/stops", {"scope": "session", "session": "nightly", "mode": "pause"})
    assert (joined.status, joined.data["joined"], joined.data["id"]) == (200, True, said.data["id"])
    assert "You asked for pause; the mode stays cancel." in joined.data["sentence"]
    assert agent.post(f"/stops/{said.data['id']}/release", {"reason": "right"}).status == 403
    released = keeper.post(f"/stops/{said.data['id']}/release", {"reason": "prices are right"})
    assert (released.status, released.data["released"]) == (200, True)
    assert released.data["release"]["reason"] == "prices are right"
    late = keeper.post(f"/stops/{said.data['id']}/release", {"reason": "again"})
    assert (late.status, late.problem) == (409, "not-standing")
    told = agent.get(f"/stops/{said.data['id']}").data
    assert told["sentence"].endswith("released; not all of its runs have come to their end.")
    for run in runs:
        drain_run(run["id"])
    assert fanout.close_if_over(told["id"])
    assert agent.get(f"/stops/{told['id']}").data["sentence"].endswith("UTC: released.")


def test_a_session_may_be_stopped_before_its_first_run(agent: Wire) -> None:
    said = agent.post("/stops", {"scope": "session", "session": "tomorrow"})
    assert (said.status, said.data["runs"]) == (201, {"done": 0, "total": 0, "results": {}})
    assert said.data["sentence"].endswith("no run was under way in it.")
    refused = agent.post("/runs", {"key": "first", "session": "tomorrow"})
    assert (refused.problem, refused.data["stop_id"]) == ("stopped", said.data["id"])


def test_a_policy_of_effects_lets_its_runs_go_on(agent: Wire) -> None:
    run = agent.run()
    made = policy(agent)
    assert (made["gate"], made["reach"], made["stop"]) == ("OPEN", "effects", None)
    said = agent.post(f"/policies/{made['id']}/stops", {"mode": "cancel"})
    assert (said.status, said.data["scope_name"], said.data["mode"]) == (201, "policy “cards”", "pause")
    refused = agent.effect(run)
    assert (refused.problem, refused.data["scope"], refused.data["run_goes_on"]) == (
        "stopped",
        "policy",
        True,
    )
    assert agent.effect(run, "mail:1", kind="mail.send").status == 201
    named = agent.post("/stops", {"scope": "policy", "policy": "cards"})
    assert (named.status, named.data["id"]) == (200, said.data["id"])
    assert agent.get(f"/policies/{made['id']}").data["stop"]["id"] == said.data["id"]
    assert [one["gate"] for one in agent.get("/policies").data["items"]] == ["SHUT"]


def test_a_policy_keeps_its_name_and_match(agent: Wire) -> None:
    made = agent.post("/policies", {"name": "eu", "match": {"labels": {"region": "eu"}}})
    again = agent.post("/policies", {"name": "eu", "match": {"labels": {"region": "eu"}}})
    other = agent.post("/policies", {"name": "eu", "match": {"labels": {"region": "us"}}})
    assert (made.status, made.data["reach"], again.status) == (201, "runs", 200)
    assert (other.status, other.problem) == (422, "policy-name-taken")
    unreadable: list[Any] = [{}, {"labels": {"a": 1}}, {"tools": ["x"]}, [], {"classes": ["nothing"]}]
    for match in unreadable:
        assert agent.post("/policies", {"name": "bad", "match": match}).problem == "invalid-request"
    assert Policy.objects.count() == 1


def test_chosen_runs_are_one_record_with_a_result_each(world: World, agent: Wire) -> None:
    runs = [agent.run(key) for key in "ab"]
    stopped = agent.run("c")
    agent.stop(stopped)
    ids = [one["id"] for one in (*runs, stopped)]
    foreign = a_run(workspace=world.elsewhere).pk
    body = {"scope": "runs", "run_ids": [*ids, foreign, 7], "selection": {"q": "nightly"}}
    said = agent.post("/stops", body)
    assert (said.status, said.data["scope"]) == (201, "bulk")
    assert "run_ids: 2 of them are no runs of this workspace" in said.data["ignored"]
    parts = agent.get(f"/stops/{said.data['id']}/runs").data["items"]
    assert {one["run_id"] for one in parts} == set(ids)
    assert said.data["sentence"].startswith("Stop #2 of 3 selected runs is recorded. 3 of 3 were reached: ")
    assert Run.objects.get(pk=foreign).status == "ACTIVE"


def test_what_only_observes_says_so_and_refuses_nothing(agent: Wire) -> None:
    said = agent.post("/stops", {"scope": "workspace", "observe": True})
    assert (said.status, said.data["observes"], said.data["runs"]) == (201, True, None)
    assert said.data["sentence"] == (
        "Stop #1 of workspace “Finance”, which only observes: it refuses nothing, and would have refused 0."
    )
    assert agent.post("/runs", {"key": "a"}).status == 201
    told = agent.get(f"/stops/{said.data['id']}").data
    assert (told["would_refuse"], told["refused"]) == (1, 0)
    standing = agent.get("/stops?standing=true").data["items"]
    assert [one["id"] for one in standing] == [said.data["id"]]


def test_a_review_date_is_kept_moved_and_never_lies_in_the_past(agent: Wire) -> None:
    body = {"scope": "workspace", "review_at": "2100-01-01T00:00:00Z", "ends_at": "yesterday"}
    said = agent.post("/stops", body)
    assert (said.status, said.data["review_at"], said.data["ends_at"]) == (201, "2100-01-01T00:00:00Z", None)
    assert said.data["ignored"] == ["ends_at: not a moment with its zone"]
    moved = agent.post(f"/stops/{said.data['id']}/review", {"review_at": "2101-01-01T00:00:00Z"})
    assert (moved.status, moved.data["review_at"]) == (200, "2101-01-01T00:00:00Z")
    past = agent.post(f"/stops/{said.data['id']}/review", {"review_at": "2001-01-01T00:00:00Z"})
    assert (past.status, past.problem) == (422, "invalid-request")


def test_a_release_waits_for_the_fence_and_for_people_where_the_rules_say_two(
    world: World, agent: Wire, keeper: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent.run()
    with monkeypatch.context() as slow:
        slow.setattr(fanout, "fence", lambda *_, **__: False)
        stop = agent.post("/stops", {"scope": "workspace"}).data
    assert "0 of 1 run are stopped so far." in stop["sentence"]
    early = keeper.post(f"/stops/{stop['id']}/release", {"reason": "now"})
    assert (early.status, early.problem, early.data["done"], early.data["total"]) == (
        *(409, "still-fencing"),
        *(0, 1),
    )

    def two(**_: Any) -> Any:
        raise releases.TwoPeople

    monkeypatch.setattr(releases, "release", two)
    told = keeper.post(f"/stops/{stop['id']}/release", {"reason": "now"})
    assert (told.status, told.problem) == (403, "people-only")


# --- Bad input --------------------------------------------------------------------------------------------


UNREADABLE: list[Json] = [
    {"scope": "planet"},
    {"scope": ["session"]},
    {"scope": 7},
    {"scope": "session"},
    {"scope": "session", "session": ""},
    {"scope": "session", "session": {"key": "x"}},
    {"scope": "session", "session": "a\nb"},
    {"scope": "policy"},
    {"scope": "policy", "policy": "x\x00"},
    {"scope": "step", "step": None},
    {"scope": "runs"},
    {"scope": "runs", "run_ids": []},
    {"scope": "runs", "run_ids": "run_1"},
    {"scope": "runs", "run_ids": [{}, 1, None]},
    {"scope": "runs", "run_ids": ["run_1"] * 5_001},
]


@pytest.mark.parametrize("body", UNREADABLE, ids=[str(body)[:40] for body in UNREADABLE])
def test_a_scope_that_can_not_be_understood_is_told_what_to_send(agent: Wire, body: Json) -> None:
    said = agent.post("/stops", body)
    assert (said.status, said.problem) == (422, "no-scope-named")
    assert "Send" in said.data["detail"]
    assert "NOT recorded" in said.data["detail"]
    assert StopRequest.objects.count() == 0


def test_as_many_runs_as_may_be_named_fit_into_a_body(agent: Wire) -> None:
    ids = [f"run_{n:032x}" for n in range(scope_api.MOST_RUNS)]
    assert agent.post("/stops", {"scope": "runs", "run_ids": ids, "note": "x" * 2000}).status == 404
    said = agent.post("/stops", {"scope": "runs", "run_ids": ids * 2})
    assert (said.status, said.problem, "Send at most 5,000 runs" in said.data["detail"]) == (
        *(422, "no-scope-named"),
        True,
    )


def test_what_else_can_not_be_read_refuses_no_stop(agent: Wire) -> None:
    body = {
        "scope": "workspace",
        "mode": ["cancel"],
        "note": 7,
        "deadline_s": "soon",
        "observe": "perhaps",
        "review_at": 12,
        "colour": "red",
    }
    said = agent.post("/stops", body)
    assert (said.status, said.data["mode"], said.data["observes"]) == (201, "pause", False)
    named = {one.partition(":")[0] for one in said.data["ignored"]}
    assert named == {"mode", "note", "deadline_s", "observe", "review_at", "unknown field"}
    assert Workspace.objects.get(pk=StopRequest.objects.get().workspace_id).gate == "SHUT"


def test_naming_what_to_stop_is_no_odd_field_that_makes_the_stop_milder(agent: Wire) -> None:
    run = agent.run()
    said = agent.post("/stops", {"scope": "run", "run_key": run["key"]})
    assert (said.status, said.data["mode"], said.data["ignored"]) == (201, "cancel", [])


def test_all_workspaces_are_for_people(agent: Wire) -> None:
    said = agent.post("/stops", {"scope": "all"})
    assert (said.status, said.problem) == (403, "people-only")


def test_what_belongs_to_others_is_not_there(world: World, agent: Wire) -> None:
    mallory = agent_of(world.elsewhere)
    run = agent.run(session="nightly")
    step, made = agent.claimed(run), policy(agent)
    stop = agent.post("/stops", {"scope": "session", "session": "nightly"}).data
    told: list[Said] = [
        mallory.post(f"/steps/{step['id']}/stops"),
        mallory.post("/stops", {"scope": "step", "step": step["id"]}),
        mallory.post("/stops", {"scope": "policy", "policy": made["id"]}),
        mallory.post("/stops", {"scope": "policy", "policy": "cards"}),
        mallory.post("/stops", {"scope": "runs", "run_ids": [run["id"]]}),
        mallory.get(f"/stops/{stop['id']}/runs"),
        mallory.get(f"/policies/{made['id']}"),
    ]
    assert [(one.status, one.problem) for one in told] == [(404, "not-found")] * 7
    own = mallory.post("/stops", {"scope": "session", "session": "nightly"})
    assert (own.status, own.data["number"], own.data["runs"]["total"]) == (201, 1, 0)
    assert Step.objects.get(pk=step["id"]).stopped_at is None


def test_the_same_key_is_one_press_of_each_scope(agent: Wire) -> None:
    agent.run("a", session="nightly")
    body = {"scope": "session", "session": "nightly"}
    first, again = agent.post("/stops", body, key="k-1"), agent.post("/stops", body, key="k-1")
    assert (first.status, again.replayed) == (201, True)
    assert again.data["id"] == first.data["id"]
    assert StopRequest.objects.get(scope="session").presses.count() == 1


# --- Bounded ----------------------------------------------------------------------------------------------


def queries(call: Any) -> int:
    with CaptureQueriesContext(connection) as seen:
        said = call()
    assert said.status == 200, said.text
    return len(seen.captured_queries)


def test_reading_stops_and_their_runs_asks_as_often_for_many_as_for_few(world: World, agent: Wire) -> None:
    agent.get("/runs")  # notes the use of the token
    few = agent.post("/stops", {"scope": "workspace", "observe": True}).data
    agent.run("a", session="s")
    agent.post("/stops", {"scope": "session", "session": "s"})

    def asked() -> list[int]:
        paths = ("/stops?limit=200", f"/stops/{few['id']}/runs?limit=200", f"/stops/{few['id']}", "/policies")
        return [queries(lambda path=path: agent.get(path)) for path in paths]

    a_part(world, few["id"])
    policy(agent, "one")
    before = asked()
    for n in range(8):
        a_part(world, few["id"])
        agent.post(f"/steps/{agent.claimed(agent.run(f'r{n}'))['id']}/stops")
        policy(agent, f"p{n}", labels={"n": str(n)})
    assert len(agent.get("/stops?limit=200").data["items"]) == 11
    assert asked() == before
    assert max(before) <= 8


def a_part(world: World, stop_id: str) -> None:
    StopPart.objects.create(stop_id=stop_id, run=a_run(workspace=world.workspace), result="pending")


def test_every_scope_has_a_name_and_every_result_a_word() -> None:
    from runs.models import Result, ScopeKind

    assert set(stop_words.NAMES) == set(ScopeKind)
    assert set(stop_words.RESULTS) == set(Result) - {Result.PENDING}


def test_no_stop_waits_for_a_count_of_its_runs_or_is_lost_with_it(
    agent: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A workspace may have more runs than can be counted in time: the stop is recorded all the same."""
    run = agent.run()

    def too_many(stop: StopRequest) -> None:
        raise OperationalError("canceling statement due to statement timeout")

    with monkeypatch.context() as patch:
        patch.setattr(fanout, "progress", too_many)
        said = agent.post("/stops", {"scope": "workspace", "mode": "cancel"})
    assert (said.status, said.data["created"], said.data["runs"]) == (201, True, None)
    assert said.data["sentence"].startswith("Stop #1 of workspace “Finance” is recorded. Its gate is shut")
    assert Run.objects.get(pk=run["id"]).status == "CANCELLING"
    again = agent.post("/stops", {"scope": "workspace", "mode": "cancel"})
    assert (again.status, again.data["runs"]["done"]) == (200, 1)


# --- Odd input --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("odd", ["a\\u0000b", "\\ud800", "1e999", "NaN"])
def test_no_oddity_in_a_selection_refuses_the_stop(agent: Wire, odd: str) -> None:
    """Numbers that are none make the body unreadable: what to stop isn't understood then, and said so."""
    run = agent.run()
    value = odd if odd[0] in "1N" else f'"{odd}"'
    raw = f'{{"scope": "runs", "run_ids": ["{run["id"]}"], "selection": {{"q": {value}}}}}'.encode()
    said = agent.call("POST", "/stops", raw=raw)
    assert said.status in ((422,) if odd[0] in "1N\\" and "0000" not in odd else (201,)), said.text
    if said.status == 201:
        assert Run.objects.get(pk=run["id"]).status == "CANCELLING"


def test_ids_of_runs_that_are_none_are_told(agent: Wire) -> None:
    run = agent.run()
    said = agent.post("/stops", {"scope": "runs", "run_ids": [run["id"], 7, None, "a\u0000b"]})
    assert said.status == 201, said.text
    assert said.data["ignored"] == ["run_ids: 3 of them are no runs of this workspace"]


def test_an_id_names_its_policy_though_another_is_called_so(agent: Wire) -> None:
    meant = policy(agent, "meant")
    called = policy(agent, meant["id"], kinds=["mail.send"])
    assert agent.post("/stops", {"scope": "policy", "policy": meant["id"]}).data["policy_id"] == meant["id"]
    earlier = policy(agent, "earlier")
    Policy.objects.filter(pk=called["id"]).delete()
    Policy.objects.create(pk="pol_0", workspace_id=meant["workspace_id"], name=earlier["id"])
    said = agent.post("/stops", {"scope": "policy", "policy": earlier["id"]})
    assert said.data["policy_id"] == earlier["id"]
