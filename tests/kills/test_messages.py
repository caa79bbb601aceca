"""Messages lost, doubled, late; a Valkey flushed, killed, frozen: no durable outcome changes."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis

from tests import servers
from tests.kills import rows, table
from tests.kills.checker import violations
from tests.kills.site import Site, until
from tests.processes import Process

pytestmark = [pytest.mark.kill, pytest.mark.invariant("I24")]

AS_TOLD = ("--instead", "celery.app.base.Celery.send_task=tests.kills.messages.as_told")
SOON = ("--set", "effects.queue.AGAIN_S=1.0")  # a message counts as lost after this
BOUNDED_S = 10.0
on_valkey = pytest.mark.only("postgresql")


@pytest.fixture(scope="module")
def busy(production: Site) -> Site:
    """A server, on PostgreSQL with two workers and a beat; messages come as they are told to."""
    site = production
    site.messages("")
    started = [site.web(*AS_TOLD, *SOON, ready=False)]
    if site.cluster:
        site.beat()
        started += [site.worker(*AS_TOLD, *SOON, ready=False) for _ in range(2)]
    for process in started:
        process.wait_until_ready()
    site.put_kinds()
    return site


@pytest.fixture(autouse=True)
def ordinary_again(busy: Site) -> Iterator[None]:
    yield
    busy.messages("")


def workers(site: Site) -> list[Process]:
    return [process for process in site.processes.started if process.name == "worker"]


def looked_at(site: Site, effect: str) -> int:
    """How often an executor was told of an effect, by its own log."""
    return sum(process.said().count(f"{effect}: ") for process in site.processes.started)


def wait_until_paid(site: Site, *orders: str) -> None:
    until(lambda: all(rows.stands(site.database, order).effect == "CONFIRMED" for order in orders))


def was_paid_once(site: Site, *orders: str) -> None:
    """Sent once before any key deduplicated it; a stop ends the run; one version of its report."""
    wait_until_paid(site, *orders)
    for order in orders:
        assert site.press(order).status == 201
    until(lambda: all(rows.is_at_rest(site.database, order) for order in orders))
    sends = rows.requests(site.bank.ledger)
    assert {order: sends[order] for order in orders} == dict.fromkeys(orders, 1)
    assert {rows.stands(site.database, order).end for order in orders} == {table.BOOKED}
    assert {rows.reports_of(site.database, order) for order in orders} == {1}
    assert violations(site) == []


def test_messages_that_come_five_times_lead_to_one_request(busy: Site) -> None:
    busy.messages("five times")
    orders = [f"five-times-{n}" for n in range(4)]
    effects = [busy.declare(order, "plain")["id"] for order in orders]
    was_paid_once(busy, *orders)
    until(lambda: all(looked_at(busy, effect) >= 5 for effect in effects))
    assert {rows.requests(busy.bank.ledger)[order] for order in orders} == {1}


def test_messages_that_are_lost_cost_seconds(busy: Site) -> None:
    busy.messages("lost")
    orders = ["lost-1", "lost-2"]
    effects = [busy.declare(order, "plain")["id"] for order in orders]
    until(lambda: all(rows.sent_for_again(busy.database, order) for order in orders))
    assert [looked_at(busy, effect) for effect in effects] == [0, 0]
    busy.messages("")
    was_paid_once(busy, *orders)


def test_a_message_that_comes_after_the_stop_is_refused(busy: Site) -> None:
    busy.messages("late")
    effect = busy.declare("late", "plain")["id"]
    assert busy.press("late").status == 201
    until(lambda: looked_at(busy, effect))
    until(lambda: rows.is_at_rest(busy.database, "late"))
    # A message carries no version: whoever takes it asks at the version of now.
    assert rows.refusals_of(busy.database, "late") == [("claim", "stopped", 2, 2)]
    assert rows.requests(busy.bank.ledger)["late"] == 0
    assert rows.stands(busy.database, "late").end == table.NEVER
    assert violations(busy) == []


# --- Valkey ---------------------------------------------------------------------------------------------


@contextmanager
def client(valkey: servers.Server) -> Iterator[redis.Redis]:
    made = redis.Redis.from_url(valkey.url, socket_timeout=1)
    try:
        yield made
    finally:
        made.close()


@on_valkey
def test_a_valkey_that_was_flushed_has_lost_nothing(busy: Site, valkey: servers.Server) -> None:
    orders = [f"flushed-{n}" for n in range(6)]
    for worker in workers(busy):
        worker.freeze()
    for order in orders:
        busy.declare(order, "plain")
    with client(valkey) as asked:
        until(lambda: asked.llen("celery"))
        asked.flushall()
    for worker in workers(busy):
        worker.thaw()
    was_paid_once(busy, *orders)


@on_valkey
def test_a_valkey_that_was_killed_has_lost_nothing(busy: Site, valkey: servers.Server) -> None:
    assert valkey.process is not None
    assert valkey.folder is not None
    orders = [f"killed-{n}" for n in range(3)]
    valkey.process.kill()
    assert valkey.process.wait(10) == -signal.SIGKILL
    for order in orders:
        busy.declare(order, "plain")
    words = [str(word) for word in valkey.process.args]  # type: ignore[union-attr]
    valkey.process = servers.Owner(None).popen([*words], valkey.folder / "log")
    was_paid_once(busy, *orders)


@on_valkey
@pytest.mark.long
def test_an_executor_that_was_frozen_after_its_look_sends_nothing_once_its_time_is_over(busy: Site) -> None:
    late = ("--at", "effects.executor.look_again:after=overslept", "--do", "freeze")
    sleeper, others = busy.worker(*late, "--set", "effects.outbound.LIMIT_S=1.0"), workers(busy)[:2]
    for worker in others:
        worker.freeze()
    busy.declare("overslept", "plain")
    until(sleeper.is_frozen)
    for worker in others:
        worker.thaw()
    said = busy.press("overslept")
    assert (said.status, len(said.data["in_flight"])) == (201, 1)
    until(lambda: rows.is_at_rest(busy.database, "overslept"))
    assert rows.stands(busy.database, "overslept").end == table.UNSURE
    sleeper.process.thaw()
    until(lambda: rows.stands(busy.database, "overslept").end == table.REFUSED)
    sleeper.process.kill()
    assert rows.requests(busy.bank.ledger)["overslept"] == 0
    assert violations(busy) == []


@on_valkey
def test_while_valkey_is_frozen_a_stop_is_recorded_and_pages_load(busy: Site, valkey: servers.Server) -> None:
    run = busy.put_effect("frozen-in-flight", "bank.plain", lease_s=600.0)["effect"]["run_id"]
    assert valkey.process is not None
    valkey.process.send_signal(signal.SIGSTOP)
    try:
        with client(valkey) as asked, pytest.raises(redis.RedisError):
            asked.ping()
        busy.declare("frozen-queued", "plain")
        said = busy.press("frozen-in-flight", timeout=BOUNDED_S)
        assert (said.status, len(said.data["in_flight"])) == (201, 1)
        stands = rows.stands(busy.database, "frozen-in-flight")
        assert (stands.run, stands.version, stands.listed) == ("CANCELLING", 2, 1)
        assert [busy.page(path, BOUNDED_S) for path in ("/runs/", f"/runs/{run}/")] == [200, 200]
    finally:
        valkey.process.send_signal(signal.SIGCONT)
    was_paid_once(busy, "frozen-queued")
