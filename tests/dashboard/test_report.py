"""The report: five questions, each sentence on its lines, nothing promised beyond them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from dashboard import reports, words
from dashboard.reports import Report, Section
from effects import ends, reconcile, settle
from effects.intents import plan_bytes
from effects.models import Effect
from effects.reconcile import Answer
from runs import gate
from runs.access import NotFound
from runs.evidence import Line, record
from runs.models import Evidence, EvidencePayload, Refusal, Run
from runs.store import Now
from tests.dashboard.report_scenes import SCENES, awaiting_verification, lost_worker, partially_completed
from tests.dashboard.scenes import browser
from tests.kept import kept
from tests.worlds import World, a_kind, a_permit, a_step, an_effect, fresh, in_seconds

pytestmark = pytest.mark.django_db

HEADINGS = [
    "What stopped",
    "What had already completed",
    "What is uncertain",
    "Will the system do anything more?",
    "What a person can do next",
]


@pytest.fixture
def w() -> World:
    return World()


def section(report: Report, key: str) -> Section:
    return next(one for one in report.sections if one.key == key)


def said(report: Report, key: str) -> str:
    return " ".join(claim.says for claim in section(report, key).claims)


def everything(report: Report) -> str:
    claims = [claim.says for one in report.sections for claim in one.claims]
    tables: list[Any] = [report.manifest, report.log, report.in_flight, report.workers, report.late]
    tables.append(report.new_work)
    rows = [row.became for row in report.in_flight.rows] + [row.says for row in report.late.rows]
    parts = [report.sentence, report.word, report.stamp, *report.method, *claims, *rows]
    return " ".join([*parts, *(table.says for table in tables), *(row.says for row in report.workers.rows)])


# --- What holds for every outcome -----------------------------------------------------------------------


Told = dict[str, tuple[str, Run, Report]]


@pytest.fixture(scope="module")
def scenes(django_db_setup: None, django_db_blocker: Any) -> Iterator[Callable[[], Told]]:
    yield from kept(django_db_blocker, tell_all)


def tell_all() -> Told:
    """One run for each outcome, each in a world of its own."""
    runs = {outcome: scene(World()) for outcome, scene in SCENES.items()}
    return {outcome: (outcome, run, reports.build(run.pk)) for outcome, run in runs.items()}


@pytest.fixture(params=SCENES)
def told(request: pytest.FixtureRequest, scenes: Callable[[], Told]) -> tuple[str, Run, Report]:
    return scenes()[request.param]


def test_a_report_tells_the_outcome_of_its_rows(told: tuple[str, Run, Report]) -> None:
    outcome, _, report = told
    assert report.outcome == outcome
    assert report.sentence.endswith(".")
    assert report.draft is True
    assert report.final is False


def test_the_five_headings_stand_in_order_and_no_section_is_empty(told: tuple[str, Run, Report]) -> None:
    _, _, report = told
    assert [one.title for one in report.sections] == HEADINGS
    assert [one.number for one in report.sections] == [1, 2, 3, 4, 5]
    assert all(one.claims and all(claim.says for claim in one.claims) for one in report.sections)


def test_every_table_without_rows_says_so(told: tuple[str, Run, Report]) -> None:
    _, _, report = told
    tables: list[Any] = [report.manifest, report.log, report.in_flight, report.workers, report.late]
    assert all(table.rows or table.says for table in tables)
    assert report.new_work.says


def test_every_line_that_is_cited_exists_and_is_listed(told: tuple[str, Run, Report]) -> None:
    _, run, report = told
    exist = set(Evidence.objects.filter(stream=run.pk).values_list("seq", flat=True))
    claimed = {seq for one in report.sections for claim in one.claims for seq in claim.lines}
    assert claimed <= exist
    assert claimed == {line.seq for line in report.evidence}
    assert {row.line for row in report.manifest.rows} <= exist
    assert {row.line for row in report.log.rows} <= exist
    assert {seq for row in report.in_flight.rows for seq in row.lines} <= exist


def test_every_claim_has_an_anchor_of_its_own(told: tuple[str, Run, Report]) -> None:
    _, _, report = told
    anchors = [claim.anchor for one in report.sections for claim in one.claims]
    assert len(set(anchors)) == len(anchors)
    assert all(re.fullmatch(r"[a-z]+-\d+", anchor) for anchor in anchors)


def test_no_sentence_promises_more_than_the_evidence(told: tuple[str, Run, Report]) -> None:
    _, _, report = told
    text = everything(report).lower()
    assert not [word for word in words.FORBIDDEN if word in text]
    assert "None" not in everything(report).replace("None was waited for", "")


def test_a_claim_about_something_that_is_there_has_a_line(told: tuple[str, Run, Report]) -> None:
    """What has no line is a statement that something is absent, or a piece of advice."""
    _, _, report = told
    bare = [claim.says for one in report.sections[:4] for claim in one.claims if not claim.lines]
    absent = ("No ", "Allstop does not govern", "Also begun")
    assert [text for text in bare if not text.startswith(absent)] == []


# --- What stopped ---------------------------------------------------------------------------------------


def test_the_head_says_who_asked_how_often_and_at_which_versions(w: World) -> None:
    run = awaiting_verification(w)
    report = reports.build(run.pk)
    stop = report.stop
    assert stop is not None
    assert (stop.number, stop.mode, stop.reason, stop.note) == (
        1,
        "cancel",
        "wrong input",
        "price list is last month’s",
    )
    assert (stop.version_before, stop.version_after) == (1, 2)
    assert stop.pressed_says == "pressed twice, joined once"
    assert [report.names[press.actor] for press in stop.presses] == ["Alice", "Bob"]
    assert stop.gate_at == stop.recorded_at
    assert stop.quiet_at is not None
    assert stop.closed_at is None
    assert (report.known, report.of) == (1, 2)


def test_refusals_are_counted_by_what_they_were_and_repeats_are_told_apart(w: World) -> None:
    report = reports.build(awaiting_verification(w).pk)
    text = said(report, "stopped")
    assert "1 attempt was refused after the stop: 1 dispatch." in text
    assert "It was made 2 times." in text
    assert "1 step was withheld before anything was sent." in text
    row = report.log.rows[0]
    assert (row.carried_version, row.current_version, row.count, row.after_stop) == (1, 2, 2, True)
    assert (report.log.total, report.log.asked) == (1, 2)


def test_a_refusal_before_the_stop_is_told_by_its_version_not_by_its_time(w: World) -> None:
    run = w.run()
    step = w.claimed(run)
    w.refused(run, "foreign", step_id=step.pk, claim_token="not mine")
    w.stop(run)
    w.refused(run, "late")
    report = reports.build(run.pk)
    assert [(row.reason, row.after_stop) for row in report.log.rows] == [
        ("lost_claim", False),
        ("stopped", True),
    ]
    assert "1 attempt was refused after the stop" in said(report, "stopped")


def test_a_completion_that_came_after_the_stop_is_told_as_refused(w: World) -> None:
    run = w.run()
    w.opened(run)
    w.stop(run)
    ends.complete(actor=w.agent, run_id=run.pk, seen=1)
    text = said(reports.build(run.pk), "stopped")
    assert "The runtime reported an end of the run too late: it was refused." in text


def test_no_new_work_after_quiescing_is_found_and_what_no_gate_sees_is_named(w: World) -> None:
    report = reports.build(awaiting_verification(w).pk)
    text = said(report, "stopped")
    assert "New work found after quiescing: 0 by our gates." in text
    assert "1 tool runs at the provider and can’t be observed: web search." in text
    assert report.new_work.found == 0
    assert report.new_work.ungateable == ["web search"]


@pytest.mark.parametrize("version", [1, 2])
def test_a_permit_that_was_opened_past_the_stop_is_found_whatever_the_clocks_say(
    w: World, version: int
) -> None:
    """The negative control: a gate that leaks, at the old version or at a forged one."""
    run = awaiting_verification(w)
    permit = a_permit(a_step(run, "DISPATCHED"), seen_version=version, opened_at=in_seconds(-3600))
    with transaction.atomic():
        record(run, Line("permit.opened", "system", carried_version=version, permit_id=permit.pk))
    report = reports.build(run.pk)
    assert report.new_work.found == 1
    assert "New work found after quiescing: 1 by our gates." in said(report, "stopped")
    assert "This must not happen." in said(report, "stopped")
    assert report.new_work.lines == [
        Evidence.objects.filter(stream=run.pk, kind="permit.opened").latest("seq").seq
    ]


def test_a_permit_of_another_guard_is_no_breach(w: World) -> None:
    run = awaiting_verification(w)
    permit = a_permit(a_step(run, "DISPATCHED"), seen_version=2, guard="cleanup")
    with transaction.atomic():
        record(run, Line("permit.opened", "system", carried_version=2, permit_id=permit.pk))
    assert reports.build(run.pk).new_work.found == 0


def test_what_was_in_flight_is_listed_with_what_became_of_it(w: World) -> None:
    report = reports.build(partially_completed(w).pk)
    became = {row.effect_key: row.became for row in report.in_flight.rows}
    assert set(became) == {"charge:2", "charge:3"}
    assert "reported that part of it happened" in became["charge:2"]
    assert "The effect is now: not applied." in became["charge:3"]


def test_a_stop_of_a_finished_run_says_that_it_refused_nothing(w: World) -> None:
    run = SCENES["completed"](w)
    w.stop(run)
    report = reports.build(run.pk)
    text = said(report, "stopped")
    assert "came after the run had ended, and had nothing left to refuse" in text
    assert "The runtime reported the end of the run at" in text
    assert report.in_flight.says == "No stop took effect, so nothing was listed."
    assert section(report, "stopped").claims[0].lines


def test_a_stop_that_waited_for_its_run_is_effective_from_the_admission(w: World) -> None:
    w.stop_key("later")
    run = w.run("later")
    report = reports.build(run.pk)
    assert report.stop is not None
    assert report.stop.version_before is None
    assert "took effect" in said(report, "stopped")
    assert section(report, "stopped").claims[0].lines == [2]


# --- What had completed, what is uncertain -----------------------------------------------------------------


def test_an_effect_that_became_known_after_the_stop_says_so(w: World) -> None:
    claims = section(reports.build(partially_completed(w).pk), "completed").claims
    assert claims[0].lead == "“charge:1”:"
    assert "by its worker’s report, reference ch_1." in claims[0].text
    assert "before the stop" not in claims[0].text
    assert "partly done" in claims[1].text
    assert "2 items" in claims[1].text
    assert "its permit was given before the stop" in claims[1].text.lower()
    assert "1 dispatched effect is known not to have happened: “charge:3”." in claims[2].text


def test_an_unknown_effect_is_not_called_failed_and_is_not_sent_again(w: World) -> None:
    report = reports.build(lost_worker(w).pk)
    claim = section(report, "uncertain").claims[0]
    assert claim.stress == "This does not prove it failed."
    assert "worker w-1 was lost after the dispatch" in claim.text
    assert len(claim.lines) == 2
    assert "It will not retry it." in said(report, "more")
    assert "No further check of “charge:7”: its kind has none." in said(report, "more")
    assert "Ask the provider for its own record of “charge:7”" in said(report, "next")


def test_the_next_look_up_is_told_with_its_end_and_what_the_last_one_saw(w: World) -> None:
    kind = a_kind(w.workspace, lookup={"url": "https://bank.example/charges?key={key}"}, settle_window_s=60)
    run = awaiting_verification(w)
    effect = Effect.objects.get(run=run, settlement="UNKNOWN")
    assert effect.kind == kind
    reconcile.apply_answer(effect.pk, Answer("absent"))
    reconcile.apply_answer(effect.pk, Answer("can't tell", detail="HTTP 500"))
    report = reports.build(run.pk)
    uncertain, more = said(report, "uncertain"), said(report, "more")
    assert "Looked up 2 times; the last look-up could not tell (HTTP 500)." in uncertain
    assert re.search(
        r"^Yes\. It will look up “charge:2” again at \S+ UTC and until .+ UTC\. It will not", more
    )
    assert "This does not prove it failed." in uncertain


def test_where_an_agent_looks_up_nothing_says_that_we_do(w: World) -> None:
    a_kind(w.workspace, lookup={"poll": True})
    run = awaiting_verification(w)
    more = said(reports.build(run.pk), "more")
    told = (
        r"^Yes\. It will take a look-up of “charge:2” by its agent from \S+ UTC and until .+ UTC; it asks nob"
    )
    assert re.search(told, more)
    assert "It will look up" not in more
    effect = Effect.objects.get(run=run, settlement="UNKNOWN")
    desk = browser(w.bob).get(f"/unknowns/{effect.pk}").content.decode()
    assert "when its agent comes for it; nobody else asks" in desk


def test_a_look_up_that_found_nothing_is_not_yet_proof(w: World) -> None:
    a_kind(w.workspace, lookup={"url": "https://bank.example/charges?key={key}"}, settle_window_s=60)
    run = awaiting_verification(w)
    reconcile.apply_answer(Effect.objects.get(run=run, settlement="UNKNOWN").pk, Answer("absent"))
    assert "Looked up 1 time, not found; that is not yet proof" in said(reports.build(run.pk), "uncertain")


def test_what_a_look_up_saw_is_not_made_up_once_its_body_was_removed(w: World) -> None:
    run = awaiting_verification(w)
    reconcile.apply_answer(Effect.objects.get(run=run, settlement="UNKNOWN").pk, Answer("absent"))
    line = Evidence.objects.get(stream=run.pk, kind="effect.looked_up")
    bodies = EvidencePayload.objects.filter(stream=run.pk, seq=line.seq)
    bodies.update(body="", removed_at=Now(), removed_under="retention of 30 days")
    text = said(reports.build(run.pk), "uncertain")
    assert "Looked up 1 time; what the last look-up saw was removed by rule." in text


def test_look_ups_that_have_ended_are_told_as_ended(w: World) -> None:
    a_kind(w.workspace, lookup={"url": "https://bank.example/charges?key={key}"}, check_for_s=0)
    run = awaiting_verification(w)
    reconcile.apply_answer(Effect.objects.get(run=run, settlement="UNKNOWN").pk, Answer("can't tell"))
    more = said(reports.build(run.pk), "more")
    assert more.startswith("No. No further action is scheduled.")
    assert "No further check of “charge:2”: the look-ups have ended." in more


def test_a_job_that_the_provider_accepted_may_still_run_there(w: World) -> None:
    a_kind(w.workspace, op_class="external_job")
    run = w.run()
    w.report(w.opened(run))
    w.stop(run)
    report = reports.build(run.pk)
    assert "accepted by the provider" in said(report, "completed")
    assert "may still be carrying out “charge:7”: accepted by the provider, as of" in said(report, "more")


def test_model_turns_and_reads_are_no_outside_effects_but_are_not_hidden(w: World) -> None:
    run = w.run()
    gate.model(w.ask(run, step_key="think", op_class="model_turn"))
    w.stop(run)
    text = said(reports.build(run.pk), "completed")
    assert "No outside effect is known to have happened." in text
    assert "Also begun: 1 model turn. They change nothing outside; what they cost is spent." in text


def happened(run: Run, title: str, **fields: Any) -> None:
    """A confirmed effect with a title of its own."""
    effect = an_effect(a_step(run, "SUCCEEDED"), "CONFIRMED", settled_at=in_seconds(0), **fields)
    Effect.objects.filter(pk=effect.pk).update(title=title)


def test_effects_are_shown_as_they_were_declared_without_what_hides(w: World) -> None:
    run = w.run()
    happened(run, "Charge \u202e<b>card</b>\x07", amount="€86.40", target="Ostwind GmbH")
    report = reports.build(run.pk)
    assert report.manifest.rows[0].name == "Charge <b>card</b>"
    assert section(report, "completed").claims[0].lead == "“Charge <b>card</b>” (€86.40, Ostwind GmbH):"


def test_what_the_title_says_already_is_not_repeated(w: World) -> None:
    run = w.run()
    happened(run, "Charge €86.40 to Ostwind", amount="€86.40", target="Ostwind")
    assert section(reports.build(run.pk), "completed").claims[0].lead == "“Charge €86.40 to Ostwind”:"


def test_what_happened_and_had_a_plan_is_left_to_a_person(w: World) -> None:
    run = w.run()
    happened(run, "Charge", plan=plan_bytes("bank.refund"))
    happened(run, "Mail", plan=plan_bytes(none_because="sent is sent"))
    w.stop(run)
    report = reports.build(run.pk)
    assert "1 effect had a corrective action declared (“Charge”)." in said(report, "next")
    assert "none is scheduled" in said(report, "next")
    assert [row.plan for row in report.manifest.rows] == ["declared", "none"]


def test_the_worker_that_still_holds_work_is_named(w: World) -> None:
    run = SCENES["not ended"](w)
    report = reports.build(run.pk)
    assert report.word == "Stop timed out"
    assert report.sentence.startswith("w-1 is still in “charge:7” since"), "it answers"
    run.workers.update(last_heard_at=in_seconds(-31))
    report = reports.build(run.pk)
    assert report.sentence.startswith("w-1 did not confirm by")
    assert "Look at worker “w-1”: it holds “charge:7” since" in said(report, "next")
    assert "It goes on waiting" in said(report, "more")
    assert "1 permit is still open: what was begun under it may still complete." in said(report, "more")


def test_a_report_that_came_late_is_evidence_and_says_that_the_status_stayed(w: World) -> None:
    run = SCENES["abandoned"](w)
    permit = run.permits.get()
    settle.report(actor=w.agent, permit_id=permit.pk, token=permit.token, told=settle.Told("applied"))
    report = reports.build(run.pk)
    assert report.outcome == "abandoned"
    assert report.late.total == 1
    assert "reported that it happened" in report.late.rows[0].says
    assert report.late.rows[0].says.endswith("Kept as evidence; status unchanged.")


def test_a_drill_wears_its_name(w: World) -> None:
    run = w.run(drill=True)
    report = reports.build(run.pk)
    assert report.run.drill
    assert report.method[0].startswith("This run was a drill")


def test_a_run_without_a_stop_is_told_too(w: World) -> None:
    report = reports.build(SCENES["completed"](w).pk)
    assert said(report, "stopped").startswith(
        "No stop was requested. The runtime reported the end of the run at"
    )
    assert report.stop is None
    assert report.new_work.says == "No stop took effect, so there is no “after”."


def test_an_active_run_has_a_draft_that_promises_no_end(w: World) -> None:
    run = w.run()
    w.opened(run)
    report = reports.build(run.pk)
    assert said(report, "more").startswith("Yes. The run is active and may start new work.")
    assert "in flight since" in said(report, "uncertain").lower()
    assert report.stamp == "Draft, not issued"


def test_a_run_that_does_not_exist_has_no_report() -> None:
    with pytest.raises(NotFound):
        reports.build("run_absent")
    with pytest.raises(NotFound):
        reports.read("run_absent")


# --- How much is read ------------------------------------------------------------------------------------


def grown(w: World, number: int) -> Run:
    """A stopped run with so many effects in every settlement, refusals, entries in flight and presses."""
    run = w.run(f"grown-{number}")
    step = a_step(run, "SUCCEEDED")
    states = ("CONFIRMED", "UNKNOWN", "NOT_APPLIED", "PARTIAL")
    given: dict[str, Any] = {"body_digest": "", "plan_digest": "", "parameters_digest": "", "kind_name": "k"}
    given |= {"run": run, "step": step, "op_class": "external_write", "settled_at": in_seconds(0)}
    effects = [Effect(**given, key=f"e:{n}", title=f"E {n}", settlement=states[n % 4]) for n in range(number)]
    Effect.objects.bulk_create(effects, batch_size=200)
    for n in range(10 if number > 10 else 2):
        w.opened(run, f"open:{n}")
    w.stop(run)
    with transaction.atomic():
        kinds = [Line(f"effect.{e.settlement.lower()}", "system", effect_key=e.key) for e in effects]
        record(run, *kinds)
    made = {"run": run, "workspace": run.workspace, "boundary": "claim", "reason": "stopped"}
    made |= {"carried_version": 1, "current_version": 2, "evidence_seq": 1}
    Refusal._default_manager.bulk_create(
        [Refusal(**made, step_key=f"s:{n}") for n in range(number)], batch_size=200
    )
    return fresh(run)


def test_a_report_reads_as_often_for_ten_effects_as_for_a_thousand(w: World) -> None:
    counted = []
    for number in (10, 1000):
        run = grown(w, number)
        for most in (None, 50):
            with CaptureQueriesContext(connection) as queries:
                reports.build(run.pk, most)
            counted.append(len(queries))
    assert set(counted) == {8 + 14}, "its rows, and its measures"


def test_a_bounded_report_says_what_it_leaves_out_and_keeps_the_doubtful_first(w: World) -> None:
    report = reports.build(grown(w, 1000).pk, 50)
    assert len(report.manifest.rows) == 50
    assert report.manifest.total == 1010
    assert report.manifest.says.startswith("50 of 1010 effects, those in doubt first.")
    assert {row.settlement for row in report.manifest.rows} == {"UNKNOWN"}
    assert (report.log.total, len(report.log.rows)) == (1000, 50)
    assert "50 of 1000 refusals" in report.log.says
    assert section(report, "uncertain").left_out == 260 - 50
    assert report.known == 750


def test_a_complete_report_has_a_bounded_number_of_sentences_and_every_effect(w: World) -> None:
    report = reports.build(grown(w, 1000).pk)
    assert len(report.manifest.rows) == 1010
    assert len(section(report, "uncertain").claims) == 200 + 10
    assert section(report, "uncertain").left_out == 50
    assert "The same for 230 more, which the manifest lists." in said(report, "next")
