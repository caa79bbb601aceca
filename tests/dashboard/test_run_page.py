"""The run page tells what is true of a run: no more, and nothing left out unsaid."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from effects import ends
from effects.drain import drain_run
from effects.models import Effect
from runs import gate
from runs.models import Evidence, Permit, Refusal, Run, Step, StopRequest, Worker
from tests.dashboard.scenes import browser, text_of
from tests.worlds import World, a_permit, fresh, in_seconds, lapse

pytestmark = pytest.mark.django_db(transaction=True)
HOSTILE = "<img src=x onerror=alert(1)>\u202e</script>{{ 7*7 }}\x00\x1b"


@pytest.fixture
def world() -> World:
    return World()


def html_of(world: World, run: Run, **headers: str) -> str:
    answer = browser(world.alice).get(f"/runs/{run.pk}/", headers=headers)
    assert answer.status_code == 200
    return answer.content.decode()


def test_a_new_run_says_that_nothing_was_reported_yet(world: World) -> None:
    said = text_of(html_of(world, world.run()))
    assert "May start new work." in said
    assert "No steps reported yet." in said
    assert "No effect is declared." in said
    assert "Nothing was refused." in said
    assert "Five commitments" not in said


def test_a_failed_run_says_so_with_the_reason_also_while_an_effect_is_unknown(world: World) -> None:
    run = world.run()
    world.report(world.opened(run, "charge:1"), "unknown")
    ends.fail(actor=world.agent, run_id=run.pk, summary="out of memory")
    said = text_of(html_of(world, run))
    assert "Awaiting verification" in said
    assert re.search(r"The runtime said failed \d\d:\d\d:\d\d, “out of memory”", said)


def test_a_stopping_run_shows_both_versions_the_stop_line_and_what_was_refused(world: World) -> None:
    run = world.run()
    world.report(world.opened(run, "charge:1"))
    flying = world.opened(run, "charge:2")
    world.stop(run)
    world.refused(fresh(run), "charge:3", seen_version=1)
    html = html_of(world, run)
    said = text_of(html)
    assert "Stopping · close-books" in html
    assert "New work is refused from version 2." in said
    assert "1 before 2 now" in said
    assert html.count('class="tl-stop"') > 2
    assert "1 of 2 known" in said
    assert "carried v1" in said
    assert "current v2" in said
    assert "1 refused, 0 dispatched after the stop" in said
    assert flying.permit.pk not in html  # a permit's id and token are its holder's


def test_a_run_at_rest_with_an_unknown_says_so_in_title_icon_and_words(world: World) -> None:
    run = world.run()
    world.report(world.opened(run, "charge:1"), "unknown", detail="no answer")
    world.stop(run)
    drain_run(run.pk)
    html = html_of(world, run)
    assert "<title>(1?) Awaiting verification · close-books — Allstop</title>" in html
    assert 'data-favicon="unknown"' in html
    assert "We cannot yet say whether “charge:1” happened." in text_of(html)


def test_a_timed_out_stop_names_who_did_not_confirm(world: World) -> None:
    run = world.run()
    world.heartbeat(run)
    world.opened(run, "charge:1")
    world.stop(run)
    StopRequest.objects.update(deadline_at=in_seconds(-1))
    drain_run(run.pk)
    said = text_of(html_of(world, run))
    assert "Stop timed out" in said
    assert "w-1 is still in “charge:1” since" in said, "it answers"
    assert "New work stays refused." in said
    Worker.objects.update(last_heard_at=in_seconds(-31))
    said = text_of(html_of(world, run))
    assert "w-1 did not confirm by" in said
    assert "w-1 is still in" not in said
    assert "Silence is not proof that it stopped" in said


def test_a_late_report_wears_its_own_chip_and_moves_no_status(world: World) -> None:
    run = world.run()
    opened = world.opened(run, "charge:1")
    world.stop(run)
    lapse(opened.permit, opened.step)
    drain_run(run.pk)
    world.report(opened, "applied")
    said = text_of(html_of(world, run))
    assert "Late report" in said
    assert "Partially completed" in said


def test_a_dispatch_after_the_stop_is_shown_as_the_breach_it_is(world: World) -> None:
    run = world.run()
    world.stop(run)
    step = Step.objects.create(run=run, key="leak", name="leak", op_class="external_write")
    permit = a_permit(step, seen_version=1)
    last = Evidence.objects.filter(stream=run.pk).count()
    Evidence.objects.create(
        stream=run.pk, seq=last + 1, kind="permit.opened", actor="worker", permit_id=permit.pk
    )
    html = html_of(world, run)
    assert "1 dispatched after the stop." in text_of(html)
    assert "mk-leak" in html


def test_hostile_names_are_shown_as_text_without_what_deceives(world: World) -> None:
    run = world.run("k", name=HOSTILE.replace("\x00", ""), agent=HOSTILE.replace("\x00", ""))
    Step.objects.create(run=run, key="s", name=HOSTILE.replace("\x00", ""), op_class="read")
    html = html_of(world, run)
    assert "<img src=x" not in html
    assert "\u202e" not in html
    assert "\x1b" not in html
    assert "{{ 7*7 }}" in html
    assert "&lt;img src=x onerror=alert(1)&gt;" in html


def test_a_region_gets_its_fragment_with_title_and_nothing_around_it(world: World) -> None:
    html = html_of(world, world.run(), **{"HX-Request": "true"})
    assert "<title>Running · close-books — Allstop</title>" in html
    assert "<html" not in html
    assert "data-topic" not in html
    assert "stop-dlg" not in html.replace('data-dialog="stop-dlg"', "")


def steady(html: str) -> str:
    """A page without what moves by itself: times of day, ages, places on the axis."""
    return re.sub(r"\d\d:\d\d:\d\d(\.\d+)?|data-ago=\S+|[\d.]+ s ago|\d+\.\d+%", "", html)


def test_the_page_freshly_loaded_holds_exactly_the_region_that_would_be_fetched(world: World) -> None:
    run = world.run()
    world.report(world.opened(run, "charge:1"))
    page = steady(html_of(world, run))
    region = steady(html_of(world, run, **{"HX-Request": "true"}))
    assert region.partition("</title>")[2].strip() in page


def test_everything_works_without_scripts_there_is_a_link_behind_each_button(world: World) -> None:
    run = world.run()
    html = html_of(world, run)
    assert f'href="/runs/{run.pk}/stop"' in html
    assert "<noscript" not in html


def fill(run: Run, number: int) -> None:
    """Steps, effects, refusals and lines: `number` more of each."""
    start = Step.objects.filter(run=run).count()
    steps = [
        Step(run=run, key=f"s{n}", name=f"s{n}", op_class="external_write", status="SUCCEEDED")
        for n in range(start, start + number)
    ]
    Step.objects.bulk_create(steps)
    Effect.objects.bulk_create(
        Effect(
            run=run, step=step, key=step.key, kind_name="k", op_class="external_write", title=step.key,
            settlement="CONFIRMED", body_digest="", plan_digest="", parameters_digest="",
        )
        for step in steps
    )  # fmt: skip
    Refusal.objects.bulk_create(
        Refusal(run=run, workspace_id=run.workspace_id, boundary="claim", reason="stopped", step_key=step.key)
        for step in steps
    )
    top = Evidence.objects.filter(stream=run.pk).count()
    Evidence.objects.bulk_create(
        Evidence(stream=run.pk, seq=top + n, kind="effect.confirmed", actor="system", effect_key=step.key)
        for n, step in enumerate(steps, 1)
    )


@pytest.mark.parametrize("path", ["", "stop", "stop/preview", "evidence"])
def test_a_page_asks_as_often_for_a_thousand_rows_as_for_ten(world: World, path: str) -> None:
    run, alice = world.run(), browser(world.alice)
    world.opened(run, "charge:1")
    world.stop(run)
    counts = []
    for number in (10, 990):
        fill(run, number)
        with CaptureQueriesContext(
            connection,
        ) as asked:
            assert alice.get(f"/runs/{run.pk}/{path}").status_code == 200
        counts.append(len(asked))
    assert counts[0] == counts[1]
    assert counts[1] <= 21


def test_what_is_left_out_of_a_list_is_counted(world: World) -> None:
    run = world.run()
    fill(run, 300)
    Worker.objects.bulk_create(
        Worker(run=run, name=f"w-{n:03}", confirmed_version=1 if n % 4 else 2, last_heard_at=in_seconds(0))
        for n in range(200)
    )
    world.stop(run)
    StopRequest.objects.update(timed_out_at=in_seconds(0))
    said = text_of(html_of(world, run))
    assert "60 of 300 effects: those on the timeline, then those still open, then the newest." in said
    assert "260 older steps are not drawn" in said
    assert "300 refused" in said
    assert "The first 40 of 300 refusals" in said
    assert "50 of 201 workers" in said
    assert "50 of 201 confirmed v2; 20 shown, those behind first" in said
    assert re.search(r"the newest 200 of \d+\)", said)


def test_a_dialog_counts_what_it_does_not_list(world: World) -> None:
    run = world.run()
    step = Step.objects.create(run=run, key="s", name="s", op_class="read", status="DISPATCHED")
    Permit.objects.bulk_create(
        Permit(
            run=run, step=step, boundary="dispatch", op_class="read", seen_version=1, token=f"t{n}",
            worker="w", permit_until=in_seconds(10), lease_until=in_seconds(60),
        )
        for n in range(450)
    )  # fmt: skip
    Worker.objects.bulk_create(
        Worker(run=run, name=f"w-{n:03}", confirmed_version=1, last_heard_at=in_seconds(-99))
        for n in range(100)
    )
    said = text_of(browser(world.alice).get(f"/runs/{run.pk}/stop/preview").content.decode())
    assert "450 actions are in flight, the latest: s, since" in said
    assert "At least 19 workers not heard for 30 s." in said


def test_withheld_steps_share_one_lane_when_they_are_many(world: World) -> None:
    run = world.run()
    for number in range(5):
        gate.register(world.ask(run, step_key=f"q{number}"))
    world.stop(run)
    gate.claim(world.ask(run, step_key="q1", seen_version=1))
    said = text_of(html_of(world, run))
    assert "5 queued steps withheld" in said
