"""The client and a gate that asks people first: it waits as long as it is told, and leaves the run open."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from allstop import Client, NotApproved, WaitingForApproval

from tests.client.site import Site


@pytest.fixture
def client(site: Site) -> Iterator[Client]:
    with site.client() as client:
        yield client


def test_who_does_not_wait_is_told_and_the_run_and_its_step_stay_open(site: Site, client: Client) -> None:
    with pytest.raises(WaitingForApproval) as told, client.run("asks") as run, run.step("pay") as step:
        step.effect(key="asks:1", kind="bank.charge", none_because="a test", approval=2).send(lambda: 1 / 0)
    assert (told.value.review["needed"], told.value.effect["settlement"]) == (2, "DECLARED")
    assert site.see(f"runs/{run.id}")["status"] == "ACTIVE"
    assert [s["status"] for s in site.see(f"runs/{run.id}/steps")["items"]] == ["WAITING_APPROVAL"]
    client.request_stop(run_id=run.id)


def test_who_waits_sends_after_a_yes_and_goes_on_without_what_got_a_no(
    site: Site, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allstop.effect.ASK_AGAIN_S", 0.1)
    reviewer = site.processes.start("reviewer", [sys.executable, "-m", "tests.client.decide", "3"])
    asks: dict[str, Any] = {"kind": "bank.charge", "none_because": "a test", "approval": True, "wait_s": 30}
    with client.run("waits") as run:
        with run.step("pay") as step:
            step.effect(key="waits:0", kind="bank.charge", none_because="a test").send(site.charge, "waits:0")
            step.effect(key="waits:1", **asks).send(site.charge, "waits:1")
        run.effect(key="waits:2", **asks).send(site.charge, "waits:2")
        with pytest.raises(NotApproved, match="did not approve"):
            run.effect(key="waits:no", **asks).send(site.charge, "waits:no")
    assert reviewer.popen.wait(10) == 0, reviewer.said()
    assert site.see(f"runs/{run.id}")["status"] == "COMPLETED"
    found = {s["key"]: s["status"] for s in site.see(f"runs/{run.id}/steps")["items"]}
    assert found == {"pay": "SUCCEEDED", "waits:2": "SUCCEEDED", "waits:no": "WITHHELD"}
    assert [site.bank.ledger.sends(f"waits:{n}") for n in ("0", "1", "2", "no")] == [1, 1, 1, 0]
