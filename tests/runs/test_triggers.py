"""What a rule forbids the schema forbids too: raw SQL is refused by both databases."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from effects.models import Report
from runs.evidence import seal
from runs.models import EvidencePayload, Policy, Run, Session, StopRequest, Workspace
from runs.policies import Match
from tests.worlds import World, a_run, a_workspace, an_effect, number

pytestmark = pytest.mark.django_db

SHUT = "no run is admitted past a shut gate"
ACTIVE = "only a resume with a new version makes a run ACTIVE"
FINAL = "a final status never changes"
ONCE = "the moments of a stop request are set once"


def execute(sql: str, *values: Any) -> int:
    """Raw SQL in a savepoint of its own; the number of rows."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql, values)
        return int(cursor.rowcount)


def refused(sentence: str, sql: str, *values: Any) -> None:
    """One of the sentences, separated by `|`, which is the first depends on the database."""
    with pytest.raises(IntegrityError, match="|".join(map(re.escape, sentence.split("|")))):
        execute(sql, *values)


def set_run(run: Run, status: str, version: int) -> tuple[str, Any, Any, Any]:
    return "UPDATE runs_run SET status = %s, cancel_version = %s WHERE id = %s", status, version, run.pk


# --- Runs -------------------------------------------------------------------------------------------------


@pytest.mark.invariant("I5")
@pytest.mark.parametrize("status", ["ACTIVE", "CANCELLING", "CANCELLED"])
def test_a_version_never_falls(status: str) -> None:
    run = a_run(status, cancel_version=4)
    refused("cancel_version never falls", *set_run(run, status, 3))
    assert execute(*set_run(run, status, 5)) == 1


@pytest.mark.invariant("I5")
def test_a_stale_object_that_writes_all_its_columns_does_not_undo_a_stop() -> None:
    """The whole row as a worker read it before the stop: ACTIVE at version 1."""
    world = World()
    stale = world.run()
    world.stop(stale)
    refused(f"cancel_version never falls|{ACTIVE}", *set_run(stale, stale.status, stale.cancel_version))
    now = Run.objects.get(pk=stale.pk)
    assert (now.status, now.cancel_version) == ("CANCELLING", 2)


@pytest.mark.invariant("I5")
@pytest.mark.parametrize("status", ["PAUSING", "PAUSED", "CANCELLING", "CANCELLING_TIMEOUT", "UNKNOWN"])
def test_a_run_becomes_active_only_from_a_pause_and_at_a_new_version(status: str) -> None:
    run = a_run(status, cancel_version=2)
    refused(ACTIVE, *set_run(run, "ACTIVE", 2))
    if status == "PAUSED":
        assert execute(*set_run(run, "ACTIVE", 3)) == 1
    else:
        refused(ACTIVE, *set_run(run, "ACTIVE", 3))


@pytest.mark.parametrize("status", ["CANCELLED", "COMPLETED", "FAILED", "ABANDONED"])
@pytest.mark.parametrize("target", ["ACTIVE", "UNKNOWN", "CANCELLED", "COMPLETED", "FAILED", "ABANDONED"])
def test_a_final_status_is_final(status: str, target: str) -> None:
    run = a_run(status)
    if status == target:
        assert execute(*set_run(run, target, 9)) == 1
    else:
        refused(f"{FINAL}|{ACTIVE}", *set_run(run, target, 9))


def test_a_run_is_never_deleted() -> None:
    refused("a run is never deleted", "DELETE FROM runs_run WHERE id = %s", a_run().pk)


# --- Admission past a shut gate ---------------------------------------------------------------------------


def insert_like(run: Run, **changed: Any) -> int:
    """A raw INSERT of a copy of a run, as a fixture, an import or a hand would do it."""
    given = {"id": f"run_{number()}", "key": f"copy-{number()}", **changed}
    names = [field.column for field in Run._meta.concrete_fields if field.column]
    taken = ", ".join("%s" if name in given else f'"{name}"' for name in names)
    columns = ", ".join(f'"{name}"' for name in names)
    values = [given[name] for name in names if name in given]
    return execute(
        f"INSERT INTO runs_run ({columns}) SELECT {taken} FROM runs_run WHERE id = %s", *values, run.pk
    )


def shut(scope: Workspace | Session, gate: str = "SHUT") -> None:
    type(scope)._default_manager.filter(pk=scope.pk).update(gate=gate, epoch=scope.epoch + 1)


@pytest.mark.invariant("I19")
@pytest.mark.parametrize(
    ("match", "labels", "gate", "refuses"),
    [
        ({"labels": {"team": "a"}}, {"team": "a", "more": "b"}, "SHUT", True),
        ({"labels": {"team": "a", 'a "b"': "ü"}}, {"team": "a", 'a "b"': "ü"}, "SHUT", True),
        ({"labels": {"team": "a", "env": "b"}}, {"team": "a"}, "SHUT", False),
        ({"labels": {"team": "a"}}, {}, "SHUT", False),
        ({"labels": {"team": "a"}}, {"team": "a"}, "OPEN", False),
        ({"labels": {"team": "a"}, "kinds": ["bank.charge"]}, {"team": "a"}, "SHUT", False),
    ],
)
def test_no_run_is_inserted_under_a_shut_policy_of_its_labels(
    match: dict[str, Any], labels: dict[str, str], gate: str, refuses: bool
) -> None:
    rule, run, theirs = Match.model_validate(match), a_run(labels=labels), a_run(labels=labels)
    made = {"name": "p", "match": rule.kept, "reach": rule.reach, "gate": gate}
    Policy.objects.create(workspace=run.workspace, **made)
    assert insert_like(theirs) == 1, "the policies of another workspace are its own"
    if not refuses:
        assert insert_like(run) == 1
        return
    with pytest.raises(IntegrityError, match="no run is admitted under a policy whose gate is shut"):
        insert_like(run)


@pytest.mark.invariant("I19")
@pytest.mark.parametrize("status", ["ACTIVE", "CANCELLING", "PAUSED"])
def test_no_run_is_inserted_past_a_shut_workspace(status: str) -> None:
    run = a_run()
    assert insert_like(run, status=status) == 1
    shut(run.workspace)
    for epoch in (1, 2):
        with pytest.raises(IntegrityError, match=SHUT):
            insert_like(run, status=status, admitted_epoch=epoch)
    assert run.workspace.runs.count() == 2


@pytest.mark.invariant("I19")
def test_no_run_is_inserted_at_a_stale_epoch_of_a_workspace_that_opened_again() -> None:
    run = a_run()
    shut(run.workspace, gate="OPEN")
    with pytest.raises(IntegrityError, match=SHUT):
        insert_like(run, admitted_epoch=1)
    assert insert_like(run, admitted_epoch=2) == 1


@pytest.mark.invariant("I19")
def test_no_run_is_inserted_past_a_shut_session_or_at_its_stale_epoch() -> None:
    workspace = a_workspace()
    session = Session.objects.create(workspace=workspace, key="nightly")
    run = a_run(workspace=workspace, session=session, session_epoch=1)
    assert insert_like(run) == 1
    shut(session)
    with pytest.raises(IntegrityError, match=SHUT):
        insert_like(run)
    Session.objects.filter(pk=session.pk).update(gate="OPEN")
    with pytest.raises(IntegrityError, match=SHUT):
        insert_like(run, session_epoch=1)
    assert insert_like(run, session_epoch=2) == 1
    assert insert_like(run, session_id=None) == 1


# --- What is append-only ----------------------------------------------------------------------------------


def stopped_run() -> Run:
    """A run with evidence, its payloads, a seal, a stop with one permit in flight, and a report."""
    world = World()
    run = world.run()
    world.opened(run)
    world.stop(run)
    seal(run)
    Report.objects.create(
        run=run, version=1, outcome="not ended", final=False, upto_seq=1, body="{}", digest=""
    )
    return run


KEPT = {
    "runs_evidence": "kind",
    "runs_seal": "head",
    "runs_inflight": "state_then",
    "effects_report": "body",
}


@pytest.mark.invariant("I26")
@pytest.mark.parametrize("table", KEPT)
def test_a_row_that_is_kept_is_neither_changed_nor_deleted(table: str) -> None:
    run = stopped_run()
    column = KEPT[table]
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*) FROM {table}")
        assert cursor.fetchone()[0] >= 1
    refused(f"{table} is append-only", f"UPDATE {table} SET {column} = {column}")
    refused(f"{table} is append-only", f"DELETE FROM {table}")
    assert run.stops.count() == 1


@pytest.mark.invariant("I2")
def test_a_stop_keeps_its_list_of_what_was_in_flight() -> None:
    run = stopped_run()
    refused("runs_inflight is append-only", "UPDATE runs_inflight SET state_then = 'LOST'")
    refused("runs_inflight is append-only", "DELETE FROM runs_inflight")
    assert [row.state_then for row in run.stops.get().in_flight.all()] == ["OPEN"]


def test_a_payload_is_only_emptied_and_only_with_the_rule_that_says_so() -> None:
    run = stopped_run()
    payload = EvidencePayload.objects.filter(stream=run.pk).first()
    assert payload is not None
    where = "WHERE stream = %s AND seq = %s"
    at = (run.pk, payload.seq)
    sentence = "a payload is only emptied"
    clock = "CURRENT_TIMESTAMP"
    refused(sentence, f"UPDATE runs_evidencepayload SET body = 'other' {where}", *at)
    refused(sentence, f"UPDATE runs_evidencepayload SET body = '' {where}", *at)
    refused(sentence, f"UPDATE runs_evidencepayload SET body = '', removed_at = {clock} {where}", *at)
    emptied = f"SET body = '', removed_at = {clock}, removed_under = 'retention, 90 days'"
    refused(sentence, f"UPDATE runs_evidencepayload {emptied}, seq = seq + 1000 {where}", *at)
    assert execute(f"UPDATE runs_evidencepayload {emptied} {where}", *at) == 1
    refused("a payload is emptied, never deleted", f"DELETE FROM runs_evidencepayload {where}", *at)


# --- Stop requests and intents ----------------------------------------------------------------------------


MOMENTS = ["gate_at", "fenced_at", "quiet_at", "timed_out_at", "closed_at", "released_at"]


@pytest.mark.invariant("I3")
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_moment_of_a_stop_is_set_once(moment: str) -> None:
    run = stopped_run()
    stop = run.stops.get()
    if getattr(stop, moment) is None:
        assert execute(f"UPDATE runs_stoprequest SET {moment} = recorded_at WHERE id = %s", stop.pk) == 1
    refused(ONCE, f"UPDATE runs_stoprequest SET {moment} = '2001-01-01 00:00:00' WHERE id = %s", stop.pk)
    refused(ONCE, f"UPDATE runs_stoprequest SET {moment} = NULL WHERE id = %s", stop.pk)
    assert execute("UPDATE runs_stoprequest SET note = 'as before' WHERE id = %s", stop.pk) == 1


@pytest.mark.parametrize(
    "change", ["mode = 'pause'", "recorded_at = '2001-01-01 00:00:00'", "actor = 'user:0'", "run_id = NULL"]
)
def test_what_a_stop_recorded_stays(change: str) -> None:
    stop = stopped_run().stops.get()
    refused(ONCE, f"UPDATE runs_stoprequest SET {change} WHERE id = %s", stop.pk)


def test_a_stop_is_superseded_once_and_never_deleted() -> None:
    world = World()
    first, second, third = (world.stop(world.run(key)).stop for key in "abc")
    supersede = "UPDATE runs_stoprequest SET superseded_by_id = %s WHERE id = %s"
    assert execute(supersede, second.pk, first.pk) == 1
    refused(ONCE, supersede, third.pk, first.pk)
    refused("a stop request is never deleted", "DELETE FROM runs_stoprequest WHERE id = %s", first.pk)
    assert StopRequest.objects.filter(pk=first.pk).exists()


@pytest.mark.parametrize(
    "change", ["key = 'other'", "body_digest = 'x'", "plan_digest = 'x'", "body = plan", "plan = body"]
)
def test_an_intent_is_never_changed(change: str) -> None:
    effect = an_effect(body=b"pay 100", plan=b"none")
    sentence = "an intent is never changed after it was declared"
    refused(sentence, f"UPDATE effects_effect SET {change} WHERE id = %s", effect.pk)
    assert execute("UPDATE effects_effect SET checks = 1 WHERE id = %s", effect.pk) == 1
    refused("an effect is never deleted", "DELETE FROM effects_effect WHERE id = %s", effect.pk)


# --- The tests of the tests -------------------------------------------------------------------------------


def triggers() -> set[str]:
    if connection.vendor == "sqlite":
        sql = "SELECT name FROM sqlite_master WHERE type = 'trigger'"
    else:
        sql = "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal"
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return {row[0] for row in cursor.fetchall()}


def test_these_triggers_are_in_force() -> None:
    appended = ["runs_evidence", "runs_seal", "runs_inflight", "effects_report", "effects_attachment"]
    appended += ["effects_signoff", "dashboard_statement", "dashboard_sealkey"]
    assert triggers() == {
        *("run_version_never_falls", "run_final_is_final", "run_starts_by_decision"),
        *("run_behind_a_shut_gate", "run_stays", "run_parent_stays", "run_is_not_its_own_parent"),
        "run_under_a_shut_policy",
        *(f"{table}_{rule}" for table in appended for rule in ("kept", "stays")),
        *("payload_only_emptied", "payload_stays", "stop_moments_stay", "stop_stays", "stop_arrival_stays"),
        *("effect_stays", "effect_intent_stays", "delivery_stays", "delivery_message_stays"),
        *("review_moments_stay", "review_stays", "approval_ends_once", "approval_stays"),
        *("compensation_stays", "compensation_call_stays", "resolution_stays", "resolution_verdict_stays"),
    }


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("make", [stopped_run, a_run])
def test_the_tables_are_empty_between_tests_and_the_triggers_back(make: Callable[[], Run]) -> None:
    assert not Run.objects.exists()
    make()
    test_these_triggers_are_in_force()
