"""The overview: what needs a person first, each card by itself, and no more questions for more rows."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from dashboard.pages import needs
from effects.drain import drain_run
from runs import scopes
from runs.models import Run, StopRequest
from runs.scopes import Target
from runs.stops import Wish
from tests.dashboard.scenes import browser, text_of
from tests.worlds import World, a_delivery, a_review, a_run, a_step, an_effect, in_seconds

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    return World()


def html_of(world: World, who: Any = None) -> str:
    answer = browser(who or world.alice).get(f"/?workspace={world.workspace.slug}")
    assert answer.status_code == 200
    return answer.content.decode()


def seen(world: World, who: Any = None) -> str:
    return text_of(html_of(world, who))


def standing(world: World, **wish: Any) -> StopRequest:
    target = Target("workspace", world.workspace.pk)
    return scopes.request_scope_stop(actor=world.alice, wish=Wish(**wish), target=target).stop


def unknown(world: World, *, since_s: float = 60, **fields: Any) -> None:
    step = a_step(a_run(workspace=world.workspace), "UNKNOWN")
    an_effect(step, "UNKNOWN", unknown_since=in_seconds(-since_s), **fields)


def test_a_quiet_day_says_so(world: World) -> None:
    world.run("a", session="nightly")
    world.run("b")
    said = seen(world)
    assert "Nothing needs you." in said
    assert "2 runs active in Finance." in said
    assert "Session “nightly” 1 run No session 1 run" in said
    assert "No stop is open." in said
    assert "None stands: every gate is open." in said
    assert "No drill has been run." in said
    assert 'id="needs-you"' not in html_of(world)


def test_what_needs_a_person_stands_first_the_oldest_unknown_on_top(world: World) -> None:
    unknown(world, key="younger", since_s=60)
    unknown(world, key="older", since_s=7200, why_unknown="no answer in time", checks=3)
    a_delivery(a_run(workspace=world.workspace), "UNKNOWN", key="letter", unknown_since=in_seconds(-5))
    late = world.run("late")
    world.opened(late)
    stop = world.stop(late).stop
    StopRequest.objects.filter(pk=stop.pk).update(deadline_at=in_seconds(-1))
    assert drain_run(late.pk) == "CANCELLING_TIMEOUT"
    held = world.run("held")
    world.stop(held, mode="pause")
    assert drain_run(held.pk) == "PAUSED"
    Run.objects.filter(pk=world.run("mute").pk).update(
        last_heard_at=in_seconds(-1000), silent_at=in_seconds(-100)
    )
    review = a_review(an_effect(a_step(a_run(workspace=world.workspace), "WAITING_APPROVAL"), key="asked"))
    overdue = standing(world, mode="pause", observe=True)
    StopRequest.objects.filter(pk=overdue.pk).update(review_at=in_seconds(-10))
    said = seen(world, world.bob)
    assert "8 things need you. Three stops are not closed." in said
    order = ["older", "younger", "letter", "of late", "asked", f"#{overdue.number} of", "mute", "held"]
    places = [said.index(f" {name}") for name in order]
    assert places == sorted(places)
    assert "No answer in time. Looked up 3 times. This does not prove that it failed." in said
    assert "open 2 h 0 min" in said
    assert f'href="/reviews/{review.pk}"' in html_of(world, world.bob)
    assert "waiting for review" not in seen(world)  # Alice may not approve
    assert "7 things need you." in seen(world)


def test_why_something_is_unknown_keeps_its_capitals_and_ends_in_one_full_stop(world: World) -> None:
    unknown(world, key="lost", why_unknown="the call raised ReadTimeout.")
    assert "The call raised ReadTimeout. This does not prove that it failed." in seen(world)


def test_standing_stops_and_refusals_are_told_with_the_gates(world: World) -> None:
    run = world.run()
    stop = standing(world, mode="pause", review_at=in_seconds(86_400))
    world.refused(run, seen_version=1)
    said = seen(world)
    assert f"#{stop.number} workspace “Finance” 1 refused" in said
    assert "review due" in said
    assert "Workers heard in the last minute 1 of 1" in said
    assert "Workers seen at a gate 1 of 1" in said


@pytest.mark.parametrize(
    ("part", "told"),
    [("unknown_in", "unknown effects"), ("paused_in", "paused runs"), ("overdue_in", "review dates")],
)
def test_a_part_that_can_not_be_read_says_so_and_the_others_stay(
    world: World, monkeypatch: pytest.MonkeyPatch, part: str, told: str
) -> None:
    def away(*_: Any) -> None:
        raise OperationalError("gone")

    monkeypatch.setattr(needs, part, away)
    world.run("a", session="nightly")
    said = seen(world)
    assert f"Could not load {told} (id " in said
    assert "Not all of it could be loaded." in said
    assert "Nothing needs you" not in said
    assert "Session “nightly” 1 run" in said


def test_a_card_that_can_not_be_read_is_not_taken_for_empty(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise OperationalError("gone")

    monkeypatch.setattr("dashboard.pages.overview.stops_in", away)
    monkeypatch.setattr("dashboard.pages.overview.health_of", away)
    said = seen(world)
    assert said.count("Could not load") == 3
    assert "No stop is open." not in said
    assert "None stands" not in said
    assert "Last drill" in said


def test_a_viewer_of_two_workspaces_sees_the_one_that_the_address_names(world: World) -> None:
    unknown(world, key="of Finance")
    assert "of Finance" in seen(world, world.dana)
    mallory = browser(world.mallory).get(f"/?workspace={world.elsewhere.slug}").content.decode()
    assert "of Finance" not in mallory
    assert "Nothing needs you." in text_of(mallory)


def test_it_asks_as_often_for_a_thousand_runs_as_for_ten(world: World) -> None:
    standing(world, observe=True)
    asked, alice = [], browser(world.alice)
    for number in (20, 980):
        made = Run.objects.bulk_create(
            Run(
                workspace=world.workspace,
                key=f"{number}-{n}-{status}",
                name="r",
                parameters_digest="",
                status=status,
            )
            for n in range(number // 2)
            for status in ("ACTIVE", "PAUSED")
        )
        for run in made[:8]:
            an_effect(a_step(run, "UNKNOWN"), "UNKNOWN", unknown_since=in_seconds(-60))
        with CaptureQueriesContext(connection) as queries:
            assert alice.get(f"/?workspace={world.workspace.slug}").status_code == 200
        asked.append(len(queries))
    assert asked[0] == asked[1]
    assert asked[0] <= 45
