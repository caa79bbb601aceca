"""A model turn notes what it makes and spends: a stop in its middle leaves both, and no completed task."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from allstop import Client, NotApplied, RetryNotDue, RetryRefused, StopRequested, Turn
from allstop.aio import AsyncTurn
from allstop.turn import MOST

from tests.client.aworld import connected
from tests.client.site import Site
from tests.client.stub import Stub, StubServer

# ruff: noqa: PT012 - what raises is the end of the run's own block

SPEND = {"model": "large-3", "tokens_in": 12, "tokens_out": 3}


def report(stub: Stub) -> dict[str, Any]:
    return dict(stub.seen("/report$")[-1].body)


def stream(turn: Turn, chunks: Iterator[str]) -> str:
    text = ""
    for chunk in chunks:
        turn.partial(chunk)
        turn.spend(model="large-3", tokens_in=12, tokens_out=len(text.split()) + 1)
        text += chunk
    return text


def test_a_turn_that_comes_to_its_end_tells_its_spend_and_no_output(client: Client, stub: Stub) -> None:
    with client.run("r") as run:
        turn = run.turn()
        assert turn.send(stream, turn, iter(["June ", "is ", "closed."])) == "June is closed."
    told = report(stub)
    assert (told["outcome"], told["spend"]) == ("applied", SPEND)
    assert not {"partial_output", "result"} & set(told)


def test_a_stop_in_the_middle_leaves_what_was_made_and_spent(client: Client, stub: Stub) -> None:
    def chunks() -> Iterator[str]:
        yield from ("June ", "is ")
        stub.stop()
        run.have(run.beating())
        yield "closed."
        raise AssertionError("it went on after the stop")

    with pytest.raises(StopRequested), client.run("r") as run:
        turn = run.turn()
        turn.send(stream, turn, chunks())
    told = report(stub)
    assert (told["outcome"], told["partial_output"]) == ("partial", "June is closed.")
    assert told["spend"] == {**SPEND, "tokens_out": 2}
    assert [step["status"] for step in stub.steps.values()] == ["PARTIAL"]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(TimeoutError(), "partial"), (NotApplied("no"), "partial"), (KeyboardInterrupt(), "partial")],
)
def test_whatever_cuts_it_off_after_the_first_piece(
    client: Client, stub: Stub, error: BaseException, outcome: str
) -> None:
    def fail(turn: Turn) -> None:
        turn.partial("\0half\ud800")
        raise error

    with pytest.raises(type(error)), client.run("r") as run:
        turn = run.turn()
        turn.send(fail, turn)
    assert (report(stub)["outcome"], report(stub)["partial_output"]) == (outcome, "\ufffdhalf?")


def test_before_the_first_piece_it_is_unknown_and_what_it_spent_is_told(client: Client, stub: Stub) -> None:
    def fail(turn: Turn) -> None:
        turn.spend(tokens_in=5, cost="0.01 USD")
        raise TimeoutError

    with pytest.raises(TimeoutError), client.run("r") as run:
        turn = run.turn()
        turn.send(fail, turn)
    told = report(stub)
    assert (told["outcome"], told["spend"]) == ("unknown", {"tokens_in": 5, "cost": "0.01 USD"})
    assert "partial_output" not in told


def test_of_a_long_output_the_first_part_is_told(client: Client, stub: Stub) -> None:
    def fail(turn: Turn) -> None:
        for _ in range(3):
            turn.partial("é" * (MOST // 4))
        raise TimeoutError

    with pytest.raises(TimeoutError), client.run("r") as run:
        turn = run.turn()
        turn.send(fail, turn)
    assert len(report(stub)["partial_output"].encode()) == MOST
    assert "the first 64 KiB" in report(stub)["detail"]


@pytest.mark.parametrize("spend", [{"tokens_in": -1}, {"tokens_out": 1.5}, {"tokens_in": True}])
def test_a_spend_that_is_no_number_is_refused_at_once(
    client: Client, stub: Stub, spend: dict[str, Any]
) -> None:
    with client.run("r") as run, pytest.raises(ValueError, match="whole number"):
        run.turn().spend(**spend)


async def test_in_asyncio_a_stop_or_a_cancellation_leaves_it_too(server: StubServer, stub: Stub) -> None:
    async def stream(turn: AsyncTurn, then: Any) -> None:
        turn.partial("June ")
        turn.spend(tokens_in=5)
        await then()
        turn.partial("is closed.")

    async with connected(server, False, heartbeat_s=60) as client:
        with pytest.raises(asyncio.CancelledError):
            async with client.run("a") as run:
                turn, begun = run.turn(), asyncio.Event()

                async def held() -> None:
                    begun.set()
                    await asyncio.sleep(60)

                task = asyncio.ensure_future(turn.send(stream, turn, held))
                await begun.wait()
                task.cancel()
                await task
    stub.status = "ACTIVE"
    async with connected(server, False, heartbeat_s=60) as client:
        with pytest.raises(StopRequested):
            async with client.run("b") as run:
                turn = run.turn()

                async def stopped() -> None:
                    stub.stop()
                    await run.had(run.beating())

                await turn.send(stream, turn, stopped)
    told = [c.body for c in stub.seen("/report$")]
    assert [(one["outcome"], one["partial_output"], one["spend"]) for one in told] == [
        ("partial", "June ", {"tokens_in": 5}),
        ("partial", "June is closed.", {"tokens_in": 5}),
    ]


# --- with the real server -----------------------------------------------------------------------------------


def test_the_server_keeps_what_a_turn_that_was_cut_off_left(site: Site) -> None:
    def fail(turn: Turn) -> None:
        turn.partial("June is")
        turn.spend(model="large-3", tokens_in=12, cost="0.01 USD")
        raise TimeoutError

    with site.client() as client, pytest.raises(TimeoutError), client.run("cut-off") as run:
        turn = run.turn()
        turn.send(fail, turn)
    (item,) = site.see(f"runs/{run.id}/turns")["items"]
    assert (item["partial_output"], item["tokens_in"], item["cost"]) == ("June is", 12, "0.01 USD")
    (step,) = site.see(f"runs/{run.id}/steps")["items"]
    assert step["status"] == "PARTIAL"


def test_a_retry_is_refused_on_the_workers_word_and_told_when_it_is_not_due(site: Site) -> None:
    def denied(key: str) -> None:
        raise NotApplied

    with site.client() as client, client.run("retry") as run:
        charge = site.effect(run, "retry:1")
        with pytest.raises(NotApplied):
            charge.send(denied, "retry:1")
        with pytest.raises(RetryRefused) as caught:
            charge.retry(delay_s=60)
        assert caught.value.problem["type"] == "/problems/retry-unverified"
        site.database.rows("UPDATE effects_effect SET ground = 'looked up' WHERE key = 'retry:1'")
        assert charge.retry(delay_s=60, max_tries=3)["status"] == "RETRY_WAIT"
        for _ in range(2):
            with pytest.raises(RetryNotDue):
                charge.send(site.charge, "retry:1")
        site.database.rows("UPDATE runs_step SET status = 'PENDING', due_at = NULL WHERE key = 'retry:1'")
        charge.send(site.charge, "retry:1")
    assert site.settlement(run, "retry:1") == "CONFIRMED"
    assert site.bank.ledger.sends("retry:1") == 1
