"""The list of runs: filters in the address, bounded queries, rows that stay where they are."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs.models import Run
from tests.dashboard.scenes import browser, text_of
from tests.worlds import World, in_seconds

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def world() -> World:
    return World()


def listed(world: World, query: str = "") -> str:
    answer = browser(world.alice).get(f"/runs/{query}")
    assert answer.status_code == 200
    return answer.content.decode()


def test_an_empty_workspace_leads_to_the_first_run(world: World) -> None:
    assert "No run was registered yet." in text_of(listed(world))


def test_each_run_shows_chip_effects_version_and_stop(world: World) -> None:
    running, stopped = world.run("a", name="alpha"), world.run("b", name="beta")
    world.report(world.opened(running, "charge:1"))
    world.report(world.opened(running, "charge:2"), "unknown")
    world.stop(stopped)
    html = listed(world)
    said = text_of(html)
    assert "Running alpha" in said
    assert "1 known · 1 unknown" in said
    assert "Stopping beta" in said
    assert "v2 #1 cancel" in said
    assert f'href="/runs/{running.pk}/stop"' in html
    assert f'href="/runs/{stopped.pk}/stop"' not in html


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("?status=running", "alpha gamma"),
        ("?status=stopping", "beta"),
        ("?status=ended", ""),
        ("?q=ALPH", "alpha"),
        ("?session=nightly", "gamma"),
        ("?unknown=1", "alpha"),
        ("?unknown=1&session=nightly", ""),
        ("?status=nonsense&before=%00&top=", "alpha beta gamma"),
        ("?runtime=LangGraph", "gamma"),
        ("?stop=%231", "beta"),
        ("?stop=7", ""),
        ("?since=1h", "alpha beta gamma"),
        ("?since=1h&stop=1", "beta"),
        ("?policy=pol_absent", ""),
        ("?stop=x&since=x&done=stp_absent&all=2", "alpha beta gamma"),
    ],
)
def test_a_filter_shows_what_matches(world: World, query: str, shown: str) -> None:
    alpha, beta = world.run("a", name="alpha"), world.run("b", name="beta")
    world.run("c", name="gamma", session="nightly", runtime="LangGraph")
    world.report(world.opened(alpha, "charge:1"), "unknown")
    world.stop(beta)
    html = listed(world, query)
    names = {name for name in ("alpha", "beta", "gamma") if f">{name}</a>" in html}
    assert names == set(shown.split())
    assert ("No runs match." in html) is (not shown)


def test_what_started_earlier_is_not_within_an_hour(world: World) -> None:
    Run.objects.filter(pk=world.run("a", name="alpha").pk).update(admitted_at=in_seconds(-4000))
    assert "No runs match. Asked for: started “within an hour”." in text_of(listed(world, "?since=1h"))
    assert ">alpha</a>" in listed(world, "?since=24h")


def test_older_runs_are_a_link_away_and_no_run_is_shown_twice(world: World) -> None:
    for number in range(60):
        world.run(f"r{number}", name=f"run-{number:02}")
    alice, seen, path = browser(world.alice), [], "/runs/"
    for _ in range(3):
        html = alice.get(path).content.decode()
        seen += [f"run-{n:02}" for n in range(60) if f">run-{n:02}</a>" in html]
        path = (
            html.partition('class="pager"')[2].partition('href="')[2].partition('"')[0].replace("&amp;", "&")
        )
    assert sorted(seen) == [f"run-{n:02}" for n in range(60)]
    assert "25 of 60 runs" in text_of(listed(world))


def test_new_runs_wait_behind_a_button_and_rows_stay(world: World) -> None:
    world.run("a", name="alpha")
    alice = browser(world.alice)
    region = (
        alice.get("/runs/").content.decode().partition('hx-get="')[2].partition('"')[0].replace("&amp;", "&")
    )
    world.run("b", name="beta")
    html = alice.get(region, headers={"HX-Request": "true"}).content.decode()
    assert "1 new run. Show it" in text_of(html)
    assert ">alpha</a>" in html
    assert ">beta</a>" not in html


def test_the_list_asks_as_often_for_a_thousand_runs_as_for_ten(world: World) -> None:
    alice, counts = browser(world.alice), []
    for number in (10, 990):
        start = Run.objects.count()
        Run.objects.bulk_create(
            Run(workspace=world.workspace, key=f"r{n}", name=f"r{n}", parameters_digest="")
            for n in range(start, start + number)
        )
        with CaptureQueriesContext(connection) as asked:
            assert alice.get("/runs/?status=running&q=r").status_code == 200
        counts.append(len(asked))
    assert counts[0] == counts[1]
    assert counts[1] <= 19
