"""Tasks of this room: issue reports, sign statements, send notices, carry out drills.

Messages are wake-ups; rows are the truth.
"""

from __future__ import annotations

from celery import shared_task

from dashboard import reports, statements
from dashboard.drilling import carry, catalogue, line, schedule
from dashboard.notices import mailing, outbox, sending
from dashboard.pages.shell import release
from runs import wake
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


@shared_task(name="dashboard.tasks.state_day")
@with_own_connection
@alone
def state_day() -> None:
    """Make today's statement of each workspace that has none, where there is a key to sign it with."""
    if not leaving():
        each(statements.make_day, statements.due_days())


@shared_task(name="dashboard.tasks.tell")
@with_own_connection
@alone
def tell() -> None:
    """Fan new notices out, and wake a sender for each endpoint, and for the mail, that has some due."""
    if leaving():
        return
    each(outbox.fan_out, outbox.untold())
    for endpoint_id in sending.due():
        wake.run_soon("dashboard.tasks.send_notices", endpoint_id)
    if mailing.is_due():
        wake.run_soon("dashboard.tasks.send_mail")


@shared_task(name="dashboard.tasks.send_notices")
@with_own_connection
def send_notices(endpoint_id: str) -> None:
    """Send an endpoint what is due, unless somebody does already."""
    if not leaving():
        sending.send_due(endpoint_id)


@shared_task(name="dashboard.tasks.send_mail")
@with_own_connection
@alone
def send_mail() -> None:
    """Send the e-mail that is due."""
    if not leaving():
        mailing.send_due()


@shared_task(name="dashboard.tasks.forget_notices")
@with_own_connection
@alone
def forget_notices() -> None:
    """Delete notices, with the log of their tries, that are older than their time."""
    while not leaving() and outbox.forget():
        pass


@shared_task(name="dashboard.tasks.drills")
@with_own_connection
@alone
def drills() -> None:
    """Ask for drills that are due, end those whose worker is gone, and wake somebody if one waits."""
    if leaving():
        return
    schedule.ask_due(catalogue.NAMES)
    line.interrupt_silent(release())
    if line.waits():
        wake.run_soon(line.TASK)


@shared_task(name=line.TASK)
@with_own_connection
@alone
def drill() -> None:
    """Carry out drills, one after the other, until none stands in line."""
    while not leaving() and (row := line.begin()):
        carry.out(row, release())
