"""Receipts: what each worker said it holds, at each boundary; who is silent; nothing is waited for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from effects.drain import drain_run
from runs import drain, gate, receipts
from runs.access import EXECUTOR
from runs.models import Permit, Receipt, Run, Worker
from tests.wire import agent_of
from tests.worlds import World, a_run, fresh, in_seconds, lapse

pytestmark = pytest.mark.django_db


def held(run: Run) -> dict[tuple[str, str], int]:
    """(worker, boundary) and the version that was confirmed there."""
    rows = Receipt.objects.filter(run=run)
    return {(name, boundary): v for name, boundary, v in rows.values_list("worker", "boundary", "version")}


def silence(run: Run, seconds: float, *, also_workers: bool = True) -> None:
    """Let the last sign of life lie so far back."""
    long_ago = in_seconds(-seconds)
    left = long_ago + timedelta(seconds=run.silent_after_s)
    Run.objects.filter(pk=run.pk).update(last_heard_at=long_ago, silent_at=left)
    if also_workers:
        Worker.objects.filter(run=run).update(last_heard_at=long_ago)
        Receipt.objects.filter(run=run).update(heard_at=long_ago)


def test_each_gate_call_is_a_receipt_for_the_version_that_it_carries_there(world: World) -> None:
    run = world.run()
    world.claimed(run)
    world.opened(run, worker="w-2")
    gate.model(world.ask(run, step_key="think", op_class="model_turn", worker="w-2"))
    assert held(run) == {("w-1", "claim"): 1, ("w-2", "dispatch"): 1, ("w-2", "model"): 1}
    assert {w.name: w.confirmed_version for w in Worker.objects.filter(run=run)} == {"w-1": 1, "w-2": 1}


def test_a_refused_call_proves_no_more_than_the_version_it_carried(world: World) -> None:
    run = world.run()
    world.opened(run)
    world.stop(run)
    assert world.refused(run, "late").carried_version == 1
    assert held(run) == {("w-1", "dispatch"): 1}
    assert receipts.standing(fresh(run)) == {"total": 1, "confirmed": 0}
    world.refused(fresh(run), "later")  # it knows of the stop now, and carries its version
    assert held(run) == {("w-1", "dispatch"): 2}
    assert receipts.standing(fresh(run)) == {"total": 1, "confirmed": 1}


def test_a_heartbeat_brings_the_receipts_of_all_boundaries(world: World) -> None:
    run = world.run()
    world.stop(run)
    given = {"dispatch": 2, "checkpoint": 2, "model": 1}
    drain.heartbeat(actor=world.agent, run_id=run.pk, worker="w-1", seen=2, tokens=[], confirmed=given)
    assert held(run) == {("w-1", name): version for name, version in given.items()}


def test_a_receipt_is_never_taken_back_nor_given_for_a_version_that_does_not_exist(world: World) -> None:
    run = world.run()
    world.stop(run)
    for seen, at in [(2, 2), (1, 1), (3, 9)]:
        drain.heartbeat(
            actor=world.agent, run_id=run.pk, worker="w-1", seen=seen, tokens=[], confirmed={"act": at}
        )
        assert held(run) == {("w-1", "act"): 2}
    assert Worker.objects.get(run=run).confirmed_version == 2


def test_what_is_known_already_costs_no_statement(world: World) -> None:
    run = world.run()

    def statements(key: str) -> int:
        with CaptureQueriesContext(connection) as seen:
            world.opened(run, key)
        return len(seen)

    first, second = statements("charge:1"), statements("charge:2")
    assert first > second
    Receipt.objects.update(heard_at=in_seconds(-6))
    assert statements("charge:3") > second, "heard again after a while"
    assert Receipt.objects.get().heard_at > in_seconds(-3)


def test_last_heard_includes_gate_calls_and_reports(world: World) -> None:
    run = world.run()
    opened = world.opened(run)
    signs: list[Any] = [
        lambda: world.opened(run, "charge:8"),
        lambda: world.report(opened),
        lambda: world.heartbeat(run),
        lambda: world.refused(run, "charge:9", seen_version=7),
    ]
    for sign in signs:
        silence(run, 600)
        sign()
        last = fresh(run).last_heard_at
        assert last is not None
        assert last > in_seconds(-3), sign
        assert Worker.objects.get(run=run).last_heard_at > in_seconds(-3), sign


def test_our_own_executor_gives_no_receipts(world: World) -> None:
    run = world.run()
    gate.claim(world.ask(run, step_key="ours", actor=EXECUTOR, worker="host:1"))
    assert not Receipt.objects.exists()


@pytest.mark.invariant("I30")
def test_no_receipt_is_waited_for(world: World) -> None:
    run = world.run()
    world.heartbeat(run)
    world.stop(run)
    assert receipts.standing(fresh(run)) == {"total": 1, "confirmed": 0}
    assert drain_run(run.pk) == "CANCELLED"


# --- A claim that is another's now ------------------------------------------------------------------------


def test_a_heartbeat_says_which_claims_are_lost(world: World) -> None:
    run = world.run()
    mine, gone = world.claimed(run, "mine"), world.claimed(run, "gone")
    lapse(gone)
    drain_run(run.pk)
    again = world.claimed(run, "gone", worker="w-2")
    heard = world.heartbeat(run, mine.claim_token, gone.claim_token)
    assert heard.lost == [gone.claim_token]
    assert fresh(again).claim_token != gone.claim_token


# --- Silence ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["ACTIVE", "PAUSING", "CANCELLING", "CANCELLING_TIMEOUT"])
def test_a_run_in_motion_is_silent_once_nothing_was_heard_for_as_long_as_it_said(status: str) -> None:
    run = a_run(status, silent_after_s=60)
    silence(run, 59)
    assert list(Run.objects.filter(receipts.is_silent())) == []
    silence(run, 61)
    assert list(Run.objects.filter(receipts.is_silent())) == [run]
    before = fresh(run).status
    drain_run(run.pk)
    assert before == status
    assert list(Run.objects.filter(receipts.is_silent())) in ([run], [])


@pytest.mark.parametrize("status", ["PAUSED", "UNKNOWN", "CANCELLED", "COMPLETED", "FAILED", "ABANDONED"])
def test_a_run_that_rests_is_not_called_silent(status: str) -> None:
    run = a_run(status)
    silence(run, 10_000)
    assert list(Run.objects.filter(receipts.is_silent())) == []


def test_nothing_moves_a_silent_run_and_a_sign_of_life_ends_the_silence(world: World) -> None:
    run = world.run()
    silence(run, 901)
    assert list(Run.objects.filter(receipts.is_silent())) == [run]
    assert drain_run(run.pk) == "ACTIVE"
    assert fresh(run).cancel_version == 1
    world.opened(run)
    assert list(Run.objects.filter(receipts.is_silent())) == []


def test_a_mark_that_was_not_moved_yet_makes_nobody_silent(world: World) -> None:
    """`silent_at` moves in steps: it may be early, and is never believed alone."""
    run = world.run()
    Run.objects.filter(pk=run.pk).update(silent_at=in_seconds(-1), last_heard_at=in_seconds(-30))
    assert list(Run.objects.filter(receipts.is_silent())) == []
    world.heartbeat(run)
    moved = fresh(run).silent_at
    assert moved is not None
    assert moved > in_seconds(800)
    world.heartbeat(run)
    assert fresh(run).silent_at == moved, "an indexed column is not written by each heartbeat"


# --- The wire ---------------------------------------------------------------------------------------------


def test_the_workers_of_a_run_are_told_with_what_each_confirmed(world: World) -> None:
    agent = agent_of(world.workspace)
    run = agent.run(worker="w-0")
    agent.permitted(run)
    body = {"worker": "w-2", "seen_version": 1, "confirmed": {"checkpoint": 1}}
    said = agent.post(f"/runs/{run['id']}/heartbeat", body)
    assert (said.data["may_go_on"], said.data["lost"]) == (True, [])
    told = agent.get(f"/runs/{run['id']}/workers").data
    assert (told["total"], told["confirmed"], told["cancel_version"]) == (3, 2, 1)
    assert [(w["name"], w["confirmed_version"]) for w in told["items"]] == [
        ("w-0", None),
        ("w-1", 1),
        ("w-2", 1),
    ]
    assert [r["boundary"] for w in told["items"] for r in w["receipts"]] == ["dispatch", "checkpoint"]


def test_a_heartbeat_at_a_checkpoint_says_that_the_worker_may_not_go_on(world: World) -> None:
    agent = agent_of(world.workspace)
    run = agent.run()
    agent.stop(run)
    said = agent.post(f"/runs/{run['id']}/heartbeat", {"worker": "w-1", "seen_version": 1})
    assert (said.status, said.data["may_go_on"], said.data["status"]) == (200, False, "CANCELLING")


@pytest.mark.parametrize("confirmed", [{"kitchen": 1}, {"act": "1"}, {"act": 0}, ["act"]])
def test_a_receipt_that_cannot_be_read_is_refused(world: World, confirmed: Any) -> None:
    agent = agent_of(world.workspace)
    run = agent.run()
    body = {"worker": "w-1", "seen_version": 1, "confirmed": confirmed}
    assert agent.post(f"/runs/{run['id']}/heartbeat", body).status == 422
    assert not Receipt.objects.exists()
    assert not Permit.objects.exists()
