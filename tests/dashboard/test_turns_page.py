"""Model turns on the run page and in the report: what each spent, and the output of those cut off."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dashboard import reports
from effects import drain, settle
from effects.settle import Told
from runs import gate, rules
from runs.access import SET_UP
from runs.guard import Opened
from runs.models import Run
from runs.rules import Rules
from runs.turns import Spend
from tests.dashboard.scenes import browser, text_of
from tests.worlds import World, lapse

pytestmark = pytest.mark.django_db(transaction=True)
HOSTILE = "</code><img src=x onerror=alert(1)>\u202e{{ 7*7 }}"


@pytest.fixture
def world() -> World:
    return World()


def turn(world: World, run: Run, key: str, outcome: str = "", **told: Any) -> Opened:
    opened = gate.model(world.ask(run, step_key=key, op_class="model_turn"))
    assert isinstance(opened, Opened)
    if outcome:
        permit, said = opened.permit, Told(outcome, **told)
        settle.report(actor=world.agent, permit_id=permit.pk, token=permit.token, told=said)
    return opened


def scene(world: World) -> Run:
    """One turn that came to its end, one that was cut off, one whose worker was lost."""
    run = world.run()
    turn(world, run, "plan", "applied", spend=Spend("large-3", 1200, 340, "0.012 USD"))
    lost = turn(world, run, "lost")
    cut = turn(world, run, "write")
    world.stop(run)
    told = Told("partial", spend=Spend("large-3", 800), partial_output=HOSTILE)
    settle.report(actor=world.agent, permit_id=cut.permit.pk, token=cut.permit.token, told=told)
    lapse(lost.permit, lost.step, cut.step)
    drain.drain_run(run.pk)
    return run


def html_of(world: World, run: Run) -> str:
    return browser(world.alice).get(f"/runs/{run.pk}/").content.decode()


def completed(run: Run) -> str:
    return " ".join(claim.says for claim in reports.build(run.pk).sections[1].claims)


def test_the_page_tells_what_each_turn_spent_and_shows_a_partial_output_as_text(world: World) -> None:
    html = html_of(world, scene(world))
    said = text_of(html)
    assert "3 begun" in said
    assert "Spent, says its worker: large-3, 1,200 tokens in, 340 tokens out, 0.012 USD." in said
    assert "Spend not reported." in said
    assert "It is no completed task." in said
    assert "<img src=x" not in html
    assert "&lt;img src=x onerror=alert(1)&gt;{{ 7*7 }}" in html


def test_the_report_sums_what_was_told_and_says_what_was_not(world: World) -> None:
    run = scene(world)
    report = reports.build(run.pk)
    said = completed(run)
    assert (
        "The spend of 2 of 3 model turns was reported by its worker: 2,000 tokens in, 340 out (large-3)"
        in said
    )
    assert "1 model turn was cut off: the partial output is kept. It is no completed task." in said
    assert "Lost with their worker: 1 model turn. What they cost is not reported." in str(report.sections[2])
    assert [row.what for row in report.turns.rows] == ["plan", "lost", "write"]
    assert "img" not in json.dumps(reports.read(run.pk, None)), "the text itself stands in no report"
    page = text_of(browser(world.alice).get(f"/runs/{run.pk}/report").content.decode())
    assert "Cut off. Spent, says its worker: large-3, 800 tokens in." in page


def test_an_output_that_the_rules_drop_leaves_its_size_and_digest(world: World) -> None:
    now = Rules(partial_output="drop")
    rules.change_rules(actor=SET_UP, workspace_id=world.workspace.pk, version=0, rules=now)
    run = scene(world)
    html = html_of(world, run)
    assert "alert(1)" not in html
    assert "dropped by the workspace’s rules" in text_of(html)
    assert "was dropped by the workspace’s rules; its size and digest are kept" in completed(run)


def test_a_run_that_asked_no_model_has_no_such_panel(world: World) -> None:
    run = world.run()
    assert 'id="turns"' not in html_of(world, run)
    assert "spend" not in completed(run)
    assert reports.build(run.pk).turns.rows == []
