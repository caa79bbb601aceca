"""The page of drills: everybody reads what each showed, admins run and plan them, strangers learn no name."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from dashboard.drilling import catalogue, line, schedule
from dashboard.drilling.line import Told
from dashboard.models import DrillRun, DrillSchedule
from dashboard.pages import drills_facts
from dashboard.pages.drills_facts import last_drill
from runs import access, wake
from runs.access import Actor
from runs.models import Role
from tests.dashboard.scenes import an_admin, browser, text_of
from tests.worlds import World, a_person

pytestmark = pytest.mark.django_db
ONE, OTHER = "repeated-stop-requests", "stop-during-a-read"
NO_PROMISE = "This shows the gates held in this drill; it is no promise about the next stop."


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wake, "run_soon", lambda task, *args: None)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def erin(world: World) -> Actor:
    return an_admin(world)


def said_by(client: Client, path: str = "/drills/") -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return text_of(answer.content.decode())


def check(what: str, observed: str, *, ok: bool = True, expected: str = "1") -> dict[str, Any]:
    return {"what": what, "expected": expected, "observed": observed, "ok": ok}


def a_result(who: Actor, result: str = "passed", name: str = ONE, **told: Any) -> DrillRun:
    """Through the line, as a worker does it."""
    line.ask(actor=who, names=[name], via="page")
    row = line.begin()
    assert row is not None
    line.go_on(row, ["The provider holds it."])
    line.end(row.pk, Told(result, runtime="SQLite, one process", **told), "1.0")
    return DrillRun.objects.get(pk=row.pk)


def test_where_none_was_run_the_page_says_what_that_means(erin: Actor) -> None:
    assert last_drill() is None
    told = said_by(browser(erin))
    assert drills_facts.NEVER in told
    assert told.count("Never run") == len(catalogue.NAMES) == 14
    assert "Run all 14" in told


def test_everybody_reads_and_only_admins_find_buttons(world: World, erin: Actor) -> None:
    a_result(erin)
    for who in (world.dana, world.alice, world.bob, world.mallory):
        html = browser(who).get("/drills/").content.decode()
        assert "Passed" in text_of(html)
        assert ("Run this" in html) is (who is world.mallory), "she administers a workspace of her own"
    for path in ("/drills/run", "/drills/schedule"):
        form = {"drill": OTHER, "which": OTHER, "every": "daily", "hour": "3"}
        assert browser(world.bob).post(path, form).status_code == 403
    assert not DrillRun.objects.filter(name=OTHER).exists()
    assert not DrillSchedule.objects.exists()


def test_a_press_puts_it_in_line_and_another_press_joins(erin: Actor) -> None:
    client = browser(erin)
    answer = client.post("/drills/run", {"drill": ONE}, follow=True)
    assert "“Repeated stop requests” is in line. It starts within seconds" in text_of(answer.content.decode())
    answer = client.post("/drills/run", {"drill": ONE}, follow=True)
    assert "stands in line already. Your request joined; nothing is run twice." in text_of(
        answer.content.decode()
    )
    answer = client.post("/drills/run", {"drill": "all"}, follow=True)
    assert "13 drills in line, 1 stood there already." in text_of(answer.content.decode())
    assert DrillRun.objects.count() == 14
    assert client.post("/drills/run", {"drill": "absent"}).status_code == 404


def test_one_that_runs_shows_its_steps_as_they_come(erin: Actor, world: World) -> None:
    line.ask(actor=erin, names=[ONE, OTHER], via="page")
    row = line.begin()
    assert row is not None
    assert "Its process is starting." in said_by(browser(world.dana))
    line.go_on(row, ["A charge is in flight.", "<b>50 presses</b> at once."])
    answer = browser(world.dana).get("/drills/", headers={"HX-Request": "true"})
    told = text_of(answer.content.decode())
    assert told.index("A charge is in flight.") < told.index("&lt;b&gt;50 presses&lt;/b&gt; at once.")
    assert "Asked for by Erin" in told
    assert "1 more in line" in told
    assert "Its process is starting." not in said_by(browser(world.dana), f"/drills/{ONE}/")


def test_a_result_stands_beside_what_was_expected_and_makes_no_promise(erin: Actor) -> None:
    checks = {"situation": [check("Presses", "50", expected="50")], "safety": [check("Charges", "1")]}
    a_result(erin, checks=checks, report="/runs/run_1/report")
    told = said_by(browser(erin), f"/drills/{ONE}/")
    assert f"on SQLite, one process. {NO_PROMISE}" in told
    assert "Presses 50 50 as expected" in told
    assert "Nothing was checked." in told, "an empty kind is written out"
    assert "There is no earlier run to compare with." in told
    last = last_drill()
    assert last is not None
    assert (last.title, last.word, last.says.endswith(NO_PROMISE)) == (
        "Repeated stop requests",
        "Passed",
        True,
    )


def test_a_failed_run_is_compared_with_the_one_before(erin: Actor) -> None:
    same = check("Stop", "stp_1", expected="stp_1")
    first = a_result(erin, checks={"situation": [same], "safety": [check("Charges", "1")]})
    other = check("Stop", "stp_2", expected="stp_2")
    wrong = check("Charges", "2", ok=False)
    a_result(erin, "failed", checks={"situation": [other], "safety": [wrong]}, why="Charges: 2 of 1.")
    told = said_by(browser(erin), f"/drills/{ONE}/")
    assert ": passed; 1 check was observed otherwise." in told, (
        "an id differs each time, and is no difference"
    )
    assert "Charges 1 2 the run before: as expected not as expected" in told
    assert "Charges: 2 of 1." in told
    assert NO_PROMISE not in told
    assert "Charges 1 1 as expected" in said_by(browser(erin), f"/drills/{ONE}/?at={first.pk}")
    assert browser(erin).get(f"/drills/{ONE}/?at=drl_absent").status_code == 404
    assert browser(erin).get("/drills/absent/").status_code == 404


def test_the_history_goes_on_behind_its_twenty_newest(erin: Actor) -> None:
    rows = [a_result(erin) for _ in range(21)]
    client = browser(erin)
    first = client.get(f"/drills/{ONE}/").content.decode()
    assert rows[0].pk not in first
    assert f"?before={rows[1].pk}" in first
    assert rows[0].pk in client.get(f"/drills/{ONE}/?before={rows[1].pk}").content.decode()


def test_a_report_is_linked_for_those_who_can_open_it(erin: Actor, world: World) -> None:
    a_result(erin, report="/runs/run_1/report")
    assert '"/runs/run_1/report"' in browser(erin).get(f"/drills/{ONE}/").content.decode()
    for path in ("/drills/", f"/drills/{ONE}/"):
        assert "/runs/run_1/report" not in browser(world.dana).get(path).content.decode()


def test_people_of_other_workspaces_are_not_named(erin: Actor, world: World) -> None:
    a_result(erin)
    schedule.put(actor=erin, which=ONE, every="daily", hour=3)
    for path in ("/drills/", f"/drills/{ONE}/"):
        assert "Erin" in said_by(browser(world.dana), path)
        told = said_by(browser(world.mallory), path)
        assert "Erin" not in told
        assert "an admin" in told
    other = access.person(a_person("olga", world.elsewhere, Role.ADMIN))
    line.ask(actor=other, names=[OTHER], via="page")
    assert line.begin() is not None
    assert "Olga" not in said_by(browser(erin)), "to share the workspace of drills is not to be acquainted"


def test_a_schedule_is_set_said_and_taken_away(erin: Actor, world: World) -> None:
    client = browser(erin)
    form = {"which": "all", "every": "weekly", "hour": "4"}
    assert "Saved: All 14 drills, weekly at 04:00 UTC." in text_of(
        client.post("/drills/schedule", form, follow=True).content.decode()
    )
    told = said_by(browser(world.dana))
    assert "All 14 drills weekly" in told
    assert "04:00:00 UTC Erin" in told
    assert "Nothing was changed" in text_of(
        client.post("/drills/schedule", form | {"hour": "25"}, follow=True).content.decode()
    )
    client.post("/drills/schedule", form | {"every": "off"})
    assert "No drill is run by itself." in said_by(client)
    assert client.post("/drills/schedule", form | {"which": "absent"}).status_code == 404
