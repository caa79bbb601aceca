"""The first run: what is done, and what comes next."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dashboard import reports
from dashboard.demo import start
from effects.drain import drain_run
from tests.dashboard.scenes import an_admin, browser, text_of
from tests.worlds import World

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def world() -> World:
    return World()


def first_run(world: World) -> str:
    answer = browser(world.alice).get("/first-run")
    assert answer.status_code == 200
    return answer.content.decode()


def test_a_new_workspace_has_dashes_not_zeros_and_says_that_it_listens(world: World) -> None:
    said = text_of(first_run(world))
    assert "2 of 7 done" in said
    assert "Nothing of your own has arrived yet" in said
    assert "Runs registered –" in said
    assert "This workspace has no demo." in said


def test_the_list_is_ticked_by_what_happened_not_by_clicks(world: World) -> None:
    demo = world.run("demo-invoices-0001", session="demo", name="Invoices, batch 1")
    assert "3 of 7 done" in text_of(first_run(world))
    world.stop(demo)
    drain_run(demo.pk)
    said = text_of(first_run(world))
    assert "4 of 7 done" in said
    assert "Stop #1 of Invoices, batch 1" in said
    reports.issue(demo.pk)
    assert "5 of 7 done" in text_of(first_run(world))
    world.run("mine")
    assert "6 of 7 done" in text_of(first_run(world))


def test_home_leads_to_the_first_run_until_a_report_was_issued(world: World) -> None:
    alice = browser(world.alice)
    assert alice.get("/")["Location"] == "/first-run"
    run = world.run()
    world.stop(run)
    drain_run(run.pk)
    reports.issue(run.pk)
    assert "Nothing needs you." in text_of(alice.get("/").content.decode())


def test_only_an_admin_is_led_to_making_a_token(world: World) -> None:
    assert "Create a token" not in first_run(world)
    assert "An admin of this workspace creates one." in first_run(world)
    assert "Create a token" in browser(an_admin(world)).get("/first-run").content.decode()


class StubWorld:
    """Stands in for the demo's processes; a server starts real ones."""


def test_an_operator_starts_the_demo_and_a_reader_does_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setitem(start.WORLDS, world.workspace.pk, StubWorld())
    monkeypatch.setattr(start, "start_run", started.append)
    assert "Start the demo run" in first_run(world)
    assert browser(world.alice).post("/first-run/start").status_code == 302
    assert started == [world.workspace.pk]
    assert browser(world.dana).post("/first-run/start").status_code == 403
    assert len(started) == 1


@pytest.mark.parametrize("error", [start.DemoBusy(3), start.NoDemo("ws")])
def test_a_demo_that_does_not_start_is_told_in_a_sentence(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(_: str) -> None:
        raise error

    monkeypatch.setattr(start, "start_run", fails)
    html = browser(world.alice).post("/first-run/start", follow=True).content.decode()
    assert 'class="note"' in html


@pytest.mark.parametrize("path", ["/first-run", "/tokens", "/people"])
def test_these_pages_ask_a_bounded_number_of_times(world: World, path: str) -> None:
    world.run("demo", session="demo")
    alice = browser(world.alice)
    with CaptureQueriesContext(connection) as asked:
        assert alice.get(path).status_code == 200
    assert len(asked) <= 15


def test_the_theme_goes_around_without_scripts_and_comes_back(world: World) -> None:
    alice = browser(world.alice)
    for expected in ("dark", "light", ""):
        answer = alice.post("/theme", headers={"Referer": "http://testserver/runs/"})
        assert answer["Location"] == "http://testserver/runs/"
        assert answer.cookies["theme"].value == expected
    assert alice.post("/theme", headers={"Referer": "https://evil.example/"})["Location"] == "/"
