"""The async client and the real server, on each database."""

# ruff: noqa: PT012 - what raises is the end of the run's own block

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import httpx2
import pytest
from allstop import StopRequested, http_outcome
from allstop.aio import AsyncClient, AsyncRun

from tests.client.aworld import until
from tests.client.cutting import Cutting
from tests.client.site import Site


@pytest.fixture
async def client(site: Site) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(site.web.url, site.token, worker="w-1", heartbeat_s=0.2) as client:
        yield client


async def charge(site: Site, run: AsyncRun, key: str) -> httpx2.Response:
    effect = run.effect(key=key, kind="bank.charge", none_because="a test", outcome_of=http_outcome)
    async with httpx2.AsyncClient() as http:
        answer: httpx2.Response = await effect.send(
            http.post, f"{site.bank.url}/charges", json={}, headers={"Idempotency-Key": key}
        )
    return answer


async def test_a_run_with_a_model_turn_a_step_and_effects_completes(site: Site, client: AsyncClient) -> None:
    async with client.run("aio:whole") as run:
        assert await run.model_turn(asyncio.sleep, 0, "a draft") == "a draft"
        assert await run.in_thread(len, "abc") == 3
        await charge(site, run, "aio:1")
        async with run.step("invoice", "Invoice") as step:
            effect = step.effect(key="aio:2", kind="bank.charge", compensation="bank.refund")
            assert (await effect.call_in_thread(site.charge, "aio:2")).status_code == 201
    assert site.see(f"runs/{run.id}")["status"] == "COMPLETED"
    assert {s["status"] for s in site.see(f"runs/{run.id}/steps")["items"]} == {"SUCCEEDED"}
    assert site.bank.ledger.sends("aio:1") == site.bank.ledger.sends("aio:2") == 1


async def test_a_stop_cancels_it_where_it_waits_and_is_confirmed_and_drained(
    site: Site, client: AsyncClient
) -> None:
    cleaned: list[str] = []
    with pytest.raises(StopRequested):
        async with client.run("aio:stop") as run:
            await charge(site, run, "aio:stop")
            await client.request_stop(run_id=run.id)
            try:
                await asyncio.sleep(60)
            finally:
                cleaned.append("done")
    runs = "SELECT id FROM runs_run WHERE key = 'aio:stop'"
    sql = f"SELECT confirmed_version FROM runs_worker WHERE run_id = ({runs})"
    assert (cleaned, site.database.value(sql)) == (["done"], 2)
    await until(lambda: site.see(f"runs/{run.id}")["status"] == "CANCELLED", within_s=30)


@pytest.mark.invariant("I8")
async def test_cancelled_while_the_gate_answers_its_permit_is_given_back_at_once(
    site: Site, client: AsyncClient
) -> None:
    """Not left to its lease of half a minute: the run completes directly after it."""
    async with client.run("aio:back") as run:
        sending = asyncio.create_task(charge(site, run, "aio:back"))
        turning = asyncio.create_task(run.model_turn(asyncio.sleep, 0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        sending.cancel()
        turning.cancel()
        await asyncio.wait({sending, turning})
        assert sending.cancelled()
    assert site.see(f"runs/{run.id}")["status"] == "COMPLETED"
    assert set(site.permits("aio:back")) <= {"NOT_SENT"}
    assert site.bank.ledger.sends("aio:back") == 0


@pytest.mark.invariant("I8")
@pytest.mark.parametrize("lost", [r"/effects$", r"/permits/prm_\w+\?", r"/report$", r"/finish$"])
async def test_a_lost_answer_to_any_call_changes_nothing(site: Site, lost: str) -> None:
    key = "aio:lost:" + "".join(filter(str.isalpha, lost))
    with Cutting(site.web.url) as proxy:
        async with AsyncClient(proxy.url, site.token, heartbeat_s=60) as client:
            proxy.cut(lost)
            async with client.run(key) as run, run.step("s") as step:
                effect = step.effect(key=key, kind="bank.charge", none_because="a test")
                await effect.call_in_thread(site.charge, key)
            assert proxy.cuts == 1
    assert site.permits(key) == ["REPORTED"]
    assert site.bank.ledger.sends(key) == 1
    assert site.see(f"runs/{run.id}")["status"] == "COMPLETED"


async def test_a_tool_in_a_thread_that_outlives_the_stop_is_unknown_and_settled_by_its_late_report(
    site: Site, client: AsyncClient
) -> None:
    begun, go = threading.Event(), threading.Event()

    def tool() -> httpx2.Response:
        begun.set()
        assert go.wait(20)
        return site.charge("aio:thread")

    async def press(run: AsyncRun) -> None:
        await until(begun.is_set)
        await client.request_stop(run_id=run.id, mode="abandon")

    with pytest.raises(StopRequested):
        async with client.run("aio:thread") as run:
            pressing = asyncio.create_task(press(run))
            effect = run.effect(key="aio:thread", kind="opaque", none_because="a test")
            await effect.call_in_thread(tool)
    await pressing
    seen = site.see(f"runs/{run.id}/effects")["items"][0]
    assert (seen["settlement"], site.bank.ledger.sends("aio:thread")) == ("UNKNOWN", 0)
    go.set()
    await until(lambda: site.see(f"runs/{run.id}/effects")["items"][0]["settlement"] == "CONFIRMED")
    assert site.bank.ledger.sends("aio:thread") == 1
    lines = [line["kind"] for line in site.see(f"runs/{run.id}/evidence?limit=200")["items"]]
    assert "permit.reported_late" in lines
    assert site.see(f"runs/{run.id}")["status"] == "ABANDONED"


async def test_at_a_stop_declared_cleanups_are_carried_out_and_drained(
    site: Site, client: AsyncClient
) -> None:
    done: list[str] = []

    async def tidy(what: str) -> None:
        done.append(what)

    with pytest.raises(StopRequested):
        async with client.run("aio:tidy") as run:
            await run.cleanup("files", tidy, "files")
            await run.cleanup("lock", tidy, "lock", op_class="read")
            await client.request_stop(run_id=run.id)
            await asyncio.sleep(60)
    assert done == ["lock", "files"]
    assert {s["status"] for s in site.see(f"runs/{run.id}/steps")["items"]} == {"SUCCEEDED"}
    await until(lambda: site.see(f"runs/{run.id}")["status"] == "CANCELLED", within_s=30)


async def test_without_a_stop_no_cleanup_is_made_and_a_message_is_handed_over_once(
    site: Site, client: AsyncClient
) -> None:
    done: list[str] = []

    async def note(what: str) -> None:
        done.append(what)

    async with client.run("aio:tell") as run:
        await run.cleanup("files", note, "files")
        for _ in range(2):
            await run.hand_over(note, "told", key="tell:1", target="#finance")
    assert done == ["told"]
    assert site.see(f"runs/{run.id}")["status"] == "COMPLETED"
    assert [row["state"] for row in site.see(f"runs/{run.id}/deliveries")["items"]] == ["HANDED_OVER"]
