"""Our own runtime when something is away: databases, workers, answers. Nothing is guessed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from effects import drain, executor, intents, providers, queue, settle
from effects.models import Effect, Settlement
from effects.providers import http
from runs import drain as leases
from runs import gate
from runs.models import Permit, PermitState, Run, Step, StepStatus
from tests.effects.sending import AWAY, SILENT, at_the_bank, at_work, before, fails, permit_of, queued, stands
from tests.effects.test_answers import HOSTILE
from tests.provider import Provider, refused_address
from tests.worlds import World, a_kind, fresh, in_seconds, kinds_of, lapse

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


# --- A database that is away ----------------------------------------------------------------------------


@pytest.mark.invariant("I22")
def test_a_second_look_without_an_answer_sends_nothing(
    bank: Provider, world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    effect = queued(world, run)
    fails(monkeypatch, gate, "look", 1)
    assert (executor.execute(effect.pk), bank.ledger.lines()) == ("not_sent", [])
    assert executor.execute(effect.pk) == "applied"
    assert bank.ledger.sends() == 1


@pytest.mark.invariant("I8")
def test_a_commit_whose_answer_was_lost_is_found_by_its_token(
    bank: Provider, world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    effect = queued(world, run)
    fails(monkeypatch, intents, "dispatch_again", 1, after=True)
    assert executor.execute(effect.pk) == "applied"
    assert (bank.ledger.sends(), Permit.objects.count()) == (1, 1)


@pytest.mark.invariant("I8")
@pytest.mark.parametrize("error", [AWAY, SILENT])
def test_a_dispatch_that_did_not_commit_sends_nothing_and_gives_the_step_back(
    bank: Provider, world: World, run: Run, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    effect = queued(world, run)
    fails(monkeypatch, intents, "dispatch_again", 1, error=error)
    assert (executor.execute(effect.pk), bank.ledger.lines()) == ("not dispatched", [])
    assert stands(effect) == (Settlement.DECLARED, StepStatus.PENDING)
    assert executor.execute(effect.pk) == "applied"


@pytest.mark.parametrize("error", [AWAY, SILENT])
def test_a_report_is_tried_again_while_the_database_is_away(
    bank: Provider, world: World, run: Run, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(executor, "REPORT_PAUSE_S", 0.01)
    effect = queued(world, run)
    fails(monkeypatch, settle, "report", executor.REPORT_TRIES - 1, error=error)
    assert executor.execute(effect.pk) == "applied"
    assert (stands(effect)[0], bank.ledger.sends()) == (Settlement.CONFIRMED, 1)


def test_a_report_whose_answer_was_lost_is_recorded_once(
    bank: Provider, world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "REPORT_PAUSE_S", 0.01)
    effect = queued(world, run)
    fails(monkeypatch, settle, "report", 2, after=True)
    assert executor.execute(effect.pk) == "applied"
    assert kinds_of(run).count("permit.reported") == 1


@pytest.mark.invariant("I9")
@pytest.mark.parametrize("sent", [False, True])
def test_what_ends_between_permit_and_report_is_left_to_the_lease(
    bank: Provider, world: World, run: Run, monkeypatch: pytest.MonkeyPatch, sent: bool
) -> None:
    def breaks(effect: Effect, kind: Any, ready: Any) -> Any:
        if sent:
            http.send(effect, kind, ready)
        raise MemoryError

    effect = queued(world, run)
    monkeypatch.setattr(providers, "send", breaks)
    with pytest.raises(MemoryError):
        executor.execute(effect.pk)
    assert (permit_of(effect).state, stands(effect)[0]) == (PermitState.OPEN, Settlement.DISPATCHED)
    monkeypatch.undo()
    assert executor.execute(effect.pk) == "nothing to do"
    lapse(permit_of(effect), effect.step)
    drain.drain_run(run.pk)
    assert permit_of(effect).state == PermitState.LOST
    assert stands(effect) == (Settlement.UNKNOWN, StepStatus.UNKNOWN)
    assert executor.execute(effect.pk) == "nothing to do"
    assert bank.ledger.sends() == int(sent)


def test_a_worker_that_dies_between_claim_and_dispatch_costs_its_lease(
    bank: Provider, world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def dies() -> None:
        raise Killed

    effect = queued(world, run)
    before(monkeypatch, intents, "dispatch_again", dies)
    with pytest.raises(Killed):
        executor.execute(effect.pk)
    monkeypatch.undo()
    assert stands(effect) == (Settlement.DECLARED, StepStatus.CLAIMED)
    lapse(effect.step)
    drain.drain_run(run.pk)
    assert stands(effect) == (Settlement.DECLARED, StepStatus.PENDING)
    Effect.objects.filter(pk=effect.pk).update(queued_at=in_seconds(-queue.AGAIN_S - 1))
    assert queue.waiting() == [effect.pk]
    assert executor.execute(effect.pk) == "applied"
    assert bank.ledger.sends() == 1


# --- Leases ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beats", [True, False])
def test_a_call_longer_than_its_lease_keeps_its_permit(
    bank: Provider, world: World, run: Run, monkeypatch: pytest.MonkeyPatch, beats: bool
) -> None:
    """And, without heartbeats, the same call is taken for lost and its report comes late."""
    monkeypatch.setattr(executor, "LEASE_S", 1.2)
    if not beats:
        monkeypatch.setattr(leases, "heartbeat", lambda **_: None)
    effect = queued(world, run)
    bank.fault("hold_after")
    with at_work(lambda: executor.execute(effect.pk)) as came_to:
        bank.ledger.wait_for("applied", effect.key)
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            drain.drain_run(run.pk)
            time.sleep(0.1)
        held = permit_of(effect).state
        bank.release()
    assert (came_to, held) == (["applied"], "OPEN" if beats else "LOST")
    assert stands(effect) == (Settlement.CONFIRMED, StepStatus.SUCCEEDED)
    assert fresh(effect).late is not beats


# --- What the answer comes to ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "settlement", "step"),
    [
        (200, Settlement.CONFIRMED, StepStatus.SUCCEEDED),
        (402, Settlement.NOT_APPLIED, StepStatus.FAILED),
        (409, Settlement.UNKNOWN, StepStatus.UNKNOWN),
        (429, Settlement.UNKNOWN, StepStatus.UNKNOWN),
        (302, Settlement.UNKNOWN, StepStatus.UNKNOWN),
        (500, Settlement.UNKNOWN, StepStatus.UNKNOWN),
    ],
)
def test_an_answer_settles_the_effect_and_its_step(
    bank: Provider, world: World, run: Run, status: int, settlement: str, step: str
) -> None:
    effect = queued(world, run)
    bank.fault("answer", status=status)
    executor.execute(effect.pk)
    assert (stands(effect), permit_of(effect).state) == ((settlement, step), "REPORTED")
    assert (fresh(effect).next_check_at is not None) is (settlement == Settlement.UNKNOWN)
    assert bank.ledger.sends() == 1


@pytest.mark.parametrize(("fault", "applied"), [("drop_before", 0), ("drop_after", 1)])
def test_a_dropped_answer_is_unknown_and_is_not_sent_again(
    bank: Provider, world: World, run: Run, fault: str, applied: int
) -> None:
    effect = queued(world, run)
    bank.fault(fault)
    assert [executor.execute(effect.pk) for _ in range(3)] == ["unknown", "nothing to do", "nothing to do"]
    assert stands(effect) == (Settlement.UNKNOWN, StepStatus.UNKNOWN)
    assert (bank.ledger.sends(), bank.ledger.applied()) == (1, applied)


def test_a_refused_connection_was_not_applied_by_its_holders_word(
    world: World, run: Run, settings: Settings
) -> None:
    with refused_address() as url:
        settings.ALLSTOP_OUTBOUND_ORIGINS = [url]
        a_kind(world.workspace, "away.charge", provider="http", send={"url": url})
        effect = queued(world, run, kind="away.charge")
        assert executor.execute(effect.pk) == "not_applied"
    assert (stands(effect)[0], permit_of(effect).state) == (Settlement.NOT_APPLIED, PermitState.REPORTED)


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_no_answer_of_a_provider_can_lose_its_settlement(
    bank: Provider, world: World, run: Run, number: int
) -> None:
    effect = queued(world, run)
    bank.fault("answer_after", status=201, text=HOSTILE[number].decode(errors="replace"))
    assert executor.execute(effect.pk) == "applied"
    assert stands(effect)[0] == Settlement.CONFIRMED
    assert Step.objects.filter(run=run, status=StepStatus.SUCCEEDED).count() == 1


def test_a_batch_done_in_part_says_which(bank: Provider, world: World, run: Run) -> None:
    send, lookup = {"url": f"{bank.url}/batches"}, {"partial_path": "failed", "items": "applied"}
    a_kind(world.workspace, "bank.batch", provider="http", send=send, lookup=lookup)
    effect = queued(world, run, kind="bank.batch", body=b'{"items": ["a", "b", "c"]}')
    bank.fault("partial", count=2)
    assert executor.execute(effect.pk) == "partial"
    assert stands(effect) == (Settlement.PARTIAL, StepStatus.PARTIAL)
    assert fresh(effect).items == ["a", "b"]
