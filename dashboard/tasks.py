"""Tasks of this room: a report is issued when its run rests. Messages are wake-ups; rows are the truth."""

from __future__ import annotations

from celery import shared_task

from dashboard import reports
from runs.tasks import alone, each, leaving, with_own_connection


@shared_task(name="dashboard.tasks.issue_report")
@with_own_connection
def issue_report(run_id: str) -> None:
    """Issue the next version, if the run rests and what matters changed; asked twice, once."""
    if not leaving():
        reports.issue(run_id)


@shared_task(name="dashboard.tasks.issue_due")
@with_own_connection
@alone
def issue_due() -> None:
    """Issue the reports whose message was lost. One that fails holds up no other, and is found again."""
    each(reports.issue, reports.due())
