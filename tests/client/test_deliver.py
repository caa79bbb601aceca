"""A run's own messages through the client: queued for Allstop, or handed over by the agent itself."""

from __future__ import annotations

import pytest
from allstop import MustWait, Outcome, StopRequested

from tests.client.site import Site

# ruff: noqa: PT012 - what raises is the end of the run's own block


def test_an_agent_hands_a_message_over_once_and_has_another_sent(site: Site) -> None:
    sent: list[str] = []
    with site.client() as client, client.run("tell-1") as run:
        for _ in range(2):
            run.hand_over(sent.append, "paid", key="tell:1", target="#finance", title="Invoice 7 is paid")
        hook = run.deliver("webhook", f"{site.bank.url}/hooks", key="hook:1", body="{}")
    assert sent == ["paid"]
    rows = site.see(f"runs/{run.id}/deliveries")["items"]
    assert {row["key"]: row["channel"] for row in rows} == {"tell:1": "outside", "hook:1": "webhook"}
    assert (rows[-1]["state"], hook["state"]) == ("HANDED_OVER", "QUEUED")


def test_a_message_is_not_handed_over_after_a_stop_nor_while_its_outcome_is_unknown(site: Site) -> None:
    sent: list[str] = []
    with site.client() as client, pytest.raises(StopRequested), client.run("tell-2") as run:
        unknown = lambda _: Outcome("unknown")  # noqa: E731
        run.hand_over(sent.append, "first", key="tell:1", target="#finance", outcome_of=unknown)
        with pytest.raises(MustWait):
            run.hand_over(sent.append, "again", key="tell:1", target="#finance")
        client.request_stop(run_id=run.id)
        run.hand_over(sent.append, "late", key="tell:2", target="#finance")
    assert sent == ["first"]
    states = [row["state"] for row in site.see(f"runs/{run.id}/deliveries")["items"]]
    assert states == ["UNKNOWN"]
