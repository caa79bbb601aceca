"""Coverage: who came to a gate, what was confirmed, and the gaps, each by name."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs.models import Run, Worker
from tests.dashboard.scenes import browser, text_of
from tests.worlds import World, a_kind, in_seconds

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    return World()


def seen(world: World) -> str:
    answer = browser(world.dana).get(f"/coverage?workspace={world.workspace.slug}")
    assert answer.status_code == 200
    return text_of(answer.content.decode())


def test_where_nothing_was_heard_of_nothing_is_claimed(world: World) -> None:
    said = seen(world)
    assert "No gap is known here." in said
    assert "No run was heard of." in said
    assert "No kind is registered, and no effect was declared." in said
    assert "A tool that nobody named is not known here." in said


def test_the_gaps_are_named_first_and_then_who_came(world: World) -> None:
    a_kind(world.workspace, "bank.charge", title="Charge")
    run = world.run("a", runtime="LangGraph 1.2", agent="invoice agent", ungateable=["web_search"])
    world.report(world.opened(run, "charge:1"))
    Worker.objects.create(run=run, name="w-9", last_heard_at=in_seconds(-300))
    said = seen(world)
    assert "1 worker came to no gate and 1 tool runs at a provider." in said
    assert "LangGraph 1.2 invoice agent 1 1 open 1 of 2 1 never" in said
    assert "Workers heard in the last minute 1 of 2" in said
    assert "w-9 (a) last heard 5 min 0" in said
    assert "Silence is not proof that it stopped." in said
    assert "1 never came to one: nothing of its work can be refused by us." in said
    assert "1 of 1 effects of a registered kind" in said
    assert "web_search" in said


def test_an_opaque_kind_stands_before_the_registered_ones(world: World) -> None:
    run = world.run("a")
    world.report(world.opened(run, "charge:1"), "unknown")
    a_kind(world.workspace, "another.kind")
    said = seen(world)
    assert "1 kind is not registered." in said
    assert "bank.charge No: opaque no 1 1 unknown now" in said
    assert said.index("bank.charge") < said.index("another.kind")


def test_a_version_that_nobody_confirmed_is_behind(world: World) -> None:
    run = world.run("a")
    world.heartbeat(run)
    world.stop(run, mode="pause")
    assert "0 of 1 1 behind, or did not say" in seen(world)
    world.heartbeat(run, seen=2)
    assert "behind" not in seen(world)


def test_it_asks_as_often_for_a_thousand_runs_as_for_ten(world: World) -> None:
    asked, dana = [], browser(world.dana)
    for number in (10, 990):
        made = Run.objects.bulk_create(
            Run(
                workspace=world.workspace,
                key=f"{number}-{n}",
                name="r",
                parameters_digest="",
                agent=str(n % 9),
            )
            for n in range(number)
        )
        Worker.objects.bulk_create(Worker(run=run, name="w", last_heard_at=in_seconds(-90)) for run in made)
        with CaptureQueriesContext(connection) as queries:
            assert dana.get(f"/coverage?workspace={world.workspace.slug}").status_code == 200
        asked.append(len(queries))
    assert asked[0] == asked[1]
    assert asked[0] <= 22


def test_silent_workers_that_are_not_named_are_counted(world: World) -> None:
    run = world.run()
    for n in range(5):
        Worker.objects.create(run=run, name=f"s-{n}", last_heard_at=in_seconds(-600))
    assert "and 2 more. Silence is not proof" in seen(world)
