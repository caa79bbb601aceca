"""A provider that loses answers: what is told of each effect, beside what the provider's own ledger holds.

The seeded faults of tests/lossy.py meet three ways of sending: a loop that repeats without a key (a control:
it has to make duplicates), a loop that repeats with a key, and Allstop, at a provider that knows keys and at
one that does not. In a second control Allstop is told that a slow provider shows at once what it has done: it
has to make duplicates, too.

Published for verified tool calls in a simulation (arXiv 2608.02645): duplicates 20 -> 0, 44 -> 16 and
72 -> 20 %. Those are other faults at other rates: they stand beside ours, not against them.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx2
from django.conf import settings
from django.db import connection, connections

from effects import executor, intents, lookup, outbound, queue, reconcile, settle
from effects.models import Effect, Kind, Settlement
from runs import drain as due
from runs.store import database_time, new_id
from tests.lossy import LIMIT_S, ON_SENDS, LossyProvider

from .figures import Figure, percentile
from .world import World

RATES = {"low": 0.05, "medium": 0.2, "high": 0.4}
PUBLISHED = {"low": "20 -> 0 %", "medium": "44 -> 16 %", "high": "72 -> 20 %"}
SEED = 2608
N = 100  # effects of each way and rate
AT_ONCE = 8
TRIES = 3
WITHIN_S = 40.0
# What the kind says of the provider: it is a little better than its word.
SETTLED_S, KEPT_S, CHECK_FOR_S = 2, 7, 9
HAPPENED = (Settlement.CONFIRMED, Settlement.PARTIAL)
DID_NOT = (Settlement.NOT_APPLIED, Settlement.NOT_STARTED)
BODY = json.dumps({"items": ["a", "b"]}).encode()


@dataclass
class Came:
    """What one way came to. `said`: key -> happened · did not · unknown; `ages`: seconds spent unknown."""

    said: dict[str, str]
    twice: int
    false_no: int
    false_yes: int
    resent: int
    faults: dict[str, int]
    ages: list[float] = field(default_factory=list)

    @property
    def known(self) -> int:
        return sum(word != "unknown" for word in self.said.values())


def judge(at: LossyProvider, said: dict[str, str], ages: list[float]) -> Came:
    """What was said, beside the ledger: a thing that is there and was denied, and the other way round."""
    at.come_to_rest()
    there = {key for key in said if at.changed(key)}
    return Came(
        said,
        sum(at.changed(key) > 1 for key in said),
        sum(word == "did not" and key in there for key, word in said.items()),
        sum(word == "happened" and key not in there for key, word in said.items()),
        sum(at.sends(key) > 1 for key in said),
        dict(at.mind.met),
        ages,
    )


# the ways -------------------------------------------------------------------------------------------------


def loop(at: LossyProvider, n: int) -> Came:
    """Send, and on anything but a 2xx send again, as a plain client does: three tries, no question."""
    said: dict[str, str] = {}

    def one(number: int) -> None:
        key = f"pay:{number}"
        said[key] = "happened" if any(_sent(client, key) for _ in range(TRIES)) else "did not"

    with (
        httpx2.Client(base_url=at.url, trust_env=False, timeout=LIMIT_S) as client,
        ThreadPoolExecutor(AT_ONCE) as threads,
    ):
        list(threads.map(one, range(n)))
    return judge(at, said, [])


def _sent(client: httpx2.Client, key: str) -> bool:
    try:
        return client.post("/payments", content=BODY, headers={"Idempotency-Key": key}).is_success
    except httpx2.HTTPError:
        return False


def allstop(at: LossyProvider, n: int, *, settled_s: int = SETTLED_S) -> Came:
    """The same by our executor and its look-ups: sent again only after a look-up that proves absence."""
    world = World.make()
    with _impatient(at.url):
        _kind(world, at.url, settled_s)
        effects = _declared(world, n)
        _work(effects)
    rows = list(Effect.objects.filter(pk__in=effects))
    said = {row.key: _word(row) for row in rows}
    return judge(at, said, [age for row in rows if (age := _age(row)) is not None])


@contextmanager
def _impatient(url: str) -> Iterator[None]:
    """This address may be called, waits are short, and the first look-up comes soon."""
    origins = [*settings.ALLSTOP_OUTBOUND_ORIGINS, url]
    with (
        patch.object(settings, "ALLSTOP_OUTBOUND_ORIGINS", origins),
        patch.object(outbound, "LIMIT_S", LIMIT_S),
        patch.object(settle, "FIRST_CHECK_S", 0.2),
    ):
        yield


def _kind(world: World, url: str, settled_s: int) -> None:
    six = ("commits", "idempotency", "compensation", "durable_before_pause", "when_unknown")
    asked = f"{url}/payments?key={{key}}"
    Kind.objects.create(
        workspace=world.workspace,
        name="bench.pay",
        provider="http",
        op_class="external_write",
        send={"url": f"{url}/payments"},
        lookup={"url": asked, "key_path": "key", "partial_path": "failed", "items": "failed"},
        settle_window_s=settled_s,
        key_retention_s=KEPT_S,
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
            ask = replace(world.ask(run.pk), step_key=key)
            told = intents.declare(ask, intents.Intention(key, "bench.pay", BODY, plan))
            assert isinstance(told, Effect)
            found.append(told.pk)
    return found


def _work(effects: list[str]) -> None:
    """Until nothing is open, as workers and sweep do it side by side; no longer than WITHIN_S."""
    execute, check = _with_connection(executor.execute), _with_connection(lookup.check_effect)
    with ThreadPoolExecutor(AT_ONCE) as workers, ThreadPoolExecutor(AT_ONCE) as sweep:
        first = [workers.submit(execute, one) for one in effects]
        end = time.monotonic() + WITHIN_S
        while time.monotonic() < end and _open(effects):
            list(sweep.map(check, reconcile.due(500)))
            for step_id in queue.retries_due(500):
                queue.fall_due(step_id)
            again = Effect.objects.filter(
                pk__in=effects, settlement=Settlement.NOT_APPLIED, step__status="PENDING"
            )
            list(workers.map(execute, again.values_list("pk", flat=True)))
            due.runs_due(10)
            time.sleep(0.1)
        for each in first:  # what it raises is not lost
            each.result()


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
    with tempfile.TemporaryDirectory() as folder:
        for name, rate in RATES.items():
            yield from Rate(Path(folder), name, rate, N * int(scale)).figures()
        for settled_s in (0, SETTLED_S):
            yield _of_the_slow(Path(folder), settled_s)


def _of_the_slow(folder: Path, settled_s: int) -> Figure:
    """Each request is done after its caller gave up; no key is known. The kind says how long to wait."""
    came = slow(folder, settled_s)
    hasty = settled_s == 0
    case = f"all slow, {settled_s} s to settle (no keys): duplicates"
    goal, met = ("control: > 0", came.twice > 0) if hasty else ("0", came.twice == 0)
    share = 100 * came.twice / len(came.said)
    detail = {"seed": SEED, "faults": came.faults}
    return Figure(
        "lossy", case, connection.vendor, share, "%", len(came.said), goal=goal, met=met, detail=detail
    )


def slow(folder: Path, settled_s: int, n: int = 8) -> Came:
    """Allstop at a provider without keys that does everything, and only after its caller has given up."""
    only = {name: fault for name, fault in ON_SENDS.items() if name == "timeout, done later"}
    ledger = folder / f"{new_id('ledger')}.jsonl"
    with LossyProvider(ledger, 1.0, SEED, keyless=True, only=only) as at:
        return allstop(at, n, settled_s=settled_s)


@dataclass(frozen=True)
class Rate:
    """One rate of faults, and how many effects meet it on each way."""

    folder: Path
    name: str
    rate: float
    n: int

    def figures(self) -> Iterator[Figure]:
        blind = self._run(loop, keyless=True)
        yield self._share("loop without keys, duplicates", blind.twice, "control: > 0", blind.twice > 0)
        keyed = self._run(loop)
        yield self._share("loop with keys, duplicates", keyed.twice)
        yield self._share("loop with keys, denied though there", keyed.false_no)
        yield from self._of_allstop(self._run(allstop), "", "0")
        yield from self._of_allstop(self._run(allstop, keyless=True), " (no keys)", "")

    def _of_allstop(self, came: Came, label: str, goal: str) -> Iterator[Figure]:
        yield self._figure(f"false not applied{label}", came.false_no, "keys", "0", came.false_no == 0)
        yield self._figure(f"false confirmed{label}", came.false_yes, "keys", "0", came.false_yes == 0)
        yield self._share(f"duplicates{label}", came.twice, goal, came.twice == 0 if goal else None)
        yield self._share(f"known{label}", came.known)
        yield self._figure(f"sent again{label}", came.resent, "keys")
        ages = came.ages or [0.0]
        more: dict[str, Any] = {"were_unknown": len(came.ages), "faults": came.faults}
        yield self._figure(f"age of unknowns, p50{label}", percentile(ages, 0.5), "s", **more)
        yield self._figure(f"age of unknowns, max{label}", max(ages), "s", **more)

    def _run(self, way: Callable[[LossyProvider, int], Came], *, keyless: bool = False) -> Came:
        ledger = self.folder / f"{new_id('ledger')}.jsonl"
        with LossyProvider(ledger, self.rate, SEED, keyless=keyless) as at:
            return way(at, self.n)

    def _share(self, case: str, count: int, goal: str = "", met: bool | None = None) -> Figure:
        return self._figure(case, 100 * count / self.n, "%", goal, met)

    def _figure(
        self, case: str, value: float, unit: str, goal: str = "", met: bool | None = None, **more: Any
    ) -> Figure:
        detail = {"seed": SEED, "rate": self.rate, "published": PUBLISHED[self.name], **more}
        case = f"{self.name}: {case}"
        return Figure(
            "lossy", case, connection.vendor, value, unit, self.n, goal=goal, met=met, detail=detail
        )
