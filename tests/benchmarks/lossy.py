"""A provider that loses answers: what is told of each effect, beside what the provider's own ledger holds.

Seeded faults at three rates fall on sends (answer lost, cut before, part of a batch, 429, 500, a page instead
of data) and on look-ups (404 though it is there, somebody else's object, a page, 429, cut). The same faults
meet three ways of sending: a loop that repeats without a key (the control: it has to make duplicates), a loop
that repeats with a key, and Allstop, at a provider that knows keys and at one that does not.

Published for verified tool calls in a simulation (arXiv 2608.02645): duplicates 20 -> 0, 44 -> 16 and
72 -> 20 %. Those are other faults at other rates: they stand beside ours, not against them.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx2
from django.conf import settings
from django.db import connection, connections

from effects import executor, intents, lookup, queue, reconcile
from effects.models import Effect, Kind, Settlement
from runs import drain as due
from runs.store import database_time, new_id
from tests.provider import Fault, Ledger, Line, Provider, State

from .figures import Figure, percentile
from .world import World

RATES = {"low": 0.05, "medium": 0.2, "high": 0.4}
PUBLISHED = {"low": "20 -> 0 %", "medium": "44 -> 16 %", "high": "72 -> 20 %"}
SEED = 2608
N = 100  # effects of each way and rate
AT_ONCE = 8
TRIES = 3
CHECK_FOR_S, WITHIN_S = 20, 40.0
PAGE = {"text": "<!doctype html><title>Sign in</title>", "content_type": "text/html"}
ON_SENDS: list[dict[str, Any]] = [
    {"do": "drop_after"},
    {"do": "drop_before"},
    {"do": "partial"},
    {"do": "answer", "status": 429},
    {"do": "answer", "status": 500},
    {"do": "answer_after", "status": 502, **PAGE},
]
ON_LOOK_UPS: list[dict[str, Any]] = [
    {"do": "absent"},
    {"do": "wrong"},
    {"do": "answer", "status": 200, **PAGE},
    {"do": "answer", "status": 429},
    {"do": "drop_before"},
]
HAPPENED = (Settlement.CONFIRMED, Settlement.PARTIAL)
DID_NOT = (Settlement.NOT_APPLIED, Settlement.NOT_STARTED)


class Lossy(State):
    """The provider's mind, with faults drawn from a seed: those of a key don't depend on who asks when."""

    rate, seed, keyless = 0.0, SEED, False

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.asked: Counter[tuple[str, str | None]] = Counter()
        self.changed: Counter[str | None] = Counter()

    def take(self, method: str, key: str | None) -> dict[str, Fault]:
        with self.lock:
            self.asked[method, key] += 1
            draw = random.Random(f"{self.seed}:{method}:{key}:{self.asked[method, key]}")
        if draw.random() >= self.rate:
            return {}
        fault = Fault(**draw.choice(ON_SENDS if method == "POST" else ON_LOOK_UPS))
        return {fault.do: fault}

    def apply(self, key: str | None, body: Any, faults: dict[str, Fault]) -> tuple[int, Line]:
        with self.lock:
            if self.keyless:
                self.objects.pop(str(key), None)
            status, made = super().apply(key, body, faults)
            self.changed[key] += status == 201
        return status, made


@dataclass
class Bank:
    """A lossy provider and what is really there."""

    provider: Provider
    state: Lossy

    def applied(self, key: str) -> int:
        """How often the world was changed for this key."""
        return self.state.changed[key]

    def twice(self, keys: list[str]) -> int:
        return sum(self.applied(key) > 1 for key in keys)


def bank(folder: Path, rate: float, *, keyless: bool = False) -> Bank:
    """A lossy provider, not yet started."""
    provider = Provider(folder / f"{new_id('ledger')}.jsonl")
    state = Lossy(provider.ledger)
    state.rate, state.keyless = rate, keyless
    provider.state = provider._server.state = state
    return Bank(provider, state)


# three ways -----------------------------------------------------------------------------------------------


@dataclass
class Came:
    """What one way came to. `said`: key -> happened · did not · unknown; `ages`: seconds spent unknown."""

    keys: list[str]
    said: dict[str, str]
    twice: int
    false_no: int
    false_yes: int
    unfinished: int = 0
    ages: list[float] = field(default_factory=list)

    @property
    def known(self) -> int:
        return sum(word != "unknown" for word in self.said.values())


def judge(at: Bank, said: dict[str, str], ages: list[float]) -> Came:
    """What was said, beside the ledger: a thing that is there and was denied, and the other way round."""
    keys = [*said]
    there = {key for key in keys if at.applied(key)}
    return Came(
        keys,
        said,
        at.twice(keys),
        sum(said[key] == "did not" and key in there for key in keys),
        sum(said[key] == "happened" and key not in there for key in keys),
        sum(word == "unknown" for word in said.values()),
        ages,
    )


def loop(at: Bank, n: int) -> Came:
    """Send, and on anything but a 2xx send again, as a plain client does: three tries, no question."""
    said: dict[str, str] = {}

    def one(number: int) -> None:
        key = f"pay:{number}"
        said[key] = "happened" if any(_sent(client, key) for _ in range(TRIES)) else "did not"

    with (
        httpx2.Client(base_url=at.provider.url, trust_env=False, timeout=5) as client,
        ThreadPoolExecutor(AT_ONCE) as threads,
    ):
        list(threads.map(one, range(n)))
    return judge(at, said, [])


def _sent(client: httpx2.Client, key: str) -> bool:
    try:
        return client.post("/payments", content=BODY, headers={"Idempotency-Key": key}).is_success
    except httpx2.HTTPError:
        return False


BODY = json.dumps({"items": ["a", "b"]}).encode()


def allstop(at: Bank, n: int, *, keyless: bool = False) -> Came:
    """The same by our executor and its look-ups: sent again only after a look-up that proves absence."""
    world = World.make()
    before = settings.ALLSTOP_OUTBOUND_ORIGINS
    settings.ALLSTOP_OUTBOUND_ORIGINS = [*before, at.provider.url]
    try:
        _kind(world, at.provider.url)
        effects = _declared(world, n)
        _work(effects)
    finally:
        settings.ALLSTOP_OUTBOUND_ORIGINS = before
    rows = list(Effect.objects.filter(pk__in=effects))
    said = {row.key: _word(row) for row in rows}
    return judge(at, said, [age for row in rows if (age := _age(row)) is not None])


def _kind(world: World, url: str) -> None:
    six = ("commits", "idempotency", "compensation", "durable_before_pause", "when_unknown")
    lookup_at = {
        "url": f"{url}/payments?key={{key}}",
        "key_path": "key",
        "partial_path": "failed",
        "items": "failed",
    }
    Kind.objects.create(
        workspace=world.workspace,
        name="bench.pay",
        provider="http",
        op_class="external_write",
        send={"url": f"{url}/payments"},
        lookup=lookup_at,
        settle_window_s=3,
        check_every_s=[1],
        check_for_s=CHECK_FOR_S,
        retry_after_s=[1, 1],
        **dict.fromkeys(six, "said"),
    )


def _declared(world: World, n: int) -> list[str]:
    plan = intents.plan_bytes(none_because="a benchmark")
    found: list[str] = []
    for start in range(0, n, 10):  # ten to a run
        run = world.run()
        for number in range(start, min(n, start + 10)):
            key = f"pay:{number}"
            ask = world.ask(run.pk)
            told = intents.declare(_of_step(ask, key), intents.Intention(key, "bench.pay", BODY, plan))
            assert isinstance(told, Effect)
            found.append(told.pk)
    return found


def _of_step(ask: Any, key: str) -> Any:
    return replace(ask, step_key=key)


def _work(effects: list[str]) -> None:
    """Until nothing is open, as worker and sweep do it; no longer than WITHIN_S."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(_with_connection(executor.execute), effects))
        end = time.monotonic() + WITHIN_S
        while time.monotonic() < end and _open(effects):
            list(threads.map(_with_connection(lookup.check_effect), reconcile.due(500)))
            for step_id in queue.retries_due(500):
                queue.fall_due(step_id)
            waiting = Effect.objects.filter(pk__in=effects, queued_at__isnull=False)
            again = waiting.filter(settlement__in=queue.TO_SEND).exclude(step__status="RETRY_WAIT")
            list(threads.map(_with_connection(executor.execute), again.values_list("pk", flat=True)))
            due.runs_due(10)
            time.sleep(0.2)


def _open(effects: list[str]) -> bool:
    """Whether something of it may still change by itself."""
    mine = Effect.objects.filter(pk__in=effects)
    return (
        mine.filter(next_check_at__isnull=False).exists()
        or mine.filter(settlement=Settlement.DISPATCHED).exists()
        or mine.filter(step__status__in=("RETRY_WAIT", "PENDING", "CLAIMED")).exists()
    )


def _with_connection(work: Callable[[str], Any]) -> Callable[[str], Any]:
    def do(one: str) -> Any:
        try:
            return work(one)
        finally:
            if connection.vendor == "postgresql":
                connections.close_all()

    return do


def _word(row: Effect) -> str:
    if row.settlement in HAPPENED:
        return "happened"
    return "did not" if row.settlement in DID_NOT else "unknown"


def _age(row: Effect) -> float | None:
    """Seconds for which it was unknown; of one that is open still, until now."""
    if row.unknown_since is None:
        return None
    end = database_time() if row.settlement == Settlement.UNKNOWN else row.settled_at
    return (end - row.unknown_since).total_seconds() if end else None


# the figures ----------------------------------------------------------------------------------------------


def measure(scale: int = 1) -> Iterator[Figure]:
    """Yields the figures of this database, for each rate."""
    n = N * scale
    with tempfile.TemporaryDirectory() as folder:
        for name, rate in RATES.items():
            yield from _rate(Path(folder), name, rate, n)


def _rate(folder: Path, name: str, rate: float, n: int) -> Iterator[Figure]:
    blind = _on(bank(folder, rate, keyless=True), lambda at: loop(at, n))
    keyed = _on(bank(folder, rate), lambda at: loop(at, n))
    ours = _on(bank(folder, rate), lambda at: allstop(at, n))
    without = _on(bank(folder, rate, keyless=True), lambda at: allstop(at, n))
    detail = {"seed": SEED, "rate": rate, "published": PUBLISHED[name]}
    yield _figure(
        f"{name}: loop without keys, duplicates",
        _share(n, blind.twice),
        n,
        "control: > 0",
        blind.twice > 0,
        detail,
    )
    yield _figure(
        f"{name}: loop with keys, denied though there", _share(n, keyed.false_no), n, "", None, detail
    )
    for label, came in (("", ours), (" (no keys)", without)):
        yield _figure(
            f"{name}: false not applied{label}", came.false_no, n, "0", came.false_no == 0, detail, "keys"
        )
        yield _figure(
            f"{name}: false confirmed{label}", came.false_yes, n, "0", came.false_yes == 0, detail, "keys"
        )
        goal, met = ("measured", None) if label else ("0", came.twice == 0)
        yield _figure(f"{name}: duplicates{label}", _share(n, came.twice), n, goal, met, detail)
        yield _figure(f"{name}: known{label}", _share(n, came.known), n, "", None, detail)
        ages = came.ages or [0.0]
        more = {**detail, "were_unknown": len(came.ages), "max_s": round(max(ages), 1)}
        yield _figure(f"{name}: age of unknowns p50{label}", percentile(ages, 0.5), n, "", None, more, "s")


def _on(at: Bank, work: Callable[[Bank], Came]) -> Came:
    with at.provider:
        return work(at)


def _share(n: int, count: int) -> float:
    return 100 * count / n


def _figure(
    case: str, value: float, n: int, goal: str, met: bool | None, detail: dict[str, Any], unit: str = "%"
) -> Figure:
    return Figure("lossy", case, connection.vendor, value, unit, n, goal=goal, met=met, detail=detail)
