"""Pauses, resumes, escalations, deadlines and what was given up, on the pages and in the report."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.test import Client

from dashboard import event_words, reports, words
from effects.drain import drain_run
from runs.evidence import Line, record
from runs.models import Evidence, Press, Run, StopRequest, Workspace
from runs.store import database_time
from tests.dashboard import report_scenes as scenes
from tests.dashboard.scenes import browser, text_of
from tests.worlds import World, a_permit, a_step, fresh, kinds_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def world(db: None) -> World:
    return World()


def said(client: Client, path: str, **sent: str) -> str:
    answer = client.post(path, sent, follow=True) if sent else client.get(path)
    return text_of(answer.content.decode())


def paused(world: World, key: str = "close-books") -> Run:
    run = world.run(key)
    world.report(world.opened(run, f"{key}:1"))
    world.claimed(run, f"{key}:next")
    world.stop(run, mode="pause")
    assert drain_run(run.pk) == "PAUSED"
    return fresh(run)


# --- The dialog -------------------------------------------------------------------------------------------


def radios(html: str) -> list[tuple[str, bool]]:
    found = re.findall(r'<input type="radio" name="mode" value="(\w+)" required( checked)?', html)
    return [(mode, bool(checked)) for mode, checked in found]


def test_the_form_offers_three_modes_with_full_sentences_and_cancel_is_chosen(world: World) -> None:
    run, alice = world.run(), browser(world.alice)
    for path in ("", "stop"):
        html = alice.get(f"/runs/{run.pk}/{path}").content.decode()
        assert radios(html) == [("pause", False), ("cancel", True), ("abandon", False)]
        assert all(sentence in text_of(html) for sentence in words.MODE.values())


@pytest.mark.parametrize(
    ("mode", "offered"),
    [
        ("pause", [("cancel", True), ("abandon", False)]),
        ("cancel", [("abandon", True)]),
        (
            "abandon",
            [("cancel", True)],
        ),  # it has ended: a press is kept, and what it asks for decides nothing
    ],
)
def test_after_a_stop_only_stronger_modes_are_offered(
    world: World, mode: str, offered: list[tuple[str, bool]]
) -> None:
    run, alice = world.run(), browser(world.alice)
    world.opened(run)
    world.stop(run, mode=mode)
    page = alice.get(f"/runs/{run.pk}/").content.decode()
    assert ("Escalate…" in page) == (mode != "abandon")
    assert "stop-dlg" not in page
    html = alice.get(f"/runs/{run.pk}/stop").content.decode()
    assert radios(html) == offered
    assert ("Escalate this stop" in html) == (mode != "abandon")


def test_a_form_that_comes_back_never_asks_for_more_than_its_person_did(world: World) -> None:
    run, alice = world.run(), browser(world.alice)
    world.stop(run, by=world.bob, mode="cancel")
    html = alice.get(f"/runs/{run.pk}/stop?key=k-1&mode=pause").content.decode()
    assert radios(html) == [("pause", True), ("abandon", False)]


def test_a_mode_that_nobody_knows_is_the_mildest_and_is_named(world: World) -> None:
    run = world.run()
    told = said(browser(world.alice), f"/runs/{run.pk}/stop", key="k-1", mode="explode")
    assert "Left out, because it could not be read: mode." in told
    assert fresh(run).status == "PAUSING"


def test_the_preview_tells_per_mode_what_is_held_refused_or_given_up(world: World) -> None:
    run = world.run()
    world.opened(run)
    world.claimed(run, "later")
    told = said(browser(world.alice), f"/runs/{run.pk}/stop/preview")
    assert "Pause: 1 queued step will be held and keeps its place." in told
    assert "Cancel: 1 queued step will be refused." in told
    assert "Abandon: 1 effect in flight becomes unknown at once." in told
    assert "Abandon: Nobody is asked about it any more." in told


def test_an_open_dialog_hears_of_a_stop_that_just_came_and_what_the_press_will_be_to_it(world: World) -> None:
    run, alice = world.run(), browser(world.alice)
    assert "has already stopped" not in said(alice, f"/runs/{run.pk}/stop/preview")
    world.stop(run, by=world.bob, mode="cancel")
    told = said(alice, f"/runs/{run.pk}/stop/preview")
    assert "Bob has already stopped this run: stop #1 (cancel)," in told
    assert "Cancel: Your press will join stop #1, and is kept with it." in told
    assert "Pause: Your press will join stop #1, and is kept with it. A milder mode changes nothing." in told
    assert "Abandon: Your press will replace stop #1." in told


# --- The dock and the deadline ----------------------------------------------------------------------------


def test_the_dock_says_who_held_it_and_offers_what_this_person_may_do(world: World) -> None:
    run = paused(world)
    told = said(browser(world.alice), f"/runs/{run.pk}/")
    assert "Held by Alice. Resumes only by a new decision." in told
    assert "Stop #1 recorded by Alice" in told
    assert "Resume… Escalate… Report" in told
    assert "Force the deadline" not in told
    reader = said(browser(world.dana), f"/runs/{run.pk}/")
    assert ("Resume…" in reader, "Escalate…" in reader, "Report" in reader) == (False, False, True)


def test_a_deadline_is_forced_from_a_page_of_its_own(world: World) -> None:
    run, alice = world.run(), browser(world.alice)
    world.opened(run)
    stop = world.stop(run, mode="pause", deadline_s=3600).stop
    assert "Force the deadline now…" in said(alice, f"/runs/{run.pk}/")
    path = f"/runs/{run.pk}/stop/deadline"
    assert "leases are fenced, and the run is paused" in said(alice, path)
    assert "has passed now, by your decision." in said(alice, path, stop=stop.pk)
    assert "Nothing waits for the deadline of stop #1 any more" in said(alice, path, stop=stop.pk)
    assert kinds_of(run).count("stop.deadline_forced") == 1
    assert browser(world.dana).post(path, {"stop": stop.pk}).status_code == 403
    other = world.stop(world.run("other"), deadline_s=3600).stop
    assert alice.post(path, {"stop": other.pk}).status_code == 404
    assert drain_run(run.pk) == "PAUSED"
    assert "Its deadline passed" in said(alice, f"/runs/{run.pk}/")


# --- Resume -----------------------------------------------------------------------------------------------


def form_in(html: str) -> dict[str, str]:
    main = html.partition('id="main"')[2]
    found = re.findall(r'<input type="hidden" name="(stop|version|presses)" value="(.*?)">', main)
    return {**dict(found), "reason": "prices are right now"}


def form_of(client: Client, run: Run) -> dict[str, str]:
    return form_in(client.get(f"/runs/{run.pk}/resume").content.decode())


def test_bob_resumes_from_a_page_that_lists_each_effect_and_what_becomes_admissible(world: World) -> None:
    run, bob = paused(world), browser(world.bob)
    told = said(bob, f"/runs/{run.pk}/resume")
    assert "Held by Alice since" in told
    assert "close-books:1 close-books:1 Confirmed Skip, settled" in told
    assert "1 queued step may be claimed." in told
    form = form_of(bob, run)
    after = said(bob, f"/runs/{run.pk}/resume", **form)
    assert "Resumed at version 3. That starts nothing by itself" in after
    assert "Resumed by Bob" in after
    assert (fresh(run).status, fresh(run).cancel_version) == ("ACTIVE", 3)
    again = said(bob, f"/runs/{run.pk}/resume", **form)
    assert "Bob had resumed it at" in again, "a second click is told what the first one did"


def test_a_resume_needs_a_reason_and_a_right(world: World) -> None:
    run, bob = paused(world), browser(world.bob)
    path, form = f"/runs/{run.pk}/resume", form_of(bob, run)
    assert bob.post(path, {**form, "reason": " "}).status_code == 422
    assert browser(world.dana).get(path).status_code == 403
    assert browser(world.dana).post(path, form).status_code == 403
    assert browser(world.mallory).post(path, form).status_code == 404
    assert bob.post(path, {"reason": "no word of what was seen"}).status_code == 409
    assert fresh(run).status == "PAUSED"


def test_what_must_wait_is_the_refusal(world: World) -> None:
    run, bob = scenes.late_pause(world), browser(world.bob)
    told = said(bob, f"/runs/{run.pk}/resume")
    assert "This run can’t be resumed now" in told
    assert "charge:7 Awaiting verification Must wait" in told
    assert "An effect or a compensation is in progress or unknown." in told
    assert "Why may it go on?" not in told
    assert bob.post(f"/runs/{run.pk}/resume", {"reason": "now"}).status_code == 409


def second_pause(world: World, run: Run) -> str:
    world.stop(run, by=world.carol, mode="pause", note="not before noon")
    return "Carol pressed Stop again"


def cancelled(world: World, run: Run) -> str:
    world.stop(run, by=world.carol, mode="cancel")
    return "stop #2 (cancel) by Carol"


def resumed_and_paused(world: World, run: Run) -> str:
    bob = browser(world.bob)
    bob.post(f"/runs/{run.pk}/resume", form_of(bob, run))
    world.stop(run, by=world.carol, mode="pause")
    drain_run(run.pk)
    return "stop #2 (pause) by Carol"


@pytest.mark.parametrize("event", [second_pause, cancelled, resumed_and_paused])
def test_whatever_came_since_beats_the_link_and_is_told(
    world: World, event: Callable[[World, Run], str]
) -> None:
    run, alice = paused(world), browser(world.alice)
    form = form_of(alice, run)
    came = event(world, run)
    before = fresh(run)
    answer = alice.post(f"/runs/{run.pk}/resume", form)
    told = text_of(answer.content.decode())
    assert answer.status_code == 409
    assert "Nothing was resumed." in told
    assert f"Since you read the page: {came}" in told
    assert (fresh(run).status, fresh(run).cancel_version) == (before.status, before.cancel_version)
    if event is not cancelled:
        assert form["reason"] in answer.content.decode(), "what was typed is kept"
        assert alice.post(f"/runs/{run.pk}/resume", form_in(answer.content.decode())).status_code == 302
        assert fresh(run).status == "ACTIVE"


def test_a_shut_workspace_is_named_and_after_a_release_the_resume_works(world: World) -> None:
    run, bob = paused(world), browser(world.bob)
    Workspace.objects.update(gate="SHUT", epoch=2)
    assert "Workspace “Finance” is shut." in said(bob, f"/runs/{run.pk}/resume")
    Workspace.objects.update(gate="OPEN")
    assert bob.post(f"/runs/{run.pk}/resume", form_of(bob, run)).status_code == 302
    assert fresh(run).admitted_epoch == 2


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ("PAUSING", "It is still draining."),
        ("CANCELLED", "This run has ended. Start a new run from its evidence."),
        ("CANCELLING", "Start a new run from the evidence of this one."),
    ],
)
def test_a_run_that_is_not_paused_says_why_it_is_not_resumed(world: World, status: str, why: str) -> None:
    run = paused(world)
    Run.objects.filter(pk=run.pk).advance({"status": status})
    assert why in said(browser(world.bob), f"/runs/{run.pk}/resume")


# --- Every page of every kind of end ----------------------------------------------------------------------

SCENES = {
    "paused": (scenes.resumable_pause, "Held by Alice. Resumes only by a new decision."),
    "late pause": (scenes.late_pause, "Held by Alice. Resumes only by a new decision."),
    "paused, then cancelled": (scenes.paused_then_cancelled, "Was paused by Alice"),
    "resumed, then completed": (scenes.resumed_then_completed, "Resumed by Bob"),
    "abandoned": (scenes.abandoned, "We no longer wait or act. Outside work may continue."),
}
CLAIMS = {
    "paused": ["(pause) took effect", "1 claim was given back by a pause", "1 step waits for a resume.",
               "held and can be resumed by a new decision", "Resume the run by a decision of its own"],
    "late pause": ["A person let its deadline pass at", "counts as unknown, and the run was paused."],
    "paused, then cancelled": ["The run was paused, then cancelled.", "Stop #2 took effect",
                               "1 attempt was refused after the stop"],
    "resumed, then completed": ["It was resumed by a decision at", "admitted again from version 3.",
                                "New work found after quiescing: 0 by our gates."],
    "abandoned": ["and nothing is waited for any more.", "No. We no longer wait or act.",
                  "The run was cancelled, then abandoned."],
}  # fmt: skip


@pytest.mark.parametrize("name", SCENES)
def test_run_report_evidence_and_list_tell_it(world: World, name: str) -> None:
    scene, sentence = SCENES[name]
    run, alice = scene(world), browser(world.alice)
    page = alice.get(f"/runs/{run.pk}/").content.decode()
    assert sentence in text_of(page)
    assert "mk-leak" not in page
    report = said(alice, f"/runs/{run.pk}/report")
    for claim in CLAIMS[name]:
        assert claim in report, claim
    lines = alice.get(f"/runs/{run.pk}/evidence").content.decode()
    named = set(re.findall(r"<div><b>(.*?)</b>", lines))
    told = {kind: event_words.event(kind) for kind in kinds_of(run)}
    assert named >= {word for word in told.values() if word in event_words.EVENT.values()}
    assert set(told) <= set(event_words.EVENT) | {"dispatch.refused"}, "each kind has its words"
    assert said(alice, "/runs/").count(run.name) >= 1


@pytest.mark.parametrize(("scene", "word"), [(scenes.abandoned, False), (scenes.awaiting_verification, True)])
def test_an_unknown_of_an_abandoned_run_is_not_called_awaiting(
    world: World, scene: scenes.Scene, word: bool
) -> None:
    run, alice = scene(world), browser(world.alice)
    for page in (f"/runs/{run.pk}/", f"/runs/{run.pk}/report"):
        told = said(alice, page)
        assert ("waiting verification" in told) == word
        assert "Unknown" in told or word


def test_the_timeline_shades_each_hold_and_flags_what_began_and_ended_it(world: World) -> None:
    run = scenes.resumed_then_completed(world)
    html = browser(world.alice).get(f"/runs/{run.pk}/").content.decode()
    assert "Resumed · v3" in html
    assert html.count('class="tl-resume"') == html.count('class="tl-stop"') > 1


def test_a_leak_between_a_pause_and_its_cancel_is_found_and_work_after_a_resume_is_none(world: World) -> None:
    held, resumed = world.run("held"), scenes.resumed_then_completed(world)
    world.opened(held)
    world.stop(held, mode="pause")
    permit = a_permit(a_step(held, "DISPATCHED"), seen_version=1)
    record(held, Line("permit.opened", "worker", carried_version=1, permit_id=permit.pk))
    world.stop(held, mode="cancel")
    assert reports.build(held.pk).new_work.found == 1
    assert "1 dispatched after the stop." in said(browser(world.alice), f"/runs/{held.pk}/")
    opened = Evidence.objects.filter(stream=resumed.pk, kind="permit.opened", carried_version=3)
    assert opened.count() == 1, "there was work after the resume"
    assert reports.build(resumed.pk).new_work.found == 0


def test_a_stop_that_was_pressed_often_hides_none_before_it_in_the_report(world: World) -> None:
    run = world.run()
    world.opened(run)
    world.stop(run, mode="pause")
    last = world.stop(run, mode="cancel").stop
    Press.objects.bulk_create(
        Press(stop=last, actor=world.bob.id, via="api", key=f"k-{n}", mode="cancel", answer="joined")
        for n in range(60)
    )
    report = reports.build(run.pk)
    assert report.stop is not None
    assert (report.stop.number, report.stop.pressed, report.stop.replaces) == (2, 61, "stop #1 (pause)")
    assert [stop.number for stop in report.earlier_stops] == [1]


def test_the_list_offers_resume_and_says_which_pause_was_resumed(world: World) -> None:
    held, resumed = paused(world, "held"), scenes.resumed_then_completed(world)
    alice = browser(world.alice)
    html = alice.get("/runs/").content.decode()
    assert f'href="/runs/{held.pk}/resume"' in html
    assert "pause, resumed" in text_of(html)
    assert f'href="/runs/{held.pk}/resume"' not in browser(world.dana).get("/runs/").content.decode()
    only = alice.get("/runs/?status=paused").content.decode()
    assert (held.pk in only, resumed.pk in only) == (True, False)


def test_what_was_not_applied_is_no_confirmed_effect_in_the_list_and_needs_no_plan(world: World) -> None:
    run, alice = world.run(), browser(world.alice)
    world.report(world.opened(run, "charge:1"), "not_applied")
    html = alice.get("/runs/").content.decode()
    assert "1 not applied" in text_of(html)
    strip = html.partition('<svg class="strip"')[2].partition("</svg>")[0]
    assert ("m-denied" in strip, "m-known" in strip) == (True, False)
    assert "not needed: it did not happen" in said(alice, f"/runs/{run.pk}/")


@pytest.mark.parametrize("name", ["not-resumed", "stale-version"])
def test_the_address_of_a_problem_leads_to_its_section(world: World, name: str) -> None:
    told = said(browser(), f"/problems/{name}")
    assert f"/problems/{name} · HTTP 409" in told
    assert "What to do:" in told
    assert browser().get("/problems/no-such-thing").status_code == 404


def test_stops_in_order_are_told_without_a_person_where_there_is_none(world: World) -> None:
    run = paused(world)
    StopRequest.objects.filter(run=run).update(closed_at=database_time(), closed_because="resumed")
    assert "Held by a stop above it." in said(browser(world.alice), f"/runs/{run.pk}/")
