"""Retries on pages and in the report: when one is due, what was refused, and a person's decision."""

from __future__ import annotations

import re

import pytest

from dashboard import reports
from effects import drain, retries
from runs.models import Evidence, Run, Step
from tests.dashboard.scenes import browser, text_of
from tests.worlds import World, a_step, an_effect, fresh

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def world() -> World:
    return World()


def failed(run: Run, ground: str = "reported") -> Step:
    step = a_step(run, "FAILED", key="pay")
    an_effect(step, "NOT_APPLIED", key="charge:7", ground=ground, attempt=1, settled_at=run.admitted_at)
    return step


def said_of(world: World, run: Run) -> str:
    return text_of(browser(world.alice).get(f"/runs/{run.pk}/").content.decode())


def more(run: Run) -> str:
    section = next(one for one in reports.build(run.pk).sections if one.key == "more")
    return " ".join(claim.says for claim in section.claims)


def test_a_retry_stands_on_the_page_and_in_the_report_with_its_time(world: World) -> None:
    run = world.run()
    step = failed(run, "looked up")
    assert "Retries" in said_of(world, run)
    assert "Decide whether to try 1 failed step again" in str(reports.build(run.pk).sections[4])
    retries.schedule(actor=world.agent, step=step, worker="w-1", seen=1, delay_s=600)
    due = fresh(step).due_at
    assert due is not None
    at = due.strftime("%H:%M:%S")
    said = said_of(world, run)
    assert "1 scheduled, 0 refused" in said
    assert said.count(at) >= 1
    assert f"retry due {at}" in browser(world.alice).get(f"/runs/{run.pk}/").content.decode()
    # the day stands before the time when it is another one than that of the run
    assert re.search(rf"A retry is due at (\d+ \w+, )?{at} UTC: the gate is asked again then", more(run))


def test_under_a_pause_it_waits_for_a_resume_and_after_a_stop_it_is_refused(world: World) -> None:
    run = world.run()
    retries.schedule(actor=world.agent, step=failed(run, "inspected"), worker="w-1", seen=1, delay_s=600)
    world.stop(run, mode="pause")
    drain.drain_run(run.pk)
    assert "only after a resume" in said_of(world, run)
    assert "only after a resume" in more(run)
    world.stop(run)
    answer = retries.schedule(actor=world.agent, step=a_step(run, "FAILED"), worker="w-1", seen=1, delay_s=1)
    assert not isinstance(answer, Step)
    assert "0 scheduled, 1 refused" in said_of(world, run)
    drain.drain_run(run.pk)
    stopped = reports.build(run.pk).sections[0]
    assert any("1 retry" in claim.says for claim in stopped.claims)
    assert "retry is due" not in more(run)


def test_a_person_decides_with_a_reason_what_only_a_worker_denies(world: World) -> None:
    run = world.run()
    step = failed(run)
    alice, path = browser(world.alice), f"/runs/{run.pk}/retry"
    page = text_of(alice.get(f"{path}?step={step.pk}").content.decode())
    assert "only its worker says so" in page
    form = {"step": step.pk, "version": "1", "delay": "300", "reason": " "}
    assert alice.post(path, form).status_code == 422
    assert fresh(step).status == "FAILED"
    assert alice.post(path, {**form, "reason": "the bank says no"}).status_code == 302
    assert fresh(step).status == "RETRY_WAIT"
    line = Evidence.objects.filter(stream=run.pk).order_by("-seq")[0]
    assert (line.kind, line.actor) == ("retry.scheduled", world.alice.id)
    again = text_of(alice.get(f"{path}?step={step.pk}").content.decode())
    assert "It waits for another try already." in again


def test_a_stop_that_came_since_the_page_was_opened_beats_the_decision(world: World) -> None:
    run = world.run()
    step = failed(run)
    world.stop(run)
    form = {"step": step.pk, "version": "1", "reason": "the bank says no"}
    answer = browser(world.alice).post(f"/runs/{run.pk}/retry", form)
    assert answer.status_code == 409
    assert "Nothing was scheduled: the run is stopped." in text_of(answer.content.decode())
    assert fresh(step).status == "FAILED"


def test_who_may_not_resume_may_not_decide_and_is_offered_nothing(world: World) -> None:
    run = world.run()
    step = failed(run)
    dana = browser(world.dana)
    assert "Try again…" not in dana.get(f"/runs/{run.pk}/").content.decode()
    assert "Try again…" in browser(world.alice).get(f"/runs/{run.pk}/").content.decode()
    assert dana.get(f"/runs/{run.pk}/retry?step={step.pk}").status_code == 403
    foreign = a_step(world.run("other"), "FAILED")
    assert browser(world.alice).get(f"/runs/{run.pk}/retry?step={foreign.pk}").status_code == 404
