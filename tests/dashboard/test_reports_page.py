"""The list of reports: the newest version of each, what narrows it, and four ways to be empty."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from dashboard import reports
from dashboard.reports.signing import sign_off
from effects.models import Report as ReportRow
from runs.models import Run, Session
from tests.dashboard.report_scenes import awaiting_verification
from tests.dashboard.scenes import browser, text_of
from tests.worlds import World, a_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def w() -> World:
    return World()


def a_report(run: Run, version: int = 1, outcome: str = "completed", final: bool = True) -> ReportRow:
    body = '{"manifest":{"counts":{}},"status":"COMPLETED","outcome":"completed"}'
    told = {"outcome": outcome, "final": final, "upto_seq": 1, "body": body, "digest": "d"}
    return ReportRow.objects.create(run=run, version=version, **told)


def listed(client: Client, query: str = "") -> list[str]:
    html = client.get(f"/reports/{query}").content.decode()
    return re.findall(r'<tr role="row" id="(rep_[0-9a-f]+)">', html)


def said(client: Client, query: str = "") -> str:
    return text_of(client.get(f"/reports/{query}").content.decode())


def test_only_the_newest_version_of_each_report_is_listed_the_last_issued_first(w: World) -> None:
    one, two = a_run("COMPLETED", w.workspace), a_run("FAILED", w.workspace)
    a_report(one)
    first = a_report(two, outcome="failed")
    second = a_report(one, 2)
    assert listed(browser(w.alice)) == [second.pk, first.pk]
    assert listed(browser(w.mallory)) == []


Make = Callable[[World], tuple[ReportRow, ReportRow]]


def by_outcome(w: World) -> tuple[ReportRow, ReportRow]:
    made = [a_run("FAILED", w.workspace), a_run("COMPLETED", w.workspace)]
    return a_report(made[0], outcome="failed"), a_report(made[1])


def by_final(w: World) -> tuple[ReportRow, ReportRow]:
    return (
        a_report(a_run("UNKNOWN", w.workspace), outcome="awaiting verification", final=False),
        a_report(a_run("COMPLETED", w.workspace)),
    )


def by_session(w: World) -> tuple[ReportRow, ReportRow]:
    session = Session.objects.create(workspace=w.workspace, key="nightly")
    held = a_run("COMPLETED", w.workspace, session=session, session_epoch=1)
    return a_report(held), a_report(a_run("COMPLETED", w.workspace))


def by_drill(w: World) -> tuple[ReportRow, ReportRow]:
    drill = a_report(a_run("COMPLETED", w.workspace, drill=True))
    return drill, drill


@pytest.mark.parametrize(
    ("make", "query"),
    [
        (by_outcome, "?outcome=failed"),
        (by_final, "?final=no"),
        (by_session, "?session=nightly"),
        (by_drill, "?drills=1"),
    ],
)
def test_what_narrows_the_list(w: World, make: Make, query: str) -> None:
    wanted, _ = make(w)
    alice = browser(w.alice)
    assert listed(alice, query) == [wanted.pk]
    assert listed(alice, f"{query}&until=2001-01-01") == []
    assert listed(alice, f"{query}&since=2001-01-01&until=2099-01-01") == [wanted.pk]
    assert listed(alice, f"{query}&since=2099-01-01") == []
    unreadable = "?since=nonsense&outcome=nothing&final=x&signed=x&before="
    assert listed(alice, unreadable) == listed(alice), "what can't be read is as if it were not there"


@pytest.mark.django_db(transaction=True)
def test_who_asked_and_who_signed(w: World) -> None:
    stopped = awaiting_verification(w)
    row = reports.issue(stopped.pk)
    other = a_report(a_run("FAILED", w.workspace))
    assert row is not None
    alice = browser(w.alice)
    assert listed(alice, f"?who={w.alice.id}") == [row.pk]
    assert listed(alice, "?signed=yes") == []
    assert set(listed(alice, "?signed=no")) == {row.pk, other.pk}
    sign_off(actor=w.bob, run_id=stopped.pk, version=1, digest=row.digest)
    assert listed(alice, "?signed=yes") == [row.pk]
    assert listed(alice, "?signed=no") == [other.pk]
    text = said(alice)
    assert "#1, by Alice" in text
    assert "Bob" in text
    assert "nobody yet" in text


def test_it_says_why_it_is_empty(w: World) -> None:
    alice = browser(w.alice)
    assert "No report was issued yet." in said(alice)
    a_report(a_run("COMPLETED", w.workspace, drill=True))
    assert "Only drills have reports so far." in said(alice)
    row = a_report(a_run("COMPLETED", w.workspace))
    assert "No reports match. Asked for: outcome “failed”." in said(alice, "?outcome=failed")
    assert w.alice.user is not None
    row.sign_offs.create(version=1, newest=1, digest="d", open_items=0, person=w.alice.user, line=1)
    assert "Every report is signed" in said(alice, "?signed=no")
    assert "No older reports." in said(alice, "?before=rep_0")


def test_pages_follow_each_other_and_ask_as_often_for_many_as_for_few(w: World) -> None:
    alice, counts = browser(w.alice), []
    for number in (3, 57):
        runs = [a_run("COMPLETED", w.workspace) for _ in range(number)]
        made = [ReportRow(run=run, version=1, outcome="completed", final=True, upto_seq=1) for run in runs]
        ReportRow.objects.bulk_create(made)
        with CaptureQueriesContext(connection) as asked:
            alice.get("/reports/")
        counts.append(len(asked))
    assert counts[0] == counts[1] <= 17
    seen, query = list[str](), ""
    for _ in range(3):
        html = alice.get(f"/reports/{query}").content.decode()
        seen += re.findall(r'<tr role="row" id="(rep_[0-9a-f]+)">', html)
        found = re.search(r'href="/reports/(\?[^"]*before=[^"]*)"', html)
        query = found[1].replace("&amp;", "&") if found else ""
    assert len(seen) == len(set(seen)) == 60
    assert query == ""


def test_the_menu_leads_there_and_a_report_stands_under_it(w: World) -> None:
    run = a_run("ACTIVE", w.workspace)
    html = browser(w.alice).get(f"/runs/{run.pk}/report").content.decode()
    assert re.search(r'<a href="/reports/\?workspace=[^"]*" aria-current="page">Reports', html)
