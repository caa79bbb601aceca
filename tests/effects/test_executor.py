"""Our own runtime against a real provider: one request, behind the gate, and nothing guessed."""

from __future__ import annotations

import ast
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from pytest_django.fixtures import Settings

from effects import executor, intents, outbound
from effects.models import Effect, Settlement
from effects.providers import http
from runs import gate
from runs.models import Evidence, Permit, PermitState, Refusal, Run, RunStatus, StepStatus
from tests.effects.sending import BODY, at_the_bank, at_work, before, permit_of, queued, stands
from tests.processes import ROOT
from tests.provider import Provider
from tests.worlds import World, a_kind, fresh, in_flight, intention, kinds_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def bank(tmp_path: Path, settings: Settings) -> Iterator[Provider]:
    with Provider(tmp_path / "ledger") as bank:
        settings.ALLSTOP_OUTBOUND_ORIGINS = [bank.url]
        yield bank


@pytest.fixture
def world(bank: Provider) -> World:
    return at_the_bank(bank)


@pytest.fixture
def run(world: World) -> Run:
    return world.run()


# --- One request ----------------------------------------------------------------------------------------


def test_a_queued_effect_is_sent_once_with_its_bytes_and_its_key(
    bank: Provider, world: World, run: Run
) -> None:
    effect = queued(world, run)
    assert executor.execute(effect.pk) == "applied"
    sent = bank.ledger.lines("request")
    assert [(line["method"], line["key"], line["text"]) for line in sent] == [
        ("POST", "charge:7", BODY.decode())
    ]
    assert stands(effect) == (Settlement.CONFIRMED, StepStatus.SUCCEEDED)
    effect, permit = fresh(effect), permit_of(effect)
    assert (effect.ground, effect.result) == ("reported", bank.state.objects["charge:7"])
    assert effect.provider_ref == bank.state.objects["charge:7"]["id"]
    assert (permit.state, permit.outcome, permit.worker) == ("REPORTED", "applied", executor.worker_name())
    assert permit.token == effect.step.claim_token


def test_each_move_leaves_its_line_in_the_executors_name(world: World, run: Run) -> None:
    executor.execute(queued(world, run).pk)
    lines = Evidence.objects.filter(stream=run.pk).order_by("seq")
    assert [line.kind for line in lines][1:] == [
        "effect.declared",
        "step.claimed",
        "effect.dispatched",
        "permit.opened",
        "permit.reported",
        "effect.confirmed",
        "step.succeeded",
    ]
    assert {line.actor for line in lines[2:]} == {"system:executor"}
    assert {line.worker for line in lines if line.permit_id and line.kind.startswith("permit")} == {
        executor.worker_name()
    }


@pytest.mark.invariant("I6")
def test_five_deliveries_of_one_message_come_to_one_request(bank: Provider, world: World, run: Run) -> None:
    effect = queued(world, run)
    came_to = [executor.execute(effect.pk) for _ in range(5)]
    assert came_to == ["applied", *["nothing to do"] * 4]
    assert bank.ledger.sends() == 1
    assert not Refusal.objects.filter(run=run).exists()


@pytest.mark.race
@pytest.mark.invariant("I6")
def test_five_workers_with_one_message_come_to_one_request(
    bank: Provider, world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    effect, meet, claim = queued(world, run), threading.Barrier(5), gate.claim

    def together(ask: Any) -> Any:
        meet.wait(20)  # each of them has seen the step free
        return claim(ask)

    monkeypatch.setattr(gate, "claim", together)
    with at_work(*[lambda: executor.execute(effect.pk)] * 5) as came_to:
        pass
    assert sorted(map(str, came_to)) == ["applied", *["refused"] * 4]
    assert bank.ledger.sends() == 1
    assert Refusal.objects.get(run=run, reason="lost_claim").count == 4


@pytest.mark.race
def test_the_ledger_counts_what_workers_without_a_claim_would_do(
    bank: Provider, world: World, run: Run
) -> None:
    """The control of the two tests above: same provider, same count, no gate."""
    effect = queued(world, run)
    kind = effect.kind
    assert kind is not None
    with at_work(*[lambda: http.send(effect, kind)] * 5):
        pass
    assert (bank.ledger.sends(), bank.ledger.applied()) == (5, 1)


@pytest.mark.invariant("I8")
def test_no_transaction_is_open_while_the_provider_is_called(
    bank: Provider, world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[bool, int]] = []

    def call(*_: Any) -> outbound.Answer:
        with at_work(lambda: Permit.objects.filter(state=PermitState.OPEN).count()) as committed:
            pass
        seen.append((connection.in_atomic_block, committed[0]))
        return outbound.Answer(201, "", b"")

    monkeypatch.setattr(outbound, "call", call)
    executor.execute(queued(world, run).pk)
    assert seen == [(False, 1)]  # and the permit is there for others to see


@pytest.mark.only("postgresql")
def test_no_connection_of_the_pool_is_held_while_the_provider_takes_its_time(
    bank: Provider, world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[bool] = []
    real = outbound._exchange

    def exchange(*args: Any) -> outbound.Answer:
        held.append(connection.connection is not None)
        return real(*args)

    monkeypatch.setattr(outbound, "_exchange", exchange)
    effect = queued(world, run)
    with at_work(lambda: executor.execute(effect.pk)) as came_to:
        pass
    assert (came_to, held) == (["applied"], [False])


def test_only_the_executor_calls_a_providers_send() -> None:
    callers = set()
    names = ("providers", "provider", "http")
    for room in ("runs", "effects", "dashboard"):
        for path in (ROOT / room).rglob("*.py"):
            calls = [
                node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
            ]
            sends = [call.value for call in calls if isinstance(call, ast.Attribute) and call.attr == "send"]
            if any(isinstance(whose, ast.Name) and whose.id in names for whose in sends):
                callers.add(path.relative_to(ROOT).as_posix())
    assert callers == {"effects/executor.py", "effects/providers/__init__.py"}


@pytest.mark.parametrize("provider", ["outside", None])
def test_what_its_agent_sends_is_not_sent_by_us(
    bank: Provider, world: World, run: Run, provider: Any
) -> None:
    if provider:
        a_kind(world.workspace, "mail.send", provider=provider)
    effect = queued(world, run, kind="mail.send")
    assert executor.execute(effect.pk) == "nothing to do"
    assert executor.execute("eff_nobody") == "nothing to do"
    assert stands(effect) == (Settlement.DECLARED, StepStatus.PENDING)
    assert bank.ledger.lines() == []


def test_an_effect_in_a_step_of_its_agent_waits_until_the_agent_gives_it_back(
    bank: Provider, world: World, run: Run
) -> None:
    step = world.claimed(run)
    effect = intents.declare(world.ask_of(step), intention(body=BODY))
    assert isinstance(effect, Effect)
    assert executor.execute(effect.pk) == "nothing to do"
    gate.release(world.ask_of(step))
    assert executor.execute(effect.pk) == "applied"
    assert stands(effect) == (Settlement.CONFIRMED, StepStatus.SUCCEEDED)
    assert bank.ledger.sends() == 1


# --- A stop ---------------------------------------------------------------------------------------------


@pytest.mark.invariant("I1")
def test_a_message_that_comes_after_the_stop_leaves_its_refusal_once(
    bank: Provider, world: World, run: Run
) -> None:
    effect = queued(world, run)
    world.stop(run)
    assert [executor.execute(effect.pk) for _ in range(5)] == ["refused"] * 5
    refusal = Refusal.objects.get(run=run)
    assert (refusal.boundary, refusal.reason, refusal.count) == ("claim", "stopped", 5)
    assert kinds_of(run).count("claim.refused") == 1
    assert stands(effect)[1] == StepStatus.WITHHELD
    assert bank.ledger.lines() == []


@pytest.mark.invariant("I1")
def test_a_stop_between_claim_and_dispatch_sends_nothing(
    bank: Provider, world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    effect = queued(world, run)
    before(monkeypatch, intents, "dispatch_again", lambda: world.stop(run))
    assert executor.execute(effect.pk) == "not dispatched"
    refusal = Refusal.objects.get(run=run)
    assert (refusal.boundary, refusal.carried_version, refusal.current_version) == ("dispatch", 1, 2)
    assert not Permit.objects.filter(run=run).exists()
    assert bank.ledger.lines() == []


@pytest.mark.invariant("I7")
@pytest.mark.parametrize("looks", [True, False])
def test_a_stop_between_permit_and_second_look_sends_nothing(
    bank: Provider, world: World, run: Run, monkeypatch: pytest.MonkeyPatch, looks: bool
) -> None:
    """And, without the look, the same ledger counts a request that began after the acknowledgement."""
    effect, stopped, look = queued(world, run), [], gate.look

    def late(permit_id: str, token: str) -> gate.Look:
        stopped.append((world.stop(run).stop, time.time()))
        seen = look(permit_id, token)
        assert seen.answer == "shut"
        return seen if looks else gate.Look(**{**vars(seen), "answer": "open"})

    monkeypatch.setattr(gate, "look", late)
    came_to = executor.execute(effect.pk)
    stop, acknowledged = stopped[0]
    assert in_flight(stop) == {permit_of(effect).pk}
    began_after = [line for line in bank.ledger.lines("request") if line["at"] > acknowledged]
    if looks:
        assert (came_to, began_after) == ("not_sent", [])
        assert permit_of(effect).state == PermitState.NOT_SENT
        assert stands(effect) == (Settlement.NOT_STARTED, StepStatus.WITHHELD)
        assert fresh(run).status == RunStatus.CANCELLED
    else:
        assert (came_to, len(began_after)) == ("applied", 1)


def test_a_call_in_flight_is_in_the_stops_list_and_its_report_wears_the_stop(
    bank: Provider, world: World, run: Run
) -> None:
    effect = queued(world, run)
    bank.fault("hold_after")
    with at_work(lambda: executor.execute(effect.pk)) as came_to:
        bank.ledger.wait_for("applied", effect.key)
        stop = world.stop(run).stop
        assert in_flight(stop) == {permit_of(effect).pk}
        assert fresh(run).status == RunStatus.CANCELLING
        bank.release()
    assert (came_to, bank.ledger.sends()) == (["applied"], 1)
    assert stands(effect) == (Settlement.CONFIRMED, StepStatus.SUCCEEDED)
    assert fresh(effect).step.reported_after_stop
    assert fresh(run).status == RunStatus.CANCELLED


# --- The permit's time ----------------------------------------------------------------------------------


@pytest.mark.invariant("I7")
def test_a_permit_whose_time_is_over_is_given_back_and_queued_again(
    bank: Provider, world: World, run: Run, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    effect, looks, real = queued(world, run), [], gate.look

    def look(permit_id: str, token: str) -> gate.Look:
        looks.append(permit_id)
        return real(permit_id, token)

    monkeypatch.setattr(gate, "look", look)
    settings.ALLSTOP_PERMIT_S = 0.0
    assert executor.execute(effect.pk) == "not_sent"
    assert (bank.ledger.lines(), looks) == ([], [])  # our own clock said so before the database was asked
    assert stands(effect) == (Settlement.DECLARED, StepStatus.PENDING)
    assert fresh(effect).queued_at is not None
    settings.ALLSTOP_PERMIT_S = 10.0
    assert executor.execute(effect.pk) == "applied"
    assert (bank.ledger.sends(), len(looks)) == (1, 1)
    assert sorted(Permit.objects.values_list("state", flat=True)) == ["NOT_SENT", "REPORTED"]


@pytest.mark.invariant("I7")
def test_a_machine_that_slept_between_permit_and_send_is_told_so_by_the_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """time.monotonic() stands still while a Linux machine is suspended: a permit would outlive its end."""
    slept = {getattr(time, "CLOCK_BOOTTIME", -1): 3_600.0}
    real = time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda clock: real(clock) + slept.get(clock, 0.0))
    before = time.monotonic()
    assert (executor.now() - before > 3_000) is hasattr(time, "CLOCK_BOOTTIME")


@pytest.mark.invariant("I7")
@pytest.mark.parametrize("frozen_s", [0.0, 11.0])
def test_a_process_that_was_frozen_after_the_look_sends_nothing(
    bank: Provider, world: World, run: Run, monkeypatch: pytest.MonkeyPatch, frozen_s: float
) -> None:
    ahead = [0.0]

    def frozen(permit_id: str, token: str) -> gate.Look:
        seen = look(permit_id, token)
        assert seen.answer == "open"
        ahead[0] = frozen_s
        return seen

    effect, look, now = queued(world, run), gate.look, executor.now
    monkeypatch.setattr(executor, "now", lambda: now() + ahead[0])
    monkeypatch.setattr(gate, "look", frozen)
    came_to = executor.execute(effect.pk)
    if frozen_s:
        assert (came_to, bank.ledger.lines()) == ("not_applied", [])
        assert permit_of(effect).state == PermitState.REPORTED  # it did receive "open": not "not sent"
        assert stands(effect) == (Settlement.NOT_APPLIED, StepStatus.FAILED)
    else:
        assert (came_to, bank.ledger.sends()) == ("applied", 1)
