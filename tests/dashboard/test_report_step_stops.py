"""The report of a run says that a step of it was stopped while the run went on."""

from __future__ import annotations

import pytest

from dashboard.reports.building import build
from runs import step_stops
from runs.models import Run, Step
from runs.stops import Wish
from tests.worlds import World, a_step, fresh

pytestmark = pytest.mark.django_db


@pytest.fixture
def world(db: None) -> World:
    return World()


def stop(world: World, step: Step) -> None:
    step_stops.request_step_stop(actor=world.alice, wish=Wish(), step_id=step.pk)


def what_stopped(run: Run) -> list[str]:
    report = build(run.pk)
    told = {line.seq for line in report.evidence}
    claims = [claim for section in report.sections if section.key == "stopped" for claim in section.claims]
    assert all(set(claim.lines) <= told for claim in claims)
    assert all(claim.lines for claim in claims if "of one step" in claim.says)
    return [claim.says for claim in claims]


def test_each_stopped_step_has_its_sentence_and_the_run_none(world: World) -> None:
    run = world.run()
    opened = world.opened(run)
    for step in (a_step(run, key="pay"), opened.step, a_step(run, "SUCCEEDED", key="read")):
        stop(world, fresh(step))
    said = what_stopped(run)
    assert said[0] == "The run as a whole was not stopped. The run has not ended."
    steps = [one for one in said if "of one step" in one]
    assert steps[0].startswith("Stop #1 was of one step, “pay”: since ")
    assert steps[0].endswith("The run went on. It was withheld before anything was sent.")
    assert steps[1].endswith("The run went on. What was in flight of it has not been reported yet.")
    assert steps[2] == (
        "Stop #3 was of one step, “read”, which had ended before: no retry of it may begin. The run went on."
    )
    assert not any("New work found" in one for one in said), "no stop held this run"
    world.report(opened)
    assert "It ended as succeeded." in " ".join(what_stopped(run))


def test_a_stop_of_the_run_is_told_beside_that_of_its_step(world: World) -> None:
    run = world.run()
    stop(world, a_step(run))
    world.stop(run)
    report = build(run.pk)
    assert report.stop is not None
    assert (report.stop.number, report.stop.scope) == (2, "run")
    said = " ".join(what_stopped(run))
    assert "Stop #1 was of one step" in said
    assert "Stop #2 took effect at" in said
    assert "not stopped" not in said
