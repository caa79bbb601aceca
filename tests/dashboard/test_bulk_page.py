"""A stop of many runs from the list: what is frozen, what it came to, and what a press can't lose."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from dashboard.pages import bulk
from runs import fanout
from runs.models import Run, StopPart, StopRequest
from tests.dashboard.scenes import browser, text_of
from tests.worlds import World, a_run, fresh

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    return World()


def rows(world: World, number: int, **fields: Any) -> list[Run]:
    return [a_run(workspace=world.workspace, **fields) for _ in range(number)]


def address(world: World) -> str:
    return f"/runs/stop?workspace={world.workspace.slug}"


def press(world: World, who: Any = None, **sent: Any) -> Any:
    form = {"key": "k1", "mode": "cancel", "reason": "cost", "deadline_s": "60", **sent}
    return browser(who or world.alice).post(address(world), form)


def follow(answer: Any) -> str:
    """Where the press leads, for the one who pressed."""
    assert answer.status_code == 302, answer.content.decode()[:500]
    return str(answer.client.get(answer["Location"]).content.decode())


def results(stop: StopRequest) -> dict[str, str]:
    return dict(StopPart.objects.filter(stop=stop).values_list("run", "result"))


def test_ticked_runs_are_stopped_and_each_is_told_of(world: World) -> None:
    going, stopping, over = world.run("a"), world.run("b"), a_run("COMPLETED", world.workspace)
    left = world.run("left")
    world.stop(stopping)
    chosen = [going.pk, stopping.pk, over.pk]
    form = text_of(browser(world.alice).get("/runs/stop", {"run": chosen}).content.decode())
    assert "Stop 3 selected runs?" in form
    assert "1 of them has finished" in form
    html = follow(press(world, run=chosen))
    assert "Stop #2 : 1 recorded · 1 already stopping · 1 finished before" in text_of(html)
    stop = StopRequest.objects.get(scope="bulk")
    assert results(stop) == {going.pk: "recorded", stopping.pk: "joined", over.pk: "finished"}
    assert (stop.selection, stop.runs_n) == ({}, 3)
    assert fresh(going).status == "CANCELLING"
    assert fresh(left).status == "ACTIVE"


def test_all_that_match_are_found_at_the_press_and_the_list_is_frozen_then(world: World) -> None:
    before = world.run("a", session="nightly")
    alice = browser(world.alice)
    form = alice.get(f"{address(world)}&all=1&session=nightly").content.decode()
    assert "All that match: session “nightly”." in text_of(form)
    meanwhile, other = world.run("b", session="nightly"), world.run("c")
    answer = press(world, all="1", session="nightly", status="running")
    after = world.run("d", session="nightly")
    stop = StopRequest.objects.get(scope="bulk")
    assert set(results(stop)) == {before.pk, meanwhile.pk}
    assert stop.selection == {"status": "running", "session": "nightly"}
    assert parse_qs(urlsplit(answer["Location"]).query)["done"] == [stop.pk]
    assert {fresh(other).status, fresh(after).status} == {"ACTIVE"}


def test_while_it_is_carried_out_the_region_says_how_far_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, fence = rows(world, 3), fanout.fence
    with monkeypatch.context() as slow:  # one run, and the request has had its time
        slow.setattr(fanout, "CHUNK", 1)
        slow.setattr(fanout, "fence", lambda stop_id, *_: fence(stop_id, within_s=0))
        answer = press(world, run=[run.pk for run in made])
    stop = StopRequest.objects.get(scope="bulk")
    live = answer.client.get(f"/runs/?done={stop.pk}", headers={"HX-Request": "true"}).content.decode()
    assert "Stop #1 : 1 recorded 1 of 3 so far" in text_of(live)
    assert '<progress max="3" value="1"' in live
    assert fanout.fence(stop.pk)
    over = text_of(answer.client.get(f"/runs/?done={stop.pk}").content.decode())
    assert "Stop #1 : 3 recorded each run had its turn" in over


def test_what_a_person_may_not_stop_is_named_and_stays_selected(world: World) -> None:
    mine = a_run(workspace=world.workspace, owner=world.dana.user)
    theirs = world.run("theirs")
    chosen = [mine.pk, theirs.pk]
    dana = browser(world.dana)
    assert "1 of them you may not stop" in text_of(dana.get("/runs/stop", {"run": chosen}).content.decode())
    html = follow(press(world, world.dana, run=chosen))
    assert "1 recorded · 1 not permitted" in text_of(html)
    ticks = {part.partition('"')[0] for part in html.split('form="bulk" value="') if "checked" in part[:60]}
    assert ticks == {theirs.pk}
    assert (fresh(mine).status, fresh(theirs).status) == ("CANCELLING", "ACTIVE")


def test_who_may_stop_none_of_them_records_nothing(world: World) -> None:
    run = world.run()
    answer = press(world, world.dana, run=[run.pk])
    assert answer.status_code == 403
    assert "NOT recorded" in text_of(answer.content.decode())
    assert not StopRequest.objects.exists()


def test_no_run_and_too_many_say_what_to_do(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = a_run(workspace=world.elsewhere)
    assert "No run is selected" in text_of(browser(world.alice).get("/runs/stop").content.decode())
    assert "No run was selected" in text_of(follow(press(world, run=[elsewhere.pk, "run_no"])))
    rows(world, 3)
    monkeypatch.setattr(bulk, "MOST", 2)
    form = text_of(browser(world.alice).get(f"{address(world)}&all=1").content.decode())
    assert "More than 2 runs match" in form
    assert "Request stop" not in form
    said = text_of(follow(press(world, all="1")))
    assert "Your stop was NOT recorded. More than 2 runs match" in said
    assert "Stop the workspace instead" in said
    assert not StopRequest.objects.exists()


def test_the_same_key_is_the_same_stop_also_when_nothing_matches_any_more(world: World) -> None:
    rows(world, 2)
    first = press(world, all="1", status="running")
    again = press(world, all="1", status="running")
    assert first["Location"] == again["Location"]
    assert StopRequest.objects.filter(scope="bulk").count() == 1
    assert not Run.objects.filter(workspace=world.workspace, status="ACTIVE").exists()
    other = press(world, all="1", status="running", key="k2")
    assert "done" not in parse_qs(urlsplit(other["Location"]).query)


def test_a_script_is_told_where_the_result_stands(world: World) -> None:
    run = world.run()
    sent = {"key": "k1", "run": [run.pk]}
    answer = browser(world.alice).post(address(world), sent, headers={"Accept": "application/json"})
    told = answer.json()
    assert answer.status_code == 201
    assert told["recorded"] is True
    assert told["sentence"].startswith("Stop #1 recorded ")
    assert "done=stp_" in told["href"]


@pytest.mark.parametrize("ids", [{"run": ["a", "b"]}, {"runs": "a,b"}])
def test_a_store_that_does_not_answer_is_said_loudly_and_the_form_comes_back(
    world: World, monkeypatch: pytest.MonkeyPatch, ids: dict[str, Any]
) -> None:
    def away(**_: Any) -> None:
        raise OperationalError("gone")

    monkeypatch.setattr("runs.bulk.request_bulk_stop", away)
    answer = press(world, **ids)
    html = answer.content.decode()
    assert answer.status_code == 503
    assert "Your stop was NOT recorded." in text_of(html)
    assert 'name="key" value="k1"' in html
    assert 'value="b"' in html or 'value="a,b"' in html


def test_after_a_sign_in_the_form_comes_back_with_its_runs_and_its_key(world: World) -> None:
    run = world.run()
    sent = {"key": "k9", "runs": run.pk, "mode": "pause", "workspace": world.workspace.slug}
    answer = browser().post(address(world), sent)
    assert answer["Location"].startswith("/sign-in?next=")
    path = parse_qs(urlsplit(answer["Location"]).query)["next"][0]
    html = browser(world.alice).get(path).content.decode()
    assert "NOT recorded yet" in html
    assert 'name="key" value="k9"' in html
    assert f'name="runs" value="{run.pk}"' in html
    assert not StopRequest.objects.exists()


def test_the_form_and_the_result_ask_as_often_for_many_runs_as_for_few(world: World) -> None:
    alice, asked = browser(world.alice), []
    for number in (10, 290):
        made = (
            Run(
                workspace=world.workspace,
                key=f"{number}-{n}",
                name="r",
                parameters_digest="",
                status="PAUSED",
            )
            for n in range(number)
        )
        Run.objects.bulk_create(made)
        with CaptureQueriesContext(connection) as queries:
            assert alice.get(f"{address(world)}&all=1").status_code == 200
        asked.append(len(queries))
    assert asked[0] == asked[1]
    assert asked[0] <= 22
