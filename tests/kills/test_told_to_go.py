"""SIGTERM: nothing new is claimed, what is in flight ends or becomes unknown, the process goes in time."""

from __future__ import annotations

import signal
import time

import pytest

from tests.kills import rows
from tests.kills.checker import violations
from tests.kills.site import Site, until

pytestmark = pytest.mark.kill

SOON = ("--set", "effects.queue.AGAIN_S=0.5")  # a message counts as lost after this
AS_TOLD = ("--instead", "celery.app.base.Celery.send_task=tests.kills.messages.as_told")
ASKING = "runs.admission._admit:before=asking"
SLOW = ("--at", ASKING, "--do", "sleep", "--for", "4")


def hide(site: Site, order: str) -> None:
    """An effect for our executor that nobody finds yet: no message tells of it, and it is in no queue."""
    site.messages("lost")
    site.declare(order, "plain")
    site.database.rows(f"UPDATE effects_effect SET queued_at = NULL WHERE key = '{order}'")
    site.messages("")


def show(site: Site, order: str) -> None:
    """Now it is due for whoever sweeps."""
    site.database.rows(f"UPDATE effects_effect SET queued_at = declared_at WHERE key = '{order}'")


def test_a_server_that_is_told_to_go_sends_nothing_new_and_lets_what_it_sent_end(site: Site) -> None:
    web = site.web(*SOON, *AS_TOLD, *SLOW)
    site.put_kinds()
    hide(site, "behind")
    site.bank.fault("hold_after", key="in-flight")
    site.declare("in-flight", "plain")
    site.bank.ledger.wait_for("applied", "in-flight")
    asking = site.agent("asking", patience=20)  # its request stands in the server, which waits for it
    web.wait_for(ASKING)
    web.process.popen.send_signal(signal.SIGTERM)
    told = time.monotonic()
    until(lambda: site.ask("GET", "runs").status == 0)
    show(site, "behind")
    time.sleep(1.5)  # three times what a sweep needs to find it
    assert web.process.alive
    site.bank.release()
    assert web.process.popen.wait(30) == 0, web.process.said()
    assert time.monotonic() - told < 20
    assert "Traceback" not in web.process.said()
    assert rows.stands(site.database, "in-flight").effect == "CONFIRMED"
    assert rows.requests(site.bank.ledger)["behind"] == 0
    next_one = site.web(*SOON)
    asking.process.popen.wait(30)
    until(lambda: rows.stands(site.database, "behind").effect == "CONFIRMED")
    assert rows.requests(site.bank.ledger)["behind"] == 1
    assert violations(site) == []
    next_one.process.kill()


@pytest.mark.only("postgresql")
def test_worker_and_beat_that_are_told_to_go_are_gone_at_once_when_they_have_nothing_to_do(
    production: Site,
) -> None:
    started = [production.worker(), production.beat()]
    started[1].wait_until_ready()
    for armed in started:
        armed.process.popen.send_signal(signal.SIGTERM)
    assert [armed.process.popen.wait(15) for armed in started] == [0, 0]
