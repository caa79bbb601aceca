"""The measures of many runs: by indexes, in as many questions as of few; with 10,000 runs, how long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dashboard import measures
from dashboard.measure_rows import Window
from dashboard.reports import measured
from effects.models import Compensation, Effect, Report
from runs.models import Evidence, InFlight, Permit, Run, Step, StopPart, StopRequest, Workspace
from runs.store import database_time
from tests.worlds import a_workspace, number

LARGE = ("runs_evidence", "runs_stoprequest", "effects_effect", "effects_compensation", "effects_report")
REFUND: dict[str, Any] = {"kind_name": "bank.refund", "op_class": "external_write", "body_digest": ""}
REFUND |= {"run_version": 1, "proposed_by": "system"}
LINES = ("permit.opened", "stop.acknowledged", "effect.confirmed", "report.issued")


def insert(model: Any, rows: list[Any]) -> list[Any]:
    return list(model.objects.bulk_create(rows, batch_size=500))


def many(workspace: Workspace, n: int) -> StopRequest:
    """So many runs under one stop of a list: each with an effect in flight, known a second later, a
    compensation, a report and its lines. All within the last 13 days."""
    now = database_time()
    at = [now - timedelta(seconds=13 * 86_400 * place / n) for place in range(n)]
    base: dict[str, Any] = {"workspace": workspace, "mode": "cancel", "actor": "system", "via": "api"}
    bulk: StopRequest = StopRequest.objects.create(**base, number=number(), scope="bulk", run_key="")
    names = [f"{number()}" for _ in range(n)]
    closed = {"parameters_digest": "", "status": "CANCELLED", "workspace": workspace}
    runs = insert(Run, [Run(**closed, key=name, name=name) for name in names])
    steps = insert(Step, [Step(run=run, key="s", name="s", op_class="external_write") for run in runs])
    opened: dict[str, Any] = {"boundary": "dispatch", "op_class": "external_write", "state": "REPORTED"}
    opened |= {"seen_version": 1, "token": "t", "permit_until": now, "lease_until": now}
    permits = insert(Permit, [_permit(step, opened) for step in steps])
    stops = [
        StopRequest(**base, number=number(), run=run, run_key=run.key, gate_at=when, version_before=1,
                    version_after=2, arrived_at=when - timedelta(milliseconds=200), scope_stop=bulk)
        for run, when in zip(runs, at, strict=True)
    ]  # fmt: skip
    stops = insert(StopRequest, stops)
    insert(StopPart, [StopPart(stop=bulk, run=s.run, run_stop=s, result="recorded") for s in stops])
    listed = zip(stops, permits, strict=True)
    insert(InFlight, [InFlight(stop=s, permit=p, state_then="OPEN") for s, p in listed])
    told: dict[str, Any] = {"kind_name": "bank.charge", "op_class": "external_write", "body_digest": ""}
    told |= {"plan_digest": "", "parameters_digest": "", "attempt": 2, "counted": 1, "checks": 1}
    effects = [
        Effect(run=step.run, step=step, permit=permit, key="e", title="Charge", settlement="CONFIRMED",
               dispatched_at=when, unknown_since=when, declared_at=when,
               settled_at=when + timedelta(seconds=1), **told)
        for step, permit, when in zip(steps, permits, at, strict=True)
    ]  # fmt: skip
    effects = insert(Effect, effects)
    insert(Compensation, [_compensation(effect) for effect in effects])
    insert(Evidence, [line for run, when in zip(runs, at, strict=True) for line in _lines(run, when)])
    final: dict[str, Any] = {"version": 1, "outcome": "completed", "final": True, "upto_seq": len(LINES)}
    insert(Report, [Report(run=run, body="{}", digest="", **final) for run in runs])
    return bulk


def _permit(step: Step, opened: dict[str, Any]) -> Permit:
    return Permit(run_id=step.run_id, step=step, effect_key="e", **opened)


def _compensation(effect: Effect) -> Compensation:
    named: dict[str, Any] = {"run_id": effect.run_id, "effect": effect, "key": f"c-{effect.pk}"}
    sent = {"dispatched_at": effect.dispatched_at, "settled_at": effect.settled_at}
    return Compensation(**named, title="Refund", state="VERIFIED", **sent, **REFUND)


def _lines(run: Run, when: Any) -> Iterator[Evidence]:
    for seq, kind in enumerate(LINES, 1):
        named = {"effect_key": "e"} if kind.startswith("effect") else {}
        yield Evidence(stream=run.pk, seq=seq, at=when, kind=kind, actor="x", carried_version=1,
                       current_version=2, **named)  # fmt: skip


def windows(bulk: StopRequest) -> dict[str, Window]:
    now = database_time()
    some_run = StopPart.objects.filter(stop=bulk).values_list("run_id", flat=True)[0]
    return {
        "a workspace": measures.last_days(14, now, workspace_id=bulk.workspace_id),
        "the installation": measures.last_days(14, now),
        "a run": Window(now, run_id=some_run),
        "a stop": Window(now, stop_id=bulk.pk),
    }


def plan_of(sql: str) -> str:
    """How the database would answer, as if every table were large."""
    head = "EXPLAIN QUERY PLAN" if connection.vendor == "sqlite" else "EXPLAIN"
    with connection.cursor() as cursor:
        cursor.execute(f"{head} {sql}")
        return "\n".join(" ".join(map(str, row)) for row in cursor.fetchall())


@pytest.mark.django_db
@pytest.mark.parametrize("which", ["a workspace", "the installation", "a run", "a stop"])
def test_no_large_table_is_read_from_end_to_end(which: str) -> None:
    window = windows(many(a_workspace(), 3))[which]
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL enable_seqscan = off")
    with CaptureQueriesContext(connection) as asked:
        measures.read(window)
    found = [(plan, sql["sql"]) for sql in asked.captured_queries for plan in whole(plan_of(sql["sql"]))]
    assert len(asked) <= 14
    assert found == []


def whole(plan: str) -> list[str]:
    """The steps of a plan that read one of the large tables without an index."""
    rows = [row.strip() for row in plan.splitlines()]
    if connection.vendor == "postgresql":
        return [row for row in rows if any(f"Seq Scan on {name} " in row for name in LARGE)]
    scans = [row for row in rows if "SCAN" in row and "USING" not in row]
    return [row for row in scans if any(name in row for name in LARGE)]


@pytest.mark.django_db
def test_what_was_opened_is_not_compared_with_every_line_before_it() -> None:
    window = windows(many(a_workspace(), 3))["a run"]
    with CaptureQueriesContext(connection) as asked:
        measures.read(window, 2)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
        if connection.vendor == "postgresql":
            cursor.execute("SET LOCAL enable_seqscan = off")
    assert "evidence_of_gate" in plan_of(asked.captured_queries[-1]["sql"])


@pytest.mark.long
@pytest.mark.django_db
def test_the_measures_of_ten_thousand_runs(capsys: pytest.CaptureFixture[str]) -> None:
    bulk = many(a_workspace(), 10_000)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    told = []
    for name, window in windows(bulk).items():
        for which in range(1, 8):
            began = time.monotonic()
            (found,) = measures.read(window, which)
            took = (time.monotonic() - began) * 1000
            told.append(f"{name} {which}: {took:.0f} ms, n = {found.n}")
            assert found.n == (1 if name == "a run" else 10_000)
    began = time.monotonic()
    assert len(measured.of_stop(bulk.pk, database_time())) == 7
    told.append(f"report of a stop: {(time.monotonic() - began) * 1000:.0f} ms")
    with capsys.disabled():
        print(*told, sep=f"\n{connection.vendor} ")  # noqa: T201
