"""The report of a stop of many runs: it adds up what its runs say, and leaves none of them out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dashboard.reports import scope as report_of
from effects.drain import drain_run
from runs import access, bulk, everywhere, policies, releases, scopes
from runs.models import Policy, Run, Session, StopPart, StopRequest, User, Workspace, WouldRefuse
from runs.policies import Match
from runs.scopes import Target
from runs.stops import Wish
from tests.dashboard.scenes import browser, text_of
from tests.wire import agent_of
from tests.worlds import World, a_run, a_step, an_effect, fresh, in_seconds

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    return World()


def scoped(world: World, kind: str, row: Any, **wish: Any) -> StopRequest:
    asked = Wish(**{"mode": "cancel", **wish})
    answer = scopes.request_scope_stop(actor=world.alice, wish=asked, target=Target(kind, row.pk))
    return StopRequest.objects.get(pk=answer.stop.pk)


def policy(world: World, **match: Any) -> Policy:
    new = Match(**match)
    return policies.create_policy(actor=world.alice, workspace_id=world.workspace.pk, name="p", match=new)


def drained(world: World) -> None:
    for run_id in Run.objects.filter(workspace=world.workspace).values_list("pk", flat=True):
        drain_run(run_id)


def page(world: World, stop: StopRequest, query: str = "") -> str:
    answer = browser(world.dana).get(f"/stops/{stop.pk}/report{query}")
    assert answer.status_code == 200
    return text_of(answer.content.decode())


def three(world: World) -> list[Run]:
    """In one session: an effect confirmed, one unknown, and nothing but a queued run."""
    made = [world.run(name, session="nightly", labels={"tag": "payments"}) for name in ("a", "b", "c")]
    world.report(world.opened(made[0], "charge:1"))
    world.report(world.opened(made[1], "charge:2"), "unknown")
    return made


def test_a_session_is_summed_up_with_what_is_known_open_and_left_to_do(world: World) -> None:
    three(world)
    world.run("elsewhere")
    stop = scoped(world, "session", Session.objects.get(key="nightly"), note="wrong prices")
    drained(world)
    said = page(world, stop)
    for part in (
        "Stop #1 of session “nightly”: 2 of 3 runs closed.",
        "Not final: 1 run is open, 1 effect is unknown and it stands",
        "1 What stopped",
        "3 runs: 3 recorded.",
        "0 runs under it may start new work, counted now. None is left out by construction",
        "2 What had already completed 1 effect is known to have happened.",
        "3 What is uncertain 1 effect is unknown in 1 run, the oldest since",
        "Unknown does not mean failed.",
        "4 Will the system do anything more?",
        "Its gate stays shut, for runs that come later too.",
        "5 What a person can do next",
        "Release it, with a reason.",
        "Effects known 1 of 2",
    ):
        assert part in said, part
    assert "elsewhere" not in said
    assert "wrong prices" in said


def test_what_was_refused_since_is_counted_in_runs_and_at_the_door(world: World) -> None:
    run = three(world)[0]
    stop = scoped(world, "workspace", world.workspace, mode="pause")
    assert "No attempt to begin new work was refused because of it so far." in page(world, stop)
    world.refused(fresh(run), "charge:9", seen_version=1)
    world.admit("late")
    assert "2 attempts were refused because of it since" in page(world, stop)
    assert report_of.build(stop).refused == 2


def test_what_is_over_is_told_as_over(world: World) -> None:
    three(world)
    whole = scoped(world, "workspace", world.workspace, mode="pause")
    seen = scoped(world, "session", Session.objects.get(key="nightly"), observe=True)
    assert "Its gate is shut" in page(world, whole)
    for stop in (whole, seen):
        releases.release(actor=world.bob, stop_id=stop.pk, reason="right again")
    said = page(world, fresh(whole))
    assert "While it stood no run of it could start new work" in said
    assert "Its gate is shut" not in said
    said = page(world, fresh(seen))
    assert "It only observed: nothing was refused" in said
    assert "stays stopped" not in said


def test_a_policy_of_labels_reports_its_runs_and_one_of_effects_lists_them(world: World) -> None:
    made = three(world)
    flying = world.opened(made[2], "charge:3")
    effects = scoped(world, "policy", policy(world, labels={"tag": "payments"}, kinds=("bank.charge",)))
    said = page(world, effects)
    assert "3 runs listed; the runs go on without these effects." in said
    assert "1 of 1 action that was in flight then may still complete" in said
    assert "3 Running" in said
    assert "may start new work, counted" not in said
    world.report(flying)
    whole = policies.create_policy(
        actor=world.alice, workspace_id=world.workspace.pk, name="q", match=Match(labels={"tag": "payments"})
    )
    stop = scoped(world, "policy", whole)
    drained(world)
    assert "Stop #2 of policy “q”: 2 of 3 runs closed." in page(world, stop)


def test_a_bulk_stop_names_whom_it_did_not_reach_and_filters_its_runs(world: World) -> None:
    mine = a_run(workspace=world.workspace, owner=world.dana.user, key="mine")
    theirs, over = world.run("theirs"), a_run("COMPLETED", world.workspace, owner=world.dana.user)
    answer = bulk.request_bulk_stop(
        actor=world.dana,
        workspace_id=world.workspace.pk,
        wish=Wish(),
        run_ids=[mine.pk, theirs.pk, over.pk],
        selection={"session": "nightly"},
    )
    said = page(world, answer.stop)
    assert "1 recorded · 1 finished before · 1 not permitted" in said
    assert "1 run was not stopped, because Dana may not stop them: “theirs”. They may go on." in said
    assert "All that matched then: session “nightly”." in said
    assert "1 run had finished before; no work was left to refuse there." in said
    assert "Ask an operator of this workspace" in said
    only = browser(world.dana).get(f"/stops/{answer.stop.pk}/report?result=not_permitted").content.decode()
    assert f'id="{theirs.pk}"' in only
    assert f'id="{mine.pk}"' not in only


def test_its_runs_come_a_page_at_a_time_each_once_and_each_with_its_report(world: World) -> None:
    made = [a_run(workspace=world.workspace) for _ in range(120)]
    stop = scoped(world, "workspace", world.workspace)
    seen: list[str] = []
    told: dict[str, Any] = {"runs": {"next_cursor": ""}}
    while told["runs"]["next_cursor"] is not None:
        address = f"/stops/{stop.pk}/report.json?cursor={told['runs']['next_cursor']}"
        answer = browser(world.dana).get(address)
        told = json.loads(answer.content)
        seen += [row["id"] for row in told["runs"]["items"]]
    assert sorted(seen) == sorted(run.pk for run in made)
    assert len(seen) == len(set(seen))
    assert told["runs"]["total"] == 120
    assert told["runs"]["items"][0]["report"] == f"/runs/{seen[100]}/report"
    assert "attachment" in answer["Content-Disposition"]
    assert "term" not in told["runs"]["items"][0]


def test_an_agent_reads_the_same_over_the_api(world: World) -> None:
    made = three(world)
    stop = scoped(world, "session", Session.objects.get(key="nightly"), mode="pause")
    agent = agent_of(world.workspace)
    told = agent.get(f"/stops/{stop.pk}/report?result=recorded").data
    assert told["schema"] == "allstop.scope-report/1"
    assert told["results"] == {"recorded": 3}
    assert {row["id"] for row in told["runs"]["items"]} == {run.pk for run in made}
    assert told["endings"][0]["number"] + told["endings"][-1]["number"] >= 3
    assert agent.get(f"/stops/{stop.pk}/report?cursor=none").status == 422
    own = StopRequest.objects.get(scope_stop=stop, run=made[0])
    assert agent.get(f"/stops/{own.pk}/report").data["run"]["id"] == made[0].pk
    bound = agent_of(world.workspace, "runs:read", run=made[0])
    assert bound.get(f"/stops/{stop.pk}/report").status == 404
    assert agent_of(world.elsewhere).get(f"/stops/{stop.pk}/report").status == 404


def test_one_that_observes_says_that_nothing_was_refused_by_it(world: World) -> None:
    run = three(world)[0]
    stop = scoped(world, "session", Session.objects.get(key="nightly"), observe=True)
    world.opened(run, "charge:7")
    counted = sum(row.count for row in WouldRefuse.objects.filter(stop=stop))
    assert counted
    said = page(world, stop)
    assert f"It observes, and would have refused {counted} call" in said
    assert "Nothing was refused by it." in said
    assert "Enforce it by a press on the same scope" in said


def test_a_released_and_a_replaced_one_say_what_ended_them(world: World) -> None:
    three(world)
    nightly = Session.objects.get(key="nightly")
    milder = scoped(world, "session", nightly, mode="pause")
    stop = scoped(world, "session", nightly, mode="cancel")
    assert f"Stop #{stop.number} (cancel) took its place." in page(world, fresh(milder))
    releases.release(actor=world.bob, stop_id=stop.pk, reason="prices are right again")
    drained(world)
    said = page(world, fresh(stop))
    assert "It was released at" in said
    assert "by Bob, because: “prices are right again”. That started nothing" in said
    assert "it stands" not in said


def test_the_stop_of_one_run_leads_to_the_report_of_that_run(world: World) -> None:
    run = world.run()
    stop = world.stop(run).stop
    answer = browser(world.dana).get(f"/stops/{stop.pk}/report")
    assert answer["Location"] == f"/runs/{run.pk}/report"
    waiting = world.stop_key("not-there-yet").stop
    assert browser(world.dana).get(f"/stops/{waiting.pk}/report").status_code == 404


def test_mallory_can_not_tell_it_from_one_that_is_not_there(world: World) -> None:
    stop = scoped(world, "workspace", world.workspace)
    mallory = browser(world.mallory)
    for name in ("report", "report.json"):
        foreign, absent = mallory.get(f"/stops/{stop.pk}/{name}"), mallory.get(f"/stops/stp_absent/{name}")
        assert (foreign.status_code, absent.status_code) == (404, 404)
        assert foreign.content.replace(stop.pk.encode(), b"") == absent.content.replace(b"stp_absent", b"")


def test_a_stop_of_all_workspaces_adds_up_for_those_who_run_the_installation_alone(world: World) -> None:
    root = access.person(User.objects.create_superuser("root@example.org", "a long password"))
    three(world)
    a_run(workspace=world.elsewhere)
    wide = everywhere.request_wide_stop(actor=root, wish=Wish(note="storm"))
    drained(world)
    path = f"/stop/everywhere/{wide.pk}/report"
    said = text_of(browser(root).get(path).content.decode())
    assert "Stop of all workspaces: 2 of 4 runs closed." in said
    assert f"{Workspace.objects.count()} of {Workspace.objects.count()} gates shut by it." in said
    assert "1 effect is unknown." in said
    assert "It stands: each gate stays shut" in said
    assert "Elsewhere #1" in said
    for nobody in (world.bob, world.mallory):
        answers = [browser(nobody).get(one) for one in (path, "/stop/everywhere/wid_absent/report")]
        assert [answer.status_code for answer in answers] == [404, 404]
    assert browser(root).get("/stop/everywhere/wid_absent/report").status_code == 404


def test_it_asks_as_often_for_a_thousand_runs_as_for_ten(world: World) -> None:
    wanted: dict[str, Any] = {"wish": Wish(), "run_ids": [world.run().pk], "selection": {}}
    stop = bulk.request_bulk_stop(actor=world.alice, workspace_id=world.workspace.pk, **wanted).stop
    asked, dana = [], browser(world.dana)
    for number in (10, 990):
        made = Run.objects.bulk_create(
            Run(
                workspace=world.workspace,
                key=f"{number}-{n}",
                name="r",
                parameters_digest="",
                status="UNKNOWN",
            )
            for n in range(number)
        )
        StopPart.objects.bulk_create(StopPart(stop=stop, run=run, result="recorded") for run in made)
        an_effect_of(made[0])
        with CaptureQueriesContext(connection) as queries:
            assert dana.get(f"/stops/{stop.pk}/report").status_code == 200
        asked.append(len(queries))
    assert asked[0] == asked[1]
    assert asked[0] <= 42
    assert report_of.build(stop).runs == 1001


def an_effect_of(run: Run) -> None:
    an_effect(a_step(run, "UNKNOWN"), "UNKNOWN", unknown_since=in_seconds(-60))
