"""verify: an edit, a gap, a changed order, a cut end or a changed body is found, and its place is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dashboard import reports
from dashboard.verify import Break, streams, verify, verify_all
from effects.models import Report
from runs.evidence import Line, digest, record, seal_stream
from runs.models import Evidence, EvidencePayload, Run, Seal
from runs.store import Now
from tests.dashboard.report_scenes import awaiting_verification
from tests.flush import without_triggers
from tests.worlds import World, a_run

pytestmark = pytest.mark.django_db(transaction=True)


def write(run: Run, number: int, **fields: Any) -> None:
    with transaction.atomic():
        record(run, *[Line("effect.declared", "system", {"n": n}, **fields) for n in range(number)])


@pytest.fixture
def run() -> Run:
    """Twelve lines: four, sealed; six, sealed; two that are not sealed yet."""
    run = a_run()
    write(run, 4)
    seal_stream(run.pk)
    write(run, 6)
    seal_stream(run.pk)
    write(run, 2)
    return run


def tamper(sql: str, *values: Any) -> None:
    with without_triggers(connection) as cursor:
        cursor.execute(sql, values)


def found(run: Run) -> list[tuple[str, int, int]]:
    return [(one.what, one.first, one.last) for one in verify(run.pk).breaks]


def test_what_nobody_touched_is_intact_and_its_tail_is_not_sealed_yet(run: Run) -> None:
    verdict = verify(run.pk)
    assert verdict.intact
    assert (verdict.lines, verdict.sealed_upto, verdict.unsealed) == (12, 10, 2)
    assert verdict.head == Seal.objects.get(stream=run.pk, upto_seq=10).head


@pytest.mark.parametrize(
    "column",
    ["kind", "actor", "boundary", "ground", "stop_id", "step_id", "permit_id", "effect_key", "worker"],
)
def test_an_edited_line_is_found_in_the_range_of_its_seal(run: Run, column: str) -> None:
    tamper(f"UPDATE runs_evidence SET {column} = 'x' WHERE stream = %s AND seq = 6", run.pk)
    assert found(run) == [("edited", 5, 10)]


def test_an_edited_version_or_time_is_found_too(run: Run) -> None:
    tamper("UPDATE runs_evidence SET carried_version = 9 WHERE stream = %s AND seq = 2", run.pk)
    tamper("UPDATE runs_evidence SET at = '2026-01-01 00:00:00+00:00' WHERE stream = %s AND seq = 7", run.pk)
    assert found(run) == [("edited", 1, 4), ("edited", 5, 10)]


def test_a_missing_line_is_named(run: Run) -> None:
    tamper("DELETE FROM runs_evidence WHERE stream = %s AND seq = 6", run.pk)
    assert found(run) == [("missing", 6, 6)]
    tamper("DELETE FROM runs_evidence WHERE stream = %s AND seq IN (1, 7)", run.pk)
    assert found(run) == [("missing", 1, 1), ("missing", 6, 7)]


def test_a_gap_behind_the_newest_seal_is_named(run: Run) -> None:
    tamper("DELETE FROM runs_evidence WHERE stream = %s AND seq = 11", run.pk)
    assert found(run) == [("missing", 11, 11)]


def swap(run: Run, one: int, two: int, table: str = "runs_evidence") -> None:
    for old, new in ((one, -1), (two, one), (-1, two)):
        tamper(f"UPDATE {table} SET seq = %s WHERE stream = %s AND seq = %s", new, run.pk, old)


@pytest.mark.parametrize(("one", "two"), [(6, 7), (5, 10)])
def test_two_lines_that_changed_places_are_named(run: Run, one: int, two: int) -> None:
    swap(run, one, two)
    swap(run, one, two, "runs_evidencepayload")
    assert found(run) == [("reordered", one, two)]


def test_a_cut_end_under_a_seal_is_named(run: Run) -> None:
    tamper("DELETE FROM runs_evidence WHERE stream = %s AND seq > 8", run.pk)
    assert found(run) == [("missing", 9, 10)]


def test_a_cut_end_with_its_seals_is_known_to_an_issued_report_and_to_refusals() -> None:
    run = awaiting_verification(World())
    reports.issue(run.pk)
    upto = Report.objects.get(run=run).upto_seq
    tamper("DELETE FROM runs_evidence WHERE stream = %s AND seq > 3", run.pk)
    tamper("DELETE FROM runs_evidencepayload WHERE stream = %s AND seq > 3", run.pk)
    tamper("DELETE FROM runs_seal WHERE stream = %s", run.pk)
    assert {("missing", 4, upto), ("seal", upto, upto)} <= set(found(run))


def test_a_stream_that_was_emptied_is_missing_its_admission() -> None:
    run = a_run()
    assert found(run) == [("missing", 1, 1)]
    assert run.pk in streams()


def test_a_changed_body_is_named_by_its_line(run: Run) -> None:
    tamper("UPDATE runs_evidencepayload SET body = '{}' WHERE stream = %s AND seq = 6", run.pk)
    assert found(run) == [("body", 6, 6)]
    tamper("DELETE FROM runs_evidencepayload WHERE stream = %s AND seq = 12", run.pk)
    assert found(run) == [("body", 6, 6), ("body", 12, 12)]


def test_a_changed_body_with_its_digest_changed_as_well_breaks_the_chain(run: Run) -> None:
    tamper("UPDATE runs_evidencepayload SET body = '{}' WHERE stream = %s AND seq = 6", run.pk)
    tamper("UPDATE runs_evidence SET payload_digest = %s WHERE stream = %s AND seq = 6", digest("{}"), run.pk)
    assert found(run) == [("edited", 5, 10)]


def test_a_body_that_was_removed_by_rule_is_no_break(run: Run) -> None:
    EvidencePayload.objects.filter(stream=run.pk, seq=6).update(
        body="", removed_at=Now(), removed_under="retention of 30 days"
    )
    verdict = verify(run.pk)
    assert verdict.intact
    assert verdict.removed == 1


def test_a_forged_seal_is_found_and_later_ranges_are_judged_by_themselves(run: Run) -> None:
    tamper("UPDATE runs_seal SET head = 'forged' WHERE stream = %s AND upto_seq = 4", run.pk)
    assert found(run) == [("edited", 1, 4), ("edited", 5, 10)]


def test_a_break_in_one_range_does_not_blame_the_next(run: Run) -> None:
    tamper("UPDATE runs_evidence SET actor = 'x' WHERE stream = %s AND seq = 2", run.pk)
    assert found(run) == [("edited", 1, 4)]


def test_a_line_that_was_slipped_in_is_found(run: Run) -> None:
    """Its number would have to be a taken one; so the tail is moved to make room."""
    tamper("UPDATE runs_evidence SET seq = seq + 100 WHERE stream = %s AND seq >= 6", run.pk)
    tamper("UPDATE runs_evidence SET seq = seq - 99 WHERE stream = %s AND seq >= 106", run.pk)
    Evidence.objects.create(stream=run.pk, seq=6, kind="effect.confirmed", actor="system")
    assert ("edited", 5, 10) in found(run)


# --- Reports are witnesses, and witnessed -------------------------------------------------------------


@pytest.fixture
def reported() -> Run:
    run = awaiting_verification(World())
    reports.issue(run.pk)
    return run


def test_an_issued_report_and_its_stream_are_intact(reported: Run) -> None:
    assert verify(reported.pk).breaks == []


def test_a_changed_report_is_found_even_when_its_digest_was_changed_too(reported: Run) -> None:
    body = Report.objects.get(run=reported).body.replace("unknown", "confirmed")
    tamper("UPDATE effects_report SET body = %s WHERE run_id = %s", body, reported.pk)
    assert [one.what for one in verify(reported.pk).breaks] == ["report"]
    tamper("UPDATE effects_report SET digest = %s WHERE run_id = %s", digest(body), reported.pk)
    assert [one.what for one in verify(reported.pk).breaks] == ["report"]


def test_a_lost_version_is_found(reported: Run) -> None:
    tamper("UPDATE effects_report SET version = 2 WHERE run_id = %s", reported.pk)
    assert "Of its report only these versions are left: [2]." in [b.says for b in verify(reported.pk).breaks]


def test_a_report_that_names_another_seal_is_found(reported: Run) -> None:
    """All lines and seals written anew by someone who can hash: the report still knows the old head."""
    tamper("UPDATE runs_evidence SET actor = 'someone else' WHERE stream = %s AND seq = 1", reported.pk)
    tamper("DELETE FROM runs_seal WHERE stream = %s", reported.pk)
    seal_stream(reported.pk)
    assert [one.what for one in verify(reported.pk).breaks] == ["fork", "seal"]


# --- Any tampering with a sealed line -----------------------------------------------------------------


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(seq=st.integers(1, 10), how=st.sampled_from(["edit", "delete", "swap"]), other=st.integers(1, 10))
def test_whatever_is_done_to_a_sealed_line_is_found_at_its_place(
    run: Run, seq: int, how: str, other: int
) -> None:
    kept = list(Evidence.objects.filter(stream=run.pk).order_by("seq"))
    acts: dict[str, Callable[[], None]] = {
        "edit": lambda: tamper("UPDATE runs_evidence SET kind='x' WHERE stream=%s AND seq=%s", run.pk, seq),
        "delete": lambda: tamper("DELETE FROM runs_evidence WHERE stream=%s AND seq=%s", run.pk, seq),
        "swap": lambda: swap(run, seq, other),
    }
    acts[how]()
    breaks = verify(run.pk).breaks
    untouched = how == "swap" and seq == other
    assert untouched or any(one.first <= seq <= one.last for one in breaks)
    tamper("DELETE FROM runs_evidence WHERE stream = %s", run.pk)
    Evidence.objects.bulk_create(kept)


# --- The command --------------------------------------------------------------------------------------


def command(*words: str) -> tuple[str, int]:
    out = StringIO()
    try:
        call_command("verify", *words, stdout=out)
    except SystemExit as end:
        return out.getvalue(), int(end.code or 0)
    return out.getvalue(), 0


def test_the_command_sums_up_and_says_what_it_can_not_show(run: Run) -> None:
    told, code = command()
    assert code == 0
    assert "1 stream, 12 lines: intact up to their newest seals." in told
    assert "2 lines are not sealed yet; 0 bodies were removed by rule." in told
    assert "can't show what was never written" in told


def test_the_command_names_the_place_and_ends_with_one(run: Run) -> None:
    tamper("DELETE FROM runs_evidence WHERE stream = %s AND seq IN (6, 7)", run.pk)
    told, code = command(run.pk)
    assert code == 1
    assert f"{run.pk}, lines 6 to 7: missing." in told
    assert "1 broken" in told


def test_the_command_speaks_json_one_stream_a_line(run: Run) -> None:
    tamper("UPDATE runs_evidencepayload SET body = '{}' WHERE stream = %s AND seq = 6", run.pk)
    told, code = command("--json")
    rows = [json.loads(line) for line in told.splitlines()]
    assert code == 1
    assert [row["intact"] for row in rows] == [False]
    assert rows[0]["breaks"][0]["what"] == "body"


def test_the_command_knows_no_stream_that_is_not_there() -> None:
    with pytest.raises(CommandError, match="There is no evidence of run_absent"):
        command("run_absent")


def test_all_streams_are_looked_at_those_of_workspaces_too(run: Run) -> None:
    with transaction.atomic():
        record(run.workspace, Line("stop.waiting", "system"))
    assert {verdict.stream for verdict in verify_all()} == {run.pk, run.workspace_id}


def test_a_place_reads_as_one_line_or_as_many() -> None:
    assert Break("missing", 6, 6, "").place == "line 6"
    assert Break("missing", 6, 7, "").place == "lines 6 to 7"
