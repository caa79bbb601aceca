"""Stop… in the header of a page that is about no run: it asks which."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs.models import Run
from tests.dashboard.scenes import browser, text_of
from tests.worlds import World, a_workspace

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def world() -> World:
    return World()


def chooser(world: World, query: str = "") -> str:
    answer = browser(world.alice).get(f"/stop{query}")
    assert answer.status_code == 200
    return answer.content.decode()


def named(html: str) -> list[str]:
    """The runs that the page offers to stop, in its order."""
    return re.findall(r'href="/runs/\w+/stop">.*?<span class="vh"> (.*?)</span>', html, flags=re.S)


def test_with_no_run_it_says_so_and_offers_no_search(world: World) -> None:
    html = chooser(world)
    assert "No run is running now." in text_of(html)
    assert 'type="search"' not in html


def test_only_running_runs_are_offered_newest_first_each_with_what_is_in_flight(world: World) -> None:
    first, stopped, last = (world.run(key, name=key) for key in ("first", "stopped", "last"))
    world.opened(first, "charge:1")
    world.stop(stopped)
    html = chooser(world)
    assert named(html) == ["last", "first"]
    assert f'href="/runs/{last.pk}/stop"' in html
    said = text_of(html)
    assert "2 of 2 running" in said
    assert re.search(r"first.*1 action", said)
    assert 'class="btn btn-stop"' not in html  # nothing here stops anything


def test_among_ten_thousand_a_run_is_found_in_as_many_questions_as_among_ten(world: World) -> None:
    alice, counts = browser(world.alice), []
    for start, end in ((0, 10), (10, 10_000)):
        Run.objects.bulk_create(
            (
                Run(workspace=world.workspace, key=f"r{n}", name=f"batch {n:05}", parameters_digest="")
                for n in range(start, end)
            ),
            batch_size=1000,
        )
        with CaptureQueriesContext(connection) as asked:
            html = alice.get("/stop").content.decode()
        counts.append(len(asked))
    assert counts[0] == counts[1] <= 15
    assert "25 of more than 1000 running" in text_of(html)
    assert named(html)[0] == "batch 09999"
    older = html.partition('class="pager"')[2].partition('href="')[2].partition('"')[0].replace("&amp;", "&")
    assert named(alice.get(older).content.decode())[0] == "batch 09974"
    assert named(chooser(world, "?q=BATCH 00042")) == ["batch 00042"]
    assert "No running run matches “nothing like it”." in text_of(chooser(world, "?q=nothing like it"))


@pytest.mark.parametrize("query", ["?q=%00", "?before=%00", "?before=zzz", "?q=" + "x" * 999, "?q=<script>"])
def test_an_unreadable_question_is_answered_all_the_same(world: World, query: str) -> None:
    world.run()
    assert "<script>x" not in chooser(world, query)


def test_every_page_leads_to_the_chooser_of_the_workspace_that_it_shows(world: World) -> None:
    other = a_workspace("Another")
    assert world.alice.user is not None
    world.alice.user.memberships.create(workspace=other, role="operator")
    alice = browser(world.alice)
    for space in (world.workspace, other):
        html = alice.get(f"/runs/?workspace={space.slug}").content.decode()
        assert f'data-stop-open href="/stop?workspace={space.slug}"' in html


def test_a_reader_is_offered_only_the_runs_that_are_her_own(world: World) -> None:
    world.run("other", name="other")
    dana = browser(world.dana)
    assert "Stop…" not in text_of(dana.get("/runs/").content.decode())
    assert "none of them is running" in text_of(dana.get("/stop").content.decode())
    Run.objects.filter(pk=world.run("mine", name="mine").pk).update(owner=world.dana.user)
    assert named(dana.get("/stop").content.decode()) == ["mine"]
