"""Asking a real provider what happened: what each answer proves, and what it doesn't."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections
from pytest_django.fixtures import Settings

from effects import drain, ends, executor, intents, jobs, lookup, outbound, reconcile, repair, tasks
from effects.models import Effect, Kind, Settlement
from runs.models import Evidence, EvidencePayload, Permit, PermitState, Run, RunStatus, StepStatus
from runs.store import database_time
from tests.provider import Provider
from tests.worlds import World, a_kind, a_step, an_effect, fresh, in_seconds, intention, kinds_of, lapse

pytestmark = pytest.mark.django_db(transaction=True)

WINDOW_S, RETENTION_S = 60, 3600
INSIDE, AFTER, FORGOTTEN = 5, 120, 2 * RETENTION_S  # seconds since the dispatch


@pytest.fixture
def bank(tmp_path: Path, settings: Settings) -> Iterator[Provider]:
    with Provider(tmp_path / "ledger") as bank:
        settings.ALLSTOP_OUTBOUND_ORIGINS = [bank.url]
        yield bank


@pytest.fixture
def kind(bank: Provider, world: World) -> Kind:
    return a_kind(
        world.workspace,
        provider="http",
        send={"url": f"{bank.url}/charges"},
        lookup={"url": f"{bank.url}/charges?key={{key}}", "key_path": "key"},
        settle_window_s=WINDOW_S,
        key_retention_s=RETENTION_S,
        updated_at=in_seconds(-10 * RETENTION_S),
    )


@pytest.fixture
def run(world: World, kind: Kind) -> Run:
    return world.run()


def change(kind: Kind, **fields: Any) -> None:
    Kind.objects.filter(pk=kind.pk).update(**fields)


def declared(world: World, run: Run, key: str = "charge:7", body: bytes = b'{"amount": 1}') -> Effect:
    effect = intents.declare(world.ask(run, step_key=key), intention(key, body=body))
    assert isinstance(effect, Effect)
    return effect


def unknown(
    bank: Provider, world: World, run: Run, fault: str = "drop_after", key: str = "charge:7"
) -> Effect:
    """An effect whose answer was lost: applied by the provider (`drop_after`) or not (`drop_before`)."""
    effect = declared(world, run, key)
    bank.fault(fault, method="POST", key=key)
    assert executor.execute(effect.pk) == "unknown"
    assert bank.ledger.applied(key) == (fault == "drop_after")
    return fresh(effect)


def lose(effect: Effect) -> None:
    """As if the holder had been killed instead of reporting that its call was over."""
    Permit.objects.filter(effect_key=effect.key).update(outcome="")
    Permit.objects.filter(effect_key=effect.key).advance({"state": PermitState.LOST})


def aged(effect: Effect, seconds: float) -> None:
    """As if it had been dispatched, and its call been over, so long ago."""
    Effect.objects.filter(pk=effect.pk).update(dispatched_at=in_seconds(-seconds))
    Permit.objects.filter(effect_key=effect.key).update(ended_at=in_seconds(-seconds))


def check(effect: Effect) -> str:
    """A check whose time has come; the settlement afterwards."""
    Effect.objects.filter(pk=effect.pk).update(next_check_at=in_seconds(-1))
    settlement = lookup.check_effect(effect.pk)
    assert settlement is not None
    return settlement


def seen(effect: Effect) -> list[dict[str, Any]]:
    """What each look-up recorded, in order."""
    lines = Evidence.objects.filter(stream=effect.run_id, kind="effect.looked_up").order_by("seq")
    bodies = [EvidencePayload.objects.get(stream=line.stream, seq=line.seq).body for line in lines]
    return [json.loads(body) for body in bodies]


def asked(bank: Provider) -> int:
    return len(bank.ledger.lines("request", method="GET"))


# --- Presence -------------------------------------------------------------------------------------------


def test_a_lost_answer_is_confirmed_by_the_provider(bank: Provider, world: World, run: Run) -> None:
    effect = unknown(bank, world, run)
    assert check(effect) == Settlement.CONFIRMED
    effect = fresh(effect)
    assert (effect.ground, effect.provider_ref) == ("looked up", bank.state.objects["charge:7"]["id"])
    assert (effect.step.status, effect.checks, effect.next_check_at) == (StepStatus.SUCCEEDED, 1, None)
    assert (bank.ledger.sends(), asked(bank)) == (1, 1)


def test_the_evidence_says_who_was_asked_and_what_was_seen(bank: Provider, world: World, run: Run) -> None:
    effect = unknown(bank, world, run)
    check(effect)
    [told] = seen(effect)
    assert database_time() - datetime.fromisoformat(told.pop("asked_at")) < timedelta(minutes=1)
    assert told == {
        "answer": "present",
        "detail": "the provider answered 200",
        "observed": {"asked": f"GET {bank.url}", "status": 200, "fields": {"key": "charge:7"}},
        "provider_ref": bank.state.objects["charge:7"]["id"],
        "means": "happened",
        "attempt": 1,
    }
    line = Evidence.objects.get(stream=run.pk, kind="effect.looked_up")
    assert (line.actor, line.ground, line.effect_key) == ("system", "looked up", "charge:7")
    assert kinds_of(run)[-3:] == ["effect.looked_up", "effect.confirmed", "step.succeeded"]


def test_a_part_is_not_the_whole(bank: Provider, world: World, run: Run, kind: Kind) -> None:
    change(kind, lookup={**kind.lookup, "partial_path": "failed", "items": "applied"})
    effect = declared(world, run, body=b'{"items": ["a", "b", "c"]}')
    bank.fault("partial", count=2, method="POST")
    bank.fault("drop_after", method="POST")
    assert executor.execute(effect.pk) == "unknown"
    assert check(effect) == Settlement.PARTIAL
    assert (fresh(effect).items, fresh(effect).step.status) == (["a", "b"], StepStatus.PARTIAL)


def test_a_key_that_was_applied_twice_is_shown_so(bank: Provider, world: World, run: Run, kind: Kind) -> None:
    change(kind, lookup={**kind.lookup, "count_path": "n"})
    effect = unknown(bank, world, run)
    bank.fault("answer", method="GET", status=200, text='{"key": "charge:7", "n": 2}')
    assert check(effect) == Settlement.CONFIRMED
    assert fresh(effect).seen_twice == 2


# --- Absence --------------------------------------------------------------------------------------------


# since the dispatch, the permit, whether the provider can fence keys: what a 404 then comes to
ABSENT = [
    (INSIDE, "REPORTED", False, Settlement.UNKNOWN),
    (INSIDE, "REPORTED", True, Settlement.UNKNOWN),
    (INSIDE, "LOST", False, Settlement.UNKNOWN),
    (INSIDE, "LOST", True, Settlement.UNKNOWN),
    (AFTER, "REPORTED", False, Settlement.NOT_APPLIED),
    (AFTER, "REPORTED", True, Settlement.NOT_APPLIED),
    (AFTER, "LOST", False, Settlement.UNKNOWN),
    (AFTER, "LOST", True, Settlement.NOT_APPLIED),
    (FORGOTTEN, "REPORTED", False, Settlement.UNKNOWN),
    (FORGOTTEN, "LOST", True, Settlement.UNKNOWN),
]


@pytest.mark.invariant("I10")
@pytest.mark.parametrize(("age", "permit", "fencing", "settlement"), ABSENT)
def test_nothing_found_is_proof_only_when_nothing_can_come_any_more(
    bank: Provider,
    world: World,
    run: Run,
    kind: Kind,
    age: int,
    permit: str,
    fencing: bool,
    settlement: str,
) -> None:
    change(kind, key_fencing=fencing)
    effect = unknown(bank, world, run, "drop_before")
    if permit == "LOST":
        lose(effect)
    aged(effect, age)
    assert check(effect) == settlement
    assert (asked(bank), seen(effect)[0]["answer"]) == (1, "absent")  # it was seen, whatever it proves
    settled = settlement == Settlement.NOT_APPLIED
    assert seen(effect)[0]["means"] == ("did not happen" if settled else "nothing")
    assert (fresh(effect).next_check_at is None) is settled
    assert fresh(effect).step.status == (StepStatus.FAILED if settled else StepStatus.UNKNOWN)


@pytest.mark.invariant("I10")
@pytest.mark.parametrize(("window", "settlement"), [(WINDOW_S, "UNKNOWN"), (0, "NOT_APPLIED")])
def test_a_provider_that_applies_after_the_look_up_is_not_taken_for_absent(
    bank: Provider,
    world: World,
    run: Run,
    kind: Kind,
    monkeypatch: pytest.MonkeyPatch,
    window: int,
    settlement: str,
) -> None:
    """And a kind that claims to settle at once is wrong, as its ledger shows: the window is what helps."""
    change(kind, settle_window_s=window)
    monkeypatch.setattr(outbound, "LIMIT_S", 0.5)
    effect = declared(world, run)
    bank.fault("hold_before", method="POST")
    assert executor.execute(effect.pk) == "unknown"
    monkeypatch.undo()
    assert check(effect) == settlement
    bank.release()
    bank.ledger.wait_for("applied", effect.key)
    if settlement == Settlement.UNKNOWN:
        assert check(effect) == Settlement.CONFIRMED
    wrong = fresh(effect).settlement == Settlement.NOT_APPLIED and bank.ledger.applied(effect.key) == 1
    assert wrong is (window == 0)


def test_not_found_and_then_found_is_found(bank: Provider, world: World, run: Run) -> None:
    effect = unknown(bank, world, run)
    aged(effect, INSIDE)
    bank.fault("absent", method="GET", times=2)
    assert [check(effect) for _ in range(3)] == ["UNKNOWN", "UNKNOWN", "CONFIRMED"]
    assert [line["answer"] for line in seen(effect)] == ["absent", "absent", "present"]
    assert (bank.ledger.sends(), bank.ledger.applied()) == (1, 1)


FAILED: dict[str, dict[str, Any]] = {
    "a page": {"do": "answer", "status": 200, "text": "<html>", "content_type": "text/html"},
    "a page that says 404": {"do": "answer", "status": 404, "text": "<html>", "content_type": "text/html"},
    "an error": {"do": "answer", "status": 500},
    "too many": {"do": "answer", "status": 429},
    "no permission": {"do": "answer", "status": 401},
    "somebody else's object": {"do": "wrong"},
    "no answer": {"do": "drop_before"},
    "a slow answer": {"do": "hold_before", "for_s": 2.0},
    "a huge answer": {"do": "answer", "status": 200, "text": "x" * 300_000},
    "an absence": {"do": "absent"},  # the control: of all these, this one is proof
}


@pytest.mark.invariant("I10")
@pytest.mark.parametrize("what", FAILED)
def test_a_look_up_that_failed_is_not_one_that_found_nothing(
    bank: Provider, world: World, run: Run, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    effect = unknown(bank, world, run, "drop_before")
    aged(effect, AFTER)
    monkeypatch.setattr(outbound, "LIMIT_S", 0.5)
    bank.fault(method="GET", **FAILED[what])
    settlement = check(effect)
    assert (settlement, seen(effect)[0]["answer"], asked(bank)) == (
        ("NOT_APPLIED", "absent", 1) if what == "an absence" else ("UNKNOWN", "can't tell", 1)
    )
    assert seen(effect)[0]["detail"]


@pytest.mark.invariant("I9")
def test_unknown_is_left_only_with_a_line_that_says_why(bank: Provider, world: World, run: Run) -> None:
    happened, did_not = unknown(bank, world, run), unknown(bank, world, run, "drop_before", "charge:8")
    for effect in (happened, did_not):
        aged(effect, AFTER)
        check(effect)
    for effect, settled in ((happened, "effect.confirmed"), (did_not, "effect.not_applied")):
        lines = list(Evidence.objects.filter(stream=run.pk, effect_key=effect.key).order_by("seq"))
        kinds = [line.kind for line in lines]
        assert kinds.index("effect.unknown") < kinds.index("effect.looked_up") < kinds.index(settled)
        assert {line.ground for line in lines if line.kind == settled} == {"looked up"}


# --- The schedule ---------------------------------------------------------------------------------------


def test_the_schedule_follows_the_kind_and_ends_as_it_said(
    bank: Provider, world: World, run: Run, kind: Kind
) -> None:
    change(kind, check_every_s=[10, 20], check_for_s=45)
    effect = unknown(bank, world, run, "drop_before")
    bank.fault("answer", method="GET", status=503, times=0)
    planned = []
    for _ in range(2):
        check(effect)
        now, due_at = in_seconds(0), fresh(effect).next_check_at
        assert due_at is not None
        planned.append(round((due_at - now).total_seconds()))
    assert planned == [10, 20]
    assert "reconcile.ended" not in kinds_of(run)
    Effect.objects.filter(pk=effect.pk).update(check_until=in_seconds(15))  # 30 seconds later
    assert check(effect) == Settlement.UNKNOWN
    assert (fresh(effect).next_check_at, fresh(effect).checks) == (None, 3)
    assert (kinds_of(run).count("reconcile.ended"), kinds_of(run)[-1]) == (1, "reconcile.ended")
    assert lookup.check_effect(effect.pk) is None
    assert (reconcile.due(), asked(bank)) == ([], 3)


def test_a_check_that_is_not_due_asks_nobody(bank: Provider, world: World, run: Run) -> None:
    effect = unknown(bank, world, run)
    assert lookup.check_effect(effect.pk) is None
    assert (reconcile.due(), asked(bank)) == ([], 0)


@pytest.mark.race
def test_two_workers_with_one_check_ask_once(
    bank: Provider, world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    effect, meet, real = unknown(bank, world, run), threading.Barrier(5), reconcile.take_turn
    Effect.objects.filter(pk=effect.pk).update(next_check_at=in_seconds(-1))
    assert reconcile.due() == [effect.pk]
    came_to: list[str | None] = []

    def together(effect_id: str) -> tuple[Effect, reconcile.Asked] | None:
        meet.wait(20)
        return real(effect_id)

    def work() -> None:
        try:
            came_to.append(lookup.check_effect(effect.pk))
        finally:
            connections.close_all()

    monkeypatch.setattr(reconcile, "take_turn", together)
    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(map(str, came_to)) == ["CONFIRMED", *["None"] * 4]
    assert (asked(bank), len(seen(effect))) == (1, 1)


def test_a_worker_that_dies_while_it_asks_is_followed_by_another(
    bank: Provider, world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    effect = unknown(bank, world, run)
    Effect.objects.filter(pk=effect.pk).update(next_check_at=in_seconds(-1))
    assert reconcile.take_turn(effect.pk) is not None  # and no answer is ever applied
    later = fresh(effect).next_check_at
    assert later is not None
    assert 0 < (later - in_seconds(0)).total_seconds() <= 30
    assert check(effect) == Settlement.CONFIRMED


@pytest.mark.parametrize("broken", [{"present_if": {"json_path": 7}}, {"absent_status": 5}, {"url": None}])
def test_a_look_up_that_makes_no_sense_can_not_tell_and_comes_to_its_end(
    bank: Provider, world: World, run: Run, kind: Kind, broken: dict[str, Any]
) -> None:
    change(kind, lookup={**kind.lookup, **broken})
    effect = unknown(bank, world, run)
    assert check(effect) == Settlement.UNKNOWN
    assert (seen(effect)[0]["answer"], fresh(effect).checks) == ("can't tell", 1)
    Effect.objects.filter(pk=effect.pk).update(check_until=in_seconds(0))
    check(effect)
    assert kinds_of(run)[-1] == "reconcile.ended"


def test_an_effect_that_can_not_be_looked_up_is_never_due(
    bank: Provider, world: World, run: Run, kind: Kind
) -> None:
    change(kind, lookup={})
    effect = unknown(bank, world, run)
    assert (effect.next_check_at, reconcile.due(), asked(bank)) == (None, [], 0)


@pytest.mark.invariant("I8")
def test_no_transaction_is_open_while_the_provider_is_asked(
    bank: Provider, world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_ones: list[bool] = []

    def call(*_: Any) -> outbound.Answer:
        open_ones.append(connection.in_atomic_block)
        return outbound.Answer(404, "", b"")

    effect = unknown(bank, world, run)
    monkeypatch.setattr(outbound, "call", call)
    check(effect)
    assert open_ones == [False]


# --- The run --------------------------------------------------------------------------------------------


def test_the_last_settled_effect_ends_a_stopped_run(bank: Provider, world: World, run: Run) -> None:
    effect = unknown(bank, world, run)
    stop = world.stop(run).stop
    assert fresh(run).status == RunStatus.CANCELLING
    drain.drain_run(run.pk)
    assert (fresh(run).status, fresh(stop).closed_at) == (RunStatus.UNKNOWN, None)
    assert check(effect) == Settlement.CONFIRMED
    assert fresh(run).status == RunStatus.CANCELLED
    assert fresh(stop).closed_at is not None
    assert bank.ledger.sends() == 1


def test_a_worker_lost_in_flight_is_reconciled_after_the_stop(
    bank: Provider, world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder is gone after the request was sent: its lease ends, and the provider knows."""

    class Killed(BaseException):
        pass

    def killed(*_: Any, **__: Any) -> None:
        raise Killed

    effect = declared(world, run)
    monkeypatch.setattr(executor, "report", killed)
    with pytest.raises(Killed):
        executor.execute(effect.pk)
    assert bank.ledger.applied() == 1
    world.stop(run)
    lapse(Permit.objects.get(), effect.step)
    assert drain.drain_run(run.pk) == RunStatus.UNKNOWN
    assert (fresh(effect).settlement, Permit.objects.get().state) == (Settlement.UNKNOWN, PermitState.LOST)
    assert check(effect) == Settlement.CONFIRMED
    assert (fresh(run).status, bank.ledger.sends()) == (RunStatus.CANCELLED, 1)


def test_reconciliation_goes_on_after_the_run_has_failed(bank: Provider, world: World, run: Run) -> None:
    effect = unknown(bank, world, run)
    ends.fail(actor=world.agent, run_id=run.pk)
    assert check(effect) == Settlement.CONFIRMED
    assert fresh(run).status == RunStatus.FAILED


# --- The task -------------------------------------------------------------------------------------------


def test_one_provider_that_is_out_of_order_holds_up_no_other_look_up(
    bank: Provider, world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    effects = [unknown(bank, world, run, key=f"charge:{n}") for n in range(6)]
    Effect.objects.update(next_check_at=in_seconds(-1))
    real, at_once, most = reconcile.apply_answer, threading.Semaphore(tasks.AT_ONCE), []

    def breaks(effect_id: str, answer: reconcile.Answer, **more: Any) -> str:
        assert at_once.acquire(blocking=False), "more at once than was allowed"
        most.append(effect_id)
        try:
            if effect_id == effects[0].pk:
                raise RuntimeError("out of order")
            return real(effect_id, answer, **more)
        finally:
            at_once.release()

    monkeypatch.setattr(reconcile, "apply_answer", breaks)
    tasks.reconcile_due()
    assert sorted(most) == sorted(effect.pk for effect in effects)
    assert [fresh(effect).settlement for effect in effects] == ["UNKNOWN", *["CONFIRMED"] * 5]
    assert asked(bank) == 6


def test_thousands_of_look_ups_at_a_slow_provider_hold_up_no_other(
    bank: Provider, world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each kind in its turn, and a pass ends: here each question takes a whole pass."""
    slow = a_kind(world.workspace, "slow.charge", lookup={"url": f"{bank.url}/charges?key={{key}}"})
    step = a_step(run, "UNKNOWN")
    for number in range(150):
        given: dict[str, Any] = {
            "kind": slow,
            "dispatched_at": in_seconds(-9),
            "next_check_at": in_seconds(-9 - number),
        }
        an_effect(step, "UNKNOWN", key=f"slow:{number}", **given)
    other = unknown(bank, world, run)
    Effect.objects.filter(pk=other.pk).update(next_check_at=in_seconds(-1))
    assert Effect.objects.get(pk=reconcile.due()[0]).key == "slow:149"
    assert other.pk in reconcile.due()[:2]
    looked: list[str] = []

    def slowly(effect_id: str) -> None:
        looked.append(effect_id)
        time.sleep(0.3)

    monkeypatch.setattr(tasks, "PASS_S", 0.2)
    monkeypatch.setattr(tasks, "check_effect", slowly)
    tasks.reconcile_due()
    assert other.pk in looked
    assert len(looked) <= tasks.AT_ONCE


def test_slow_look_ups_of_effects_hold_up_neither_compensations_nor_jobs(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here each question takes a whole pass, and there are more effects than threads."""
    asked: list[str] = []

    def slowly(one: str) -> None:
        asked.append(one)
        time.sleep(0.3)

    monkeypatch.setattr(tasks, "PASS_S", 0.2)
    for module, ids in ((reconcile, [f"eff_{n}" for n in range(99)]), (repair, ["cmp_1"]), (jobs, ["job_1"])):
        monkeypatch.setattr(module, "due", partial(list, ids))
    monkeypatch.setattr(repair, "check", slowly)
    for name in ("check_effect", "ask_job"):
        monkeypatch.setattr(tasks, name, slowly)
    tasks.reconcile_due()
    assert sorted(asked) == ["cmp_1", "eff_0", "eff_1", "job_1"], "those behind have their turn in the next"
