"""A running server, a bank and an agent's token: what the client meets in the real world."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx2
from allstop import Client, Effect, Run, http_outcome

from tests.databases import Database
from tests.processes import Process, Processes
from tests.provider import Provider

KIND = {
    "class": "external_write",
    "provider": "outside",
    "commits": "When the bank books it.",
    "tells_apart": ["booked", "not found"],
    "key": "The effect key.",
    "compensation": "bank.refund",
    "durable_before_pause": "The key.",
    "when_unknown": "It is looked up.",
    "check_every_s": [1],
    "settle_window_s": 30,
}


@dataclass
class Site:
    """A running server, a bank whose look-up it may call, and an agent's token."""

    processes: Processes
    database: Database
    web: Process
    bank: Provider
    token: str

    def client(self, url: str = "", **settings: Any) -> Client:
        defaults = {"worker": "w-1", "heartbeat_s": 0.3, "timeout_s": 5}
        return Client(url or self.web.url, self.token, **{**defaults, **settings})

    def see(self, path: str) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = httpx2.get(f"{self.web.url}/api/v1/{path}", headers=headers, timeout=20)
        answer.raise_for_status()
        return answer.json()

    def settlement(self, run: Run, key: str) -> str:
        effects = self.see(f"runs/{run.id}/effects")["items"]
        return next(str(e["settlement"]) for e in effects if e["key"] == key)

    def permits(self, key: str) -> list[str]:
        rows = self.database.rows(f"SELECT state FROM runs_permit WHERE effect_key = '{key}' ORDER BY id")
        return [state for (state,) in rows]

    def effect(self, run: Run, key: str) -> Effect:
        return run.effect(key=key, kind="bank.charge", none_because="a test", outcome_of=http_outcome)

    def charge(self, key: str) -> httpx2.Response:
        return httpx2.post(f"{self.bank.url}/charges", json={}, headers={"Idempotency-Key": key}, timeout=60)


def until(true: Callable[[], Any], within_s: float = 30) -> Any:
    end = time.monotonic() + within_s
    while not (found := true()):
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.05)
    return found
