"""The sweeper: what was lost, late or doubled is found again in the rows, and a stop holds its timers."""

from __future__ import annotations

import logging
import re
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.worker import state
from django.db import connections
from pytest_django.fixtures import Settings

from dashboard import embedded
from dashboard.celery import PERIODIC, app
from effects import drain, executor, intents, queue, tasks
from effects.models import Effect, Settlement
from runs import drain as leases
from runs import gate, wake
from runs.guard import Ask, Known
from runs.guard import Refusal as Refused
from runs.models import (
    Gate,
    Permit,
    PermitState,
    Refusal,
    Run,
    RunStatus,
    Step,
    StepStatus,
    StopRequest,
    Workspace,
)
from tests.databases import Database
from tests.processes import Processes
from tests.provider import Provider
from tests.worlds import World, a_kind, fresh, in_seconds, intention, kinds_of, lapse

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def bank(tmp_path: Path, settings: Settings) -> Iterator[Provider]:
    with Provider(tmp_path / "ledger") as bank:
        settings.ALLSTOP_OUTBOUND_ORIGINS = [bank.url]
        yield bank


@pytest.fixture
def run(bank: Provider, world: World) -> Run:
    a_kind(world.workspace, provider="http", send={"url": f"{bank.url}/charges"})
    return world.run()


@pytest.fixture
def woken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The effects that the executor was woken for; no message leaves."""
    sent: list[str] = []

    def run_soon(task: str, *args: str) -> None:
        if task == "effects.tasks.execute":
            sent.extend(args)

    monkeypatch.setattr(wake, "run_soon", run_soon)
    return sent


def queued(world: World, run: Run, key: str = "charge:7") -> Effect:
    effect = intents.declare(world.ask(run, step_key=key), intention(key))
    assert isinstance(effect, Effect)
    return effect


def waits(effect: Effect, seconds: float = queue.AGAIN_S + 1) -> None:
    """Let the effect have been queued that long."""
    Effect.objects.filter(pk=effect.pk).update(queued_at=in_seconds(-seconds))


def refused_by_bank(bank: Provider, world: World, run: Run, due_in_s: float = 0.0) -> Effect:
    """An effect that the provider refused, and whose step is scheduled again."""
    effect = queued(world, run)
    bank.fault("answer", method="POST", status=402)
    assert executor.execute(effect.pk) == "not_applied"
    ask = world.ask(run, step_id=effect.step_id)
    step = gate.retry(ask, due_in_s=due_in_s, allowed=intents.may_retry())
    assert isinstance(step, Step)
    return fresh(effect)


# --- Names ----------------------------------------------------------------------------------------------


def test_every_task_that_is_sent_by_name_exists() -> None:
    app.loader.import_default_modules()
    sent = {entry["task"] for entry in PERIODIC.values()}
    sent |= {"effects.tasks.execute", "effects.tasks.check", "dashboard.tasks.issue_report"}
    assert sent <= set(app.tasks)


@pytest.mark.parametrize("routed", [True, False])
def test_a_backlog_of_slow_calls_delays_no_sweep(monkeypatch: pytest.MonkeyPatch, routed: bool) -> None:
    """And, in one queue with the calls, the sweeps wait until their time is over."""
    swept: list[int] = []
    over = threading.Event()
    mine = Celery("mine", broker="memory://backlog/", set_as_current=False)
    mine.conf.update(
        {
            name: app.conf[name]
            for name in ("task_queues", "task_ignore_result", "worker_prefetch_multiplier")
        },
        broker_transport_options={"polling_interval": 0.02},
        task_routes=app.conf.task_routes if routed else {},
        task_acks_late=True,
        beat_schedule={"sweep": {"task": "effects.tasks.sweep", "schedule": 0.2}},
    )

    def runs_due(_: int) -> list[str]:
        swept.append(1)
        return []

    monkeypatch.setattr(executor, "execute", lambda _: over.wait(0.2))
    monkeypatch.setattr(leases, "runs_due", runs_due)
    mine.control.purge()  # what other tests of this process sent
    for number in range(100):
        mine.send_task("effects.tasks.execute", args=[str(number)])
    with embedded.running(mine, threads=2):
        over.wait(3)
        in_time = len(swept)
        over.set()
        mine.control.purge()
    assert in_time >= 3 if routed else in_time == 0


# --- Queued effects -------------------------------------------------------------------------------------


def test_a_declared_effect_wakes_the_executor_at_once(
    bank: Provider, world: World, run: Run, woken: list[str]
) -> None:
    effect = queued(world, run)
    assert effect.pk in woken
    tasks.execute(effect.pk)
    assert (fresh(effect).settlement, bank.ledger.sends()) == (Settlement.CONFIRMED, 1)


def test_an_effect_whose_message_was_lost_is_found_again(
    bank: Provider, world: World, run: Run, woken: list[str]
) -> None:
    effect = queued(world, run)
    woken.clear()
    tasks.sweep()
    assert woken == []  # its message may still be on the way
    waits(effect)
    tasks.sweep()
    tasks.sweep()
    assert woken == [effect.pk]  # handed out once until it counts as lost again
    for effect_id in woken:
        tasks.execute(effect_id)
    assert bank.ledger.sends() == 1
    waits(effect)
    assert queue.waiting() == []


def test_what_can_not_be_sent_now_is_not_handed_out(world: World, run: Run, woken: list[str]) -> None:
    claimed, stopped, fine = (
        queued(world, run, "a"),
        queued(world, world.run("other"), "b"),
        queued(world, run, "c"),
    )
    gate.claim(world.ask(run, step_id=claimed.step_id))
    world.stop(stopped.run)
    for effect in (claimed, stopped, fine):
        waits(effect)
    assert queue.waiting() == [fine.pk]


@pytest.mark.invariant("I24")
def test_doubled_late_and_unknown_messages_change_nothing(bank: Provider, world: World, run: Run) -> None:
    effect = queued(world, run)
    for _ in range(5):
        tasks.execute(effect.pk)
        tasks.sweep()
    tasks.execute("eff_nobody")
    tasks.check("eff_nobody")
    assert (fresh(effect).settlement, bank.ledger.sends()) == (Settlement.CONFIRMED, 1)


def test_a_worker_that_is_leaving_claims_nothing(
    bank: Provider, world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    effect = queued(world, run)
    monkeypatch.setattr(state, "should_stop", 0)
    tasks.execute(effect.pk)
    assert (fresh(effect).settlement, bank.ledger.lines()) == (Settlement.DECLARED, [])
    assert fresh(effect.step).status == StepStatus.PENDING
    monkeypatch.undo()
    waits(effect)
    assert queue.waiting() == [effect.pk]  # for another worker


# --- Drains ---------------------------------------------------------------------------------------------


@pytest.mark.invariant("I30")
def test_a_sweep_drains_every_run_that_is_due(world: World, run: Run) -> None:
    opened = world.opened(run)
    lapse(opened.step, opened.permit)
    stopped = world.run("stopped")
    world.stop(stopped)
    late = world.run("late")
    world.opened(late)
    stop = world.stop(late).stop
    StopRequest.objects.filter(pk=stop.pk).update(deadline_at=in_seconds(-1))
    tasks.sweep()
    assert (fresh(opened.permit).state, fresh(opened.step).status) == (PermitState.LOST, StepStatus.UNKNOWN)
    assert fresh(stopped).status == RunStatus.CANCELLED
    assert fresh(late).status == RunStatus.CANCELLING_TIMEOUT


@pytest.mark.invariant("I30")
def test_a_run_that_can_not_be_drained_holds_up_no_other(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, other = drain.drain_run, world.run("other")

    def drain_run(run_id: str) -> str:
        if run_id == run.pk:
            raise RuntimeError("out of order")
        return real(run_id)

    monkeypatch.setattr(drain, "drain_run", drain_run)
    for one in (run, other):
        world.stop(one)
    with caplog.at_level(logging.ERROR):
        tasks.sweep()
    assert (fresh(run).status, fresh(other).status) == (RunStatus.CANCELLING, RunStatus.CANCELLED)
    assert run.pk in caplog.text
    monkeypatch.undo()
    tasks.sweep()
    assert fresh(run).status == RunStatus.CANCELLED


def test_a_sweep_ends_stops_whose_run_never_came(world: World, run: Run) -> None:
    stop = world.stop_key("never-registered").stop
    tasks.sweep()
    assert fresh(stop).closed_at is None
    StopRequest.objects.filter(pk=stop.pk).update(ends_at=in_seconds(-1))
    tasks.sweep()
    assert fresh(stop).closed_at is not None


# --- Retries --------------------------------------------------------------------------------------------


@pytest.mark.invariant("I6")
def test_a_retry_that_is_due_goes_through_the_gate_under_the_same_key(
    bank: Provider, world: World, run: Run, woken: list[str]
) -> None:
    effect = refused_by_bank(bank, world, run)
    woken.clear()
    tasks.sweep()
    assert fresh(effect.step).status == StepStatus.PENDING
    for effect_id in woken:
        tasks.execute(effect_id)
    assert (fresh(effect).settlement, fresh(effect).attempt) == (Settlement.CONFIRMED, 2)
    assert [line["key"] for line in bank.ledger.lines("request")] == [effect.key] * 2
    assert (bank.ledger.applied(), Permit.objects.count()) == (1, 2)


def test_a_retry_that_is_not_due_waits(bank: Provider, world: World, run: Run) -> None:
    effect = refused_by_bank(bank, world, run, due_in_s=60)
    tasks.sweep()
    assert fresh(effect.step).status == StepStatus.RETRY_WAIT
    assert bank.ledger.sends() == 1


@pytest.mark.invariant("I6")
def test_a_retry_that_falls_due_after_the_stop_leaves_its_refusal_once(
    bank: Provider, world: World, run: Run, woken: list[str]
) -> None:
    effect = refused_by_bank(bank, world, run)
    world.stop(run)
    woken.clear()
    for _ in range(3):
        tasks.sweep()
    refusal = Refusal.objects.get(run=run)
    assert (refusal.boundary, refusal.reason, refusal.count) == ("retry", "stopped", 1)
    assert (refusal.carried_version, refusal.current_version) == (1, 2)
    assert fresh(effect.step).status == StepStatus.WITHHELD
    assert kinds_of(run).count("retry.refused") == 1
    assert (woken, bank.ledger.sends()) == ([], 1)


@pytest.mark.invariant("I6")
def test_a_stop_between_the_timer_and_the_gate_wins(
    bank: Provider, world: World, run: Run, woken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    effect, real = refused_by_bank(bank, world, run), gate.fall_due

    def fall_due(ask: Ask) -> Any:
        world.stop(run)
        return real(ask)

    monkeypatch.setattr(gate, "fall_due", fall_due)
    woken.clear()
    tasks.sweep()
    assert Refusal.objects.get(run=run).boundary == "retry"
    assert fresh(effect.step).status == StepStatus.WITHHELD
    assert (woken, bank.ledger.sends()) == ([], 1)


def test_a_retry_under_a_shut_scope_asks_again_later(bank: Provider, world: World, run: Run) -> None:
    effect = refused_by_bank(bank, world, run)
    Workspace.objects.filter(pk=world.workspace.pk).update(gate=Gate.SHUT)
    for _ in range(3):
        tasks.sweep()
    assert Refusal.objects.get(run=run).count == 1
    assert fresh(effect.step).status == StepStatus.RETRY_WAIT
    Workspace.objects.filter(pk=world.workspace.pk).update(gate=Gate.OPEN)
    Step.objects.filter(pk=effect.step_id).update(due_at=in_seconds(-1))
    tasks.sweep()
    assert fresh(effect.step).status == StepStatus.PENDING


@pytest.mark.race
def test_five_deliveries_at_once_let_a_retry_fall_due_once(
    bank: Provider, world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    effect, meet, real = refused_by_bank(bank, world, run), threading.Barrier(5), gate.fall_due
    came_to: list[Step | Known | Refused] = []

    def together(ask: Ask) -> Any:
        meet.wait(20)
        return real(ask)

    def work() -> None:
        try:
            came_to.append(queue.fall_due(effect.step_id))
        finally:
            connections.close_all()

    monkeypatch.setattr(gate, "fall_due", together)
    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [type(one) for one in came_to].count(Step) == 1
    assert (fresh(effect.step).status, len(came_to)) == (StepStatus.PENDING, 5)
    assert kinds_of(run).count("retry.due") == 1
    assert not Refusal.objects.exists(), "whoever came second had nothing to do"


# --- A worker of its own --------------------------------------------------------------------------------


SEED = """
import sys, django
django.setup()
from dashboard.celery import app
from effects import intents
from tests.worlds import World, a_kind, intention
world = World()
a_kind(world.workspace, provider="http", send={"url": sys.argv[1] + "/charges"})
run = world.run()
for key in "ab":
    print(key, intents.declare(world.ask(run, step_key=key), intention(key)).pk)
"""


@pytest.mark.kill
def test_a_worker_that_is_told_to_stop_ends_its_call_and_claims_nothing_new(
    cluster: Processes, database: Database, tmp_path: Path
) -> None:
    with Provider(tmp_path / "bank") as bank, Celery(broker=cluster.redis_url) as messages:
        cluster.environ = {
            "ALLSTOP_OUTBOUND_ORIGINS": bank.url,
            "DJANGO_SETTINGS_MODULE": "dashboard.settings",
        }
        seeding = cluster.start("seed", [sys.executable, "-c", SEED, bank.url])
        assert seeding.popen.wait(60) == 0, seeding.said()
        ids = dict(re.findall(r"^([ab]) (eff_\w+)$", seeding.said(), re.MULTILINE))
        worker = cluster.worker()
        bank.fault("hold_after", key="a")
        messages.send_task("effects.tasks.execute", args=[ids["a"]])
        bank.ledger.wait_for("applied", "a")
        worker.popen.send_signal(signal.SIGTERM)
        worker.wait_for("Warm shutdown")
        messages.send_task("effects.tasks.execute", args=[ids["b"]])
        bank.release()
        assert worker.popen.wait(45) == 0
        assert settlements(database) == {"a": "CONFIRMED", "b": "DECLARED"}
        assert (bank.ledger.sends("a"), bank.ledger.sends("b")) == (1, 0)
        cluster.worker()
        cluster.beat()  # its sweep finds what the leaving worker took and dropped
        bank.ledger.wait_for("answered", "b")
        assert (bank.ledger.sends("a"), bank.ledger.sends("b")) == (1, 1)


def settlements(database: Database) -> dict[str, str]:
    return dict(database.rows("SELECT key, settlement FROM effects_effect"))
