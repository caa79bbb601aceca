"""The list of runs: what it asks is answered by indexes, so that it is as fast with many runs as with few."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dashboard.pages.run_filter import Filter
from dashboard.pages.runs import RunList
from runs import receipts
from runs.models import Run, Workspace
from runs.store import database_time
from tests.worlds import a_workspace, in_seconds, number

WHOLE = ("Seq Scan on runs_run", "SCAN runs_run", "TEMP B-TREE FOR ORDER BY")


@pytest.fixture
def workspace() -> Workspace:
    """With some runs, as the database's own upkeep knows it."""
    made = a_workspace()
    told = {"name": "n", "parameters_digest": "", "silent_at": in_seconds(900)}
    copies = [Run(workspace=made, key=f"{number()}", **told) for _ in range(300)]
    Run.objects.bulk_create(copies)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
        if connection.vendor == "postgresql":
            cursor.execute("SET LOCAL enable_seqscan = off")
    return made


@pytest.mark.django_db
def test_runs_of_which_nothing_is_heard_are_found_by_their_own_index(workspace: Workspace) -> None:
    rows = Run.objects.filter(receipts.is_silent(), workspace=workspace, drill=False)
    plan = rows.order_by("silent_at", "pk")[:6].explain()
    assert "run_silent" in plan, plan
    bound = Run.objects.filter(status__in=receipts.IN_MOTION, workspace=workspace, silent_at=None)
    assert connection.vendor != "sqlite" or "run_silent" not in bound.explain()


@pytest.mark.django_db
def test_a_page_of_the_list_reads_its_own_runs_and_sorts_none(workspace: Workspace) -> None:
    with CaptureQueriesContext(connection) as asked:
        page = RunList(Filter(workspace), database_time())
    assert len(page.rows) == 25
    assert page.older
    of_runs = [sql["sql"] for sql in asked.captured_queries if 'FROM "runs_run"' in sql["sql"]]
    assert len(of_runs) == 3
    assert [sql for sql in of_runs if "runs_workspace" in sql] == []
    plans = "\n".join(plan_of(sql) for sql in of_runs)
    assert [step for step in WHOLE if step in plans] == []
    assert all("LIMIT" in sql for sql in of_runs)


def plan_of(sql: str) -> str:
    head = "EXPLAIN QUERY PLAN" if connection.vendor == "sqlite" else "EXPLAIN"
    with connection.cursor() as cursor:
        cursor.execute(f"{head} {sql}")
        return "\n".join(str(row[-1]) for row in cursor.fetchall())
