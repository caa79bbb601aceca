"""Issuing: a version is frozen once, under its digest, and a new one comes only with news that matters."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext

from dashboard import reports, tasks
from dashboard.celery import PERIODIC, app
from dashboard.reports import versions
from dashboard.reports.frozen import revive
from effects import reconcile, settle
from effects.models import Effect
from effects.models import Report as ReportRow
from effects.reconcile import Answer
from runs.access import NotFound
from runs.evidence import Line, canonical, digest, record, seal_stream
from runs.models import Evidence, Run, Seal, User
from tests.dashboard.report_scenes import SCENES, awaiting_verification, not_ended, partially_completed
from tests.flush import without_triggers
from tests.worlds import World, a_kind, a_run, fresh, kinds_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def w() -> World:
    return World()


@pytest.fixture(autouse=True)
def first_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins the round of the sweep anew."""
    monkeypatch.setattr(versions, "_round", versions.Round())


def issued(run: Run) -> list[ReportRow]:
    return list(ReportRow.objects.filter(run=run).order_by("version"))


def unknown_of(run: Run) -> Effect:
    effect: Effect = Effect.objects.get(run=run, settlement="UNKNOWN")
    return effect


# --- When one is issued -------------------------------------------------------------------------------

FINAL = {
    "not ended": False,
    "abandoned": False,
    "awaiting verification": False,
    "ended with an accepted unknown": True,
    "completed": True,
    "failed": True,
    "partially completed": True,
    "stopped after safe settlement": True,
    "stopped before effect": True,
}


@pytest.mark.parametrize("outcome", FINAL)
def test_a_run_at_rest_gets_a_report_with_its_outcome_frozen(w: World, outcome: str) -> None:
    run = SCENES[outcome](w)
    row = reports.issue(run.pk)
    assert row is not None
    assert (row.version, row.outcome) == (1, outcome)
    told = reports.read(run.pk)
    assert (told["outcome"], told["draft"], told["version"]) == (outcome, False, 1)
    assert told["final"] is row.final
    assert row.final is FINAL[outcome]


def test_stamps_say_what_keeps_a_report_from_being_final(w: World) -> None:
    stamps = {}
    for outcome in ("not ended", "awaiting verification", "partially completed"):
        run = SCENES[outcome](World())
        reports.issue(run.pk)
        stamps[outcome] = reports.read(run.pk)["stamp"]
    assert stamps == {
        "not ended": "Not final: 1 effect in flight and the stop timed out",
        "awaiting verification": "Not final: 1 effect unknown",
        "partially completed": "Final",
    }


@pytest.mark.parametrize("status", ["ACTIVE", "PAUSING", "PAUSED", "CANCELLING"])
def test_a_run_that_does_not_rest_gets_none(status: str) -> None:
    run = a_run(status)
    assert reports.issue(run.pk) is None
    assert reports.read(run.pk)["final"] is False
    assert reports.read(run.pk)["draft"] is True
    assert reports.read(run.pk)["issue"]["digest"] is None


def test_the_stream_is_sealed_up_to_what_the_report_tells(w: World) -> None:
    run = partially_completed(w)
    row = reports.issue(run.pk)
    assert row is not None
    told = reports.read(run.pk)
    sealed = Seal.objects.filter(stream=run.pk).latest("upto_seq")
    assert told["seal"] == {"upto_seq": sealed.upto_seq, "head": sealed.head}
    assert told["upto_seq"] == row.upto_seq == sealed.upto_seq


def test_the_issue_is_a_line_of_evidence_with_version_and_digest(w: World) -> None:
    run = partially_completed(w)
    row = reports.issue(run.pk)
    assert row is not None
    line = Evidence.objects.filter(stream=run.pk).latest("seq")
    assert line.kind == "report.issued"
    assert line.payload_digest == digest(
        canonical({"version": 1, "digest": row.digest, "outcome": row.outcome, "final": row.final})
    )


# --- When the next one is -----------------------------------------------------------------------------


def test_issuing_again_without_news_changes_nothing(w: World) -> None:
    run = awaiting_verification(w)
    reports.issue(run.pk)
    assert reports.issue(run.pk) is None
    assert len(issued(run)) == 1


def after(w: World, run: Run, what: str) -> None:
    """Something that happens to a run whose report was issued."""
    if what == "a look-up without a settlement":
        reconcile.apply_answer(unknown_of(run).pk, Answer("can't tell"))
    elif what == "a refusal":
        w.refused(run, "charge:9")
    elif what == "another press":
        w.stop(run, by=w.carol)
    elif what == "a heartbeat":
        w.heartbeat(run, seen=2)
    elif what == "a settlement by evidence":
        reconcile.apply_answer(unknown_of(run).pk, Answer("present", provider_ref="ch_2"))
    else:
        permit = unknown_of(run).permit
        assert permit is not None
        told = settle.Told("applied")
        settle.report(actor=w.agent, permit_id=permit.pk, token=permit.token, told=told)


NO_NEWS = ["a look-up without a settlement", "a refusal", "another press", "a heartbeat"]


@pytest.mark.parametrize("what", NO_NEWS)
def test_what_changes_no_answer_makes_no_version(w: World, what: str) -> None:
    run = awaiting_verification(w)
    reports.issue(run.pk)
    after(w, run, what)
    assert reports.issue(run.pk) is None
    assert len(issued(run)) == 1


@pytest.mark.parametrize("what", ["a settlement by evidence", "a late report"])
def test_what_changes_an_answer_makes_the_next_version_and_leaves_the_last_one(w: World, what: str) -> None:
    run = awaiting_verification(w)
    first = reports.issue(run.pk)
    assert first is not None
    before = reports.read(run.pk)
    after(w, run, what)
    second = reports.issue(run.pk)
    assert second is not None
    assert (second.version, second.outcome, second.final) == (2, "partially completed", True)
    assert first.outcome == "awaiting verification"
    assert {**reports.read(run.pk, 1), "issue": None} == {**before, "issue": None}
    assert reports.read(run.pk)["version"] == 2


def test_a_late_report_of_a_final_run_opens_a_version_and_moves_no_status(w: World) -> None:
    run = SCENES["abandoned"](w)
    reports.issue(run.pk)
    permit = run.permits.get()
    settle.report(actor=w.agent, permit_id=permit.pk, token=permit.token, told=settle.Told("applied"))
    second = reports.issue(run.pk)
    assert second is not None
    assert second.version == 2
    assert fresh(run).status == "ABANDONED"
    assert reports.read(run.pk)["late"]["total"] == 1


def test_a_stop_that_timed_out_is_reported_and_again_when_it_ends(w: World) -> None:
    run = not_ended(w)
    reports.issue(run.pk)
    permit = run.permits.get()
    settle.report(actor=w.agent, permit_id=permit.pk, token=permit.token, told=settle.Told("not_sent"))
    reports.issue(run.pk)
    assert [row.outcome for row in issued(run)] == ["not ended", "stopped after safe settlement"]
    assert [row.final for row in issued(run)] == [False, True]


def test_the_end_of_the_look_ups_is_news(w: World) -> None:
    a_kind(w.workspace, lookup={"url": "https://bank.example/{key}"}, check_for_s=3)
    run = awaiting_verification(w)
    reports.issue(run.pk)
    assert reports.read(run.pk)["sections"][3]["claims"][0]["lead"] == "Yes."
    for _ in range(3):
        reconcile.apply_answer(unknown_of(run).pk, Answer("can't tell"))
    assert reports.issue(run.pk) is not None
    assert reports.read(run.pk)["sections"][3]["claims"][0]["lead"] == "No."


# --- A version stays what it is -----------------------------------------------------------------------


def test_the_digest_is_that_of_the_canonical_document(w: World) -> None:
    run = awaiting_verification(w)
    row = reports.issue(run.pk)
    assert row is not None
    told = reports.read(run.pk)
    issue = told.pop("issue")
    assert digest(canonical(told)) == issue["digest"] == row.digest
    assert reports.is_genuine(row)
    row.body = row.body.replace("charge:1", "charge:8")
    assert not reports.is_genuine(row)


def test_a_page_reads_back_exactly_what_was_frozen(w: World) -> None:
    run = awaiting_verification(w)
    row = reports.issue(run.pk)
    assert row is not None
    report = reports.load(run.pk)
    assert canonical(reports.document(report)) == row.body
    assert (report.id, report.digest, report.version, report.newest) == (row.pk, row.digest, 1, 1)
    assert not report.replaced


def test_names_are_beside_the_document_so_that_they_can_be_erased(w: World) -> None:
    run = awaiting_verification(w)
    row = reports.issue(run.pk)
    assert row is not None
    assert "Alice" not in row.body
    assert w.alice.user is not None
    User.objects.filter(pk=w.alice.user.pk).update(name="", email="erased@example.org")
    assert reports.load(run.pk).names[w.alice.id] == "erased@example.org"


def test_the_database_refuses_to_change_or_lose_a_version(w: World) -> None:
    run = awaiting_verification(w)
    row = reports.issue(run.pk)
    assert row is not None
    with pytest.raises(DatabaseError), transaction.atomic():
        ReportRow.objects.filter(pk=row.pk).update(outcome="completed")
    with pytest.raises(DatabaseError), transaction.atomic():
        row.delete()


def test_a_bounded_page_of_an_issued_version_leaves_out_and_says_so(w: World) -> None:
    run = w.run()
    for number in range(5):
        w.report(w.opened(run, f"charge:{number}"))
    w.stop(run)
    reports.issue(run.pk)
    report = reports.load(run.pk, most=2)
    assert len(report.manifest.rows) == 2
    assert report.manifest.total == 5
    assert report.manifest.says.startswith("2 of 5 effects")
    assert report.sections[1].left_out == 3


def test_a_version_that_was_never_issued_is_not_found(w: World) -> None:
    run = awaiting_verification(w)
    for version in (1, 0, -1, 2**63):
        with pytest.raises(NotFound):
            reports.load(run.pk, version)
    reports.issue(run.pk)
    assert reports.load(run.pk, 1).version == 1
    for version in (2, 0, -1, 2**63):
        with pytest.raises(NotFound):
            reports.read(run.pk, version)


def test_what_came_since_a_version_is_counted(w: World) -> None:
    run = awaiting_verification(w)
    row = reports.issue(run.pk)
    assert row is not None
    assert reports.since(run.pk, row.upto_seq) == []
    after(w, run, "a look-up without a settlement")
    after(w, run, "a look-up without a settlement")
    assert reports.since(run.pk, row.upto_seq) == ["2 × Provider looked up"]


def test_a_version_written_by_a_later_allstop_can_still_be_read(w: World) -> None:
    run = awaiting_verification(w)
    document = reports.document(reports.build(run.pk)) | {"not_known_yet": 1}
    assert revive(reports.Report, document).run.id == run.pk


def test_an_issued_report_is_read_with_four_queries(w: World) -> None:
    run = awaiting_verification(w)
    reports.issue(run.pk)
    with CaptureQueriesContext(connection) as queries:
        reports.load(run.pk, most=50)
    assert len(queries) == 4


# --- Two at once, and nobody at all -------------------------------------------------------------------


@pytest.mark.race
def test_many_that_issue_at_once_make_one_version(w: World) -> None:
    run = awaiting_verification(w)
    barrier, failures = threading.Barrier(6), []

    def work() -> None:
        try:
            barrier.wait()
            reports.issue(run.pk)
        except Exception as error:
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [row.version for row in issued(run)] == [1]
    assert kinds_of(run).count("report.issued") == 1


def test_a_line_that_comes_while_a_report_is_written_is_in_the_report(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written outside the lock, inserted under it: what moved in between has it written again."""
    run = awaiting_verification(w)
    built: list[int] = []
    build = reports.build

    def slow_build(run_id: str, most: int | None = None) -> Any:
        draft = build(run_id, most)
        if not built:
            reconcile.apply_answer(unknown_of(run).pk, Answer("present"))
        built.append(draft.upto_seq)
        return draft

    monkeypatch.setattr(versions, "build", slow_build)
    reports.issue(run.pk)
    assert len(built) == 2
    assert [row.outcome for row in issued(run)] == ["partially completed"]


def test_a_run_that_keeps_moving_is_reported_under_its_lock(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = awaiting_verification(w)
    build = reports.build

    def stale(run_id: str, most: int | None = None) -> Any:
        draft = build(run_id, most)
        return draft if connection.in_atomic_block else replace(draft, upto_seq=draft.upto_seq - 1)

    monkeypatch.setattr(versions, "build", stale)
    assert reports.issue(run.pk) is not None
    assert len(issued(run)) == 1


def at_some_time_ago(run: Run) -> None:
    """As if no process had run for a day after this run came to rest."""
    with without_triggers(connection) as cursor:
        cursor.execute(
            "UPDATE runs_evidence SET at = %s WHERE stream = %s", ["2026-01-01 00:00:00+00:00", run.pk]
        )


@pytest.mark.parametrize("how_long", ["just now", "long ago"])
def test_a_lost_message_is_made_good_by_the_sweep(w: World, how_long: str) -> None:
    run = awaiting_verification(w)
    if how_long == "long ago":
        at_some_time_ago(run)
    tasks.issue_due()
    assert len(issued(run)) == 1
    tasks.issue_due()
    assert len(issued(run)) == 1


def test_news_whose_message_was_lost_long_ago_are_found_on_the_round(w: World) -> None:
    run = awaiting_verification(w)
    reports.issue(run.pk)
    after(w, run, "a settlement by evidence")
    at_some_time_ago(run)
    tasks.issue_due()
    assert [row.version for row in issued(run)] == [1, 2]


def test_the_round_reaches_every_run_a_slice_at_a_time(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "SLICE", 2)
    runs = [a_run("COMPLETED") for _ in range(5)]
    found: set[str] = set()
    for _ in range(3):
        found |= set(versions.due(10))
    assert found == {run.pk for run in runs}


def test_the_sweep_asks_the_same_few_questions_however_many_runs_there_are(w: World) -> None:
    counts = []
    for number in (3, 60):
        for _ in range(number):
            a_run("COMPLETED")
        with CaptureQueriesContext(connection) as queries:
            versions.due()
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 5


def test_one_run_that_can_not_be_reported_holds_up_no_other(
    w: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken, sound = SCENES["completed"](World()), SCENES["completed"](World())
    issue = reports.issue

    def fail(run_id: str) -> ReportRow | None:
        if run_id == broken.pk:
            raise RuntimeError("broken")
        return issue(run_id)

    monkeypatch.setattr(reports, "issue", fail)
    tasks.issue_due()
    assert len(issued(sound)) == 1
    assert issued(broken) == []
    assert broken.pk in caplog.text


@pytest.mark.parametrize("message", ["run_absent", ""])
def test_a_message_about_nothing_changes_nothing(message: str) -> None:
    tasks.issue_report(message)
    assert not ReportRow.objects.exists()


def test_a_doubled_message_makes_one_version(w: World) -> None:
    run = awaiting_verification(w)
    for _ in range(5):
        tasks.issue_report(run.pk)
    assert len(issued(run)) == 1


def test_the_sweep_is_on_the_schedule_and_the_wake_up_has_its_name() -> None:
    assert PERIODIC["report"]["task"] == tasks.issue_due.name == "dashboard.tasks.issue_due"
    assert tasks.issue_report.name == "dashboard.tasks.issue_report"
    assert tasks.issue_due.name in app.tasks


def test_an_unread_message_costs_one_question(w: World) -> None:
    """Each report of a permit wakes the task: for a run that goes on it must be next to nothing."""
    run = w.run()
    w.report(w.opened(run))
    with CaptureQueriesContext(connection) as queries:
        reports.issue(run.pk)
    assert len(queries) == 1


def test_a_seal_made_by_another_hand_in_between_does_not_disturb(w: World) -> None:
    run = awaiting_verification(w)
    seal_stream(run.pk)
    reports.issue(run.pk)
    with transaction.atomic():
        record(run, Line("effect.looked_up", "system"))
    seal_stream(run.pk)
    told = json.loads(issued(run)[0].body)
    assert Seal.objects.filter(
        stream=run.pk, upto_seq=told["seal"]["upto_seq"], head=told["seal"]["head"]
    ).exists()
