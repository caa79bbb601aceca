"""The client and the real server, on each database: what the stub promises is what the server does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from allstop import (
    Client,
    GateUnavailable,
    MustWait,
    NotApplied,
    RunEnded,
    StepEnded,
    StopRequested,
)

from tests.client.cutting import Cutting
from tests.client.site import Site, until

# ruff: noqa: PT012 - what raises is the end of the run's own block

AGENT_PATH = str(Path(__file__).parents[2] / "client")


@pytest.fixture
def client(site: Site) -> Iterator[Client]:
    with site.client() as client:
        yield client


def test_a_run_with_a_model_turn_a_step_and_effects_completes(site: Site, client: Client) -> None:
    with client.run("whole", name="Whole", session="nightly", labels={"team": "finance"}) as run:
        assert run.model_turn(lambda: "a draft") == "a draft"
        site.effect(run, "whole:1").send(site.charge, "whole:1")
        with run.step("invoice", "Invoice") as step:
            step.read(lambda: None)
            site_effect = step.effect(key="whole:2", kind="bank.charge", compensation="bank.refund")
            site_effect.send(site.charge, "whole:2")
    seen = site.see(f"runs/{run.id}")
    assert (seen["status"], seen["outcome"]) == ("COMPLETED", "completed")
    assert {s["status"] for s in site.see(f"runs/{run.id}/steps")["items"]} == {"SUCCEEDED"}
    assert site.bank.ledger.sends("whole:1") == site.bank.ledger.sends("whole:2") == 1
    with (
        pytest.raises(RunEnded),
        client.run("whole", name="Whole", session="nightly", labels={"team": "finance"}),
    ):
        pass


def test_a_settled_key_gives_the_stored_result(site: Site, client: Client) -> None:
    with client.run("settled") as run:
        first = site.effect(run, "settled:1").send(site.charge, "settled:1")
        again = site.effect(run, "settled:1")
        assert again.send(site.charge, "settled:1") == first.json()
        assert again.skipped
    assert site.bank.ledger.sends("settled:1") == 1


def test_what_was_not_applied_may_be_sent_again_under_the_same_key(site: Site, client: Client) -> None:
    site.bank.fault("answer", key="again:1", status=402)
    with client.run("again") as run:
        assert site.effect(run, "again:1").send(site.charge, "again:1").status_code == 402
        assert site.settlement(run, "again:1") == "NOT_APPLIED"
        site.effect(run, "again:1").send(site.charge, "again:1")
        assert site.settlement(run, "again:1") == "CONFIRMED"
    assert site.bank.ledger.applied("again:1") == 1


def test_an_exception_fails_the_run_and_leaves_the_effect_unknown(site: Site, client: Client) -> None:
    with pytest.raises(ZeroDivisionError), client.run("raises") as run:
        run.effect(key="raises:1", kind="opaque", none_because="a test").send(lambda: 1 / 0)
    assert site.see(f"runs/{run.id}")["status"] == "FAILED"
    assert site.settlement(run, "raises:1") == "UNKNOWN"


@pytest.mark.invariant("I7")
def test_a_stop_between_permit_and_look_sends_nothing(
    site: Site, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StopRequested), client.run("between") as run:
        ask = run.ask_gate

        def ask_then_stop(path: str, body: dict[str, Any]) -> Any:
            answer = ask(path, body)
            client.request_stop(run_id=run.id, reason="between")
            return answer

        monkeypatch.setattr(run, "ask_gate", ask_then_stop)
        site.effect(run, "between:1").send(site.charge, "between:1")
    assert site.permits("between:1") == ["NOT_SENT"]
    assert site.bank.ledger.sends("between:1") == 0
    seen = until(lambda: (r := site.see(f"runs/{run.id}"))["status"] == "CANCELLED" and r)
    assert seen["outcome"] == "stopped after safe settlement"


def test_a_stop_during_a_call_lists_it_and_refuses_the_next(site: Site, client: Client) -> None:
    stops: list[Any] = []

    def charge_and_be_stopped() -> httpx2.Response:
        stops.append(client.request_stop(run_id=run.id))
        return site.charge("during:1")

    with pytest.raises(StopRequested) as stopped, client.run("during") as run:
        site.effect(run, "during:1").send(charge_and_be_stopped)
        site.effect(run, "during:2").send(site.charge, "during:2")
    assert [f["effect_key"] for f in stops[0]["in_flight"]] == ["during:1"]
    assert (stopped.value.problem["carried_version"], stopped.value.current_version) == (1, 2)
    assert site.bank.ledger.sends("during:2") == 0
    seen = until(lambda: (r := site.see(f"runs/{run.id}"))["status"] == "CANCELLED" and r)
    assert seen["outcome"] == "partially completed"


def test_the_heartbeat_hears_of_a_stop_and_the_worker_confirms_it(site: Site, client: Client) -> None:
    with pytest.raises(StopRequested), client.run("heard") as run:
        client.request_stop(run_id=run.id)
        until(lambda: run.checkpoint(), within_s=20)
    runs = "SELECT id FROM runs_run WHERE key = 'heard'"
    sql = f"SELECT confirmed_version FROM runs_worker WHERE run_id = ({runs})"
    assert site.database.value(sql) == 2


def test_a_stop_that_waits_for_its_run_lets_nothing_begin(site: Site, client: Client) -> None:
    assert client.request_stop(run_key="waiting")["waiting"] is True
    with pytest.raises(StopRequested), client.run("waiting"):
        pytest.fail("the run began")


@pytest.mark.invariant("I8")
@pytest.mark.parametrize(
    "lost",
    [r"/runs$", r"/effects$", r"/permits/prm_\w+\?", r"/report$", r"/complete$", r"/steps$", r"/finish$"],
)
def test_a_lost_answer_to_any_call_changes_nothing(site: Site, lost: str) -> None:
    key = "lost:" + "".join(filter(str.isalpha, lost))
    with Cutting(site.web.url) as proxy, site.client(proxy.url, heartbeat_s=60) as client:
        proxy.cut(lost)
        with client.run(key) as run, run.step("s") as step:
            step.effect(key=key, kind="bank.charge", none_because="a test").send(site.charge, key)
        assert proxy.cuts == 1
    assert site.permits(key) == ["REPORTED"]
    assert site.bank.ledger.sends(key) == 1
    assert site.see(f"runs/{run.id}")["status"] == "COMPLETED"


def test_an_unknown_must_wait_until_a_look_up_settles_it(site: Site, client: Client) -> None:
    site.bank.fault("drop_after", key="unknown:1")
    site.bank.fault("answer", key="unknown:1", method="GET", status=503, times=2)
    with client.run("unknown") as run:
        with pytest.raises(httpx2.RequestError):
            site.effect(run, "unknown:1").send(site.charge, "unknown:1")
        with pytest.raises(MustWait):
            site.effect(run, "unknown:1").send(site.charge, "unknown:1")
        until(lambda: site.settlement(run, "unknown:1") == "CONFIRMED")
        again = site.effect(run, "unknown:1")
        again.send(site.charge, "unknown:1")
        assert again.skipped
    assert site.bank.ledger.sends("unknown:1") == 1


def test_a_refused_connection_is_not_applied(site: Site, client: Client) -> None:
    with client.run("refused") as run, pytest.raises(httpx2.ConnectError):
        site.effect(run, "refused:1").send(httpx2.post, "http://127.0.0.1:9/")
    assert site.settlement(run, "refused:1") == "NOT_APPLIED"


def test_not_applied_is_the_callers_word(site: Site, client: Client) -> None:
    def decline() -> None:
        raise NotApplied("declined")

    with client.run("declined") as run, pytest.raises(NotApplied):
        site.effect(run, "declined:1").send(decline)
    assert site.settlement(run, "declined:1") == "NOT_APPLIED"


def test_a_step_has_one_holder(site: Site, client: Client) -> None:
    with client.run("holder") as run, run.step("s") as step:
        with pytest.raises(StepEnded, match="CLAIMED"), run.step("s"):
            pass
        step.read(lambda: None)


def test_a_foreign_token_is_no_gate(site: Site) -> None:
    with (
        Client(site.web.url, "als_00000000_00_00000000", give_up_s=1) as client,
        pytest.raises(GateUnavailable, match="token"),
        client.run("foreign"),
    ):
        pass


@pytest.mark.kill
def test_a_frozen_server_is_no_gate_and_nothing_is_sent(site: Site) -> None:
    with site.client(timeout_s=0.5, give_up_s=1.5, heartbeat_s=60) as client, client.run("frozen") as run:
        site.web.freeze()
        try:
            with pytest.raises(GateUnavailable):
                site.effect(run, "frozen:1").send(site.charge, "frozen:1")
        finally:
            site.web.thaw()
        assert site.bank.ledger.sends("frozen:1") == 0
        site.effect(run, "frozen:1").send(site.charge, "frozen:1")
    assert site.bank.ledger.sends("frozen:1") == 1


AGENT = """
import sys, httpx2
from allstop import Client
bank = sys.argv[1]
with Client(lease_s=2, heartbeat_s=60) as client, client.run("killed") as run:
    effect = run.effect(key="killed:1", kind="bank.charge", none_because="a test")
    effect.send(httpx2.post, bank + "/charges", json={}, headers={"Idempotency-Key": effect.key}, timeout=60)
"""


@pytest.mark.kill
@pytest.mark.parametrize(("where", "truth"), [("hold_after", "CONFIRMED"), ("hold_before", "UNKNOWN")])
def test_an_agent_killed_in_its_call_leaves_an_unknown_that_only_evidence_settles(
    site: Site, client: Client, where: str, truth: str
) -> None:
    """Applied before the kill: a look-up finds it. Not applied: absence alone proves nothing."""
    key = f"killed:{where}"
    site.bank.fault(where, key=key)
    words = {"ALLSTOP_URL": site.web.url, "ALLSTOP_TOKEN": site.token, "PYTHONPATH": AGENT_PATH}
    source = AGENT.replace('"killed"', f'"{key}"').replace("killed:1", key)
    agent = subprocess.Popen([sys.executable, "-c", source, site.bank.url], env={**os.environ, **words})
    try:
        site.bank.ledger.wait_for("held", key)
    finally:
        agent.kill()
    assert agent.wait(10) == -9
    site.bank.fault("absent", method="GET", key=key, times=0 if where == "hold_before" else 1)
    with client.run(key) as run:
        until(lambda: site.settlement(run, key) == "UNKNOWN")
        site.bank.release()
        if truth == "CONFIRMED":
            until(lambda: site.settlement(run, key) == truth)
        else:
            site.bank.ledger.wait_for("request", key, count=4)
        assert site.settlement(run, key) == truth
        run._ended = True
    assert site.bank.ledger.sends(key) == 1


def test_an_agent_attaches_again_after_a_resume_and_sends_no_settled_key_twice(
    site: Site, client: Client
) -> None:
    held: list[str | None] = []

    def work() -> str:
        with client.run("night") as run:
            site.effect(run, "night:1").send(site.charge, "night:1")
            if not held:
                client.request_stop(run_id=run.id, mode="pause")
            site.effect(run, "night:2").send(site.charge, "night:2")
        return run.id

    with pytest.raises(StopRequested) as caught:
        work()
    held.append(caught.value.run_status)
    assert caught.value.may_resume
    with pytest.raises(StopRequested):
        work()  # refused for now: attaching asks nobody to go on
    run = site.see("runs?q=night")["items"][0]
    until(lambda: site.see(f"runs/{run['id']}")["status"] == "PAUSED")
    decision = {"reason": "morning", "seen_version": 2}
    path, headers = (
        f"{site.web.url}/api/v1/runs/{run['id']}/resume",
        {"Authorization": f"Bearer {site.token}"},
    )
    assert httpx2.post(path, json=decision, headers=headers, timeout=20).status_code == 200
    assert site.see(f"runs/{work()}")["status"] == "COMPLETED"
    assert [site.bank.ledger.sends(f"night:{n}") for n in (1, 2)] == [1, 1]


# --- Cleanup, children, receipts --------------------------------------------------------------------------


def test_declared_cleanup_is_carried_out_at_a_stop_and_waited_for(site: Site, client: Client) -> None:
    done: list[str] = []
    with pytest.raises(StopRequested), client.run("tidy") as run:
        run.cleanup("folder", done.append, "folder", name="Remove the folder")
        run.cleanup("lock", done.append, "lock", op_class="read")
        client.request_stop(run_id=run.id)
        run.checkpoint(ask=True)
    assert done == ["lock", "folder"]
    steps = {s["key"]: s for s in site.see(f"runs/{run.id}/steps")["items"]}
    assert {key: (s["status"], s["cleanup"]) for key, s in steps.items()} == {
        "folder": ("SUCCEEDED", True),
        "lock": ("SUCCEEDED", True),
    }
    assert not steps["folder"]["reported_after_stop"]
    seen = until(lambda: (r := site.see(f"runs/{run.id}"))["status"] == "CANCELLED" and r)
    assert seen["outcome"] == "partially completed"
    told = site.see(f"runs/{run.id}/workers")
    assert (told["confirmed"], told["total"]) == (1, 1)
    assert {r["boundary"]: r["version"] for r in told["items"][0]["receipts"]}["checkpoint"] == 2


def test_cleanup_that_is_not_needed_is_given_back_and_one_that_fails_hides_no_stop(
    site: Site, client: Client
) -> None:
    with client.run("clean") as run:
        run.cleanup("folder", lambda: pytest.fail("nobody stopped it"))
    assert site.see(f"runs/{run.id}")["status"] == "COMPLETED"
    with pytest.raises(StopRequested), client.run("broken") as run:
        run.cleanup("folder", lambda: 1 / 0)
        client.request_stop(run_id=run.id)
        run.checkpoint(ask=True)
    assert site.settlement(run, "cleanup:folder") == "UNKNOWN"


def test_a_stop_of_the_parent_is_heard_by_its_child(site: Site, client: Client) -> None:
    with pytest.raises(StopRequested), client.run("parent") as parent:
        with pytest.raises(StopRequested), client.run("child", parent=parent.id) as child:
            stop = client.request_stop(run_id=parent.id)
            child.checkpoint(ask=True)
        assert stop["children"]["reached"] == 1
        parent.checkpoint(ask=True)
    with pytest.raises(StopRequested), client.run("late", parent=parent.id):
        pytest.fail("it is born stopping")
