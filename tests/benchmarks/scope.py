"""G9: a stop of a workspace with many runs: acknowledged, fenced, and what it costs its neighbours."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from django.db import connection

from runs import fanout, scopes
from runs.models import Run, StopRequest
from runs.stops import Wish

from . import crew
from .figures import Figure, timed
from .world import World

SIZES = (100, 1_000, 10_000)
LONG = 100_000
DISPATCHERS, ADMITTERS, NEIGHBOURS = 8, 4, 2
STUCK_S = 3.0


@dataclass
class Took:
    """Seconds to the acknowledgement and to the fence; calls per second of the neighbours."""

    acknowledged: float
    fenced: float
    before: float = 0.0
    meanwhile: float = 0.0
    seen: dict[str, Any] = field(default_factory=dict)


def measure(scale: int = 1) -> Iterator[Figure]:
    """Yields the figures of this database. From `--scale 10` on with 100,000 runs too."""
    database, sizes = connection.vendor, [*SIZES, LONG] if scale >= 10 else SIZES
    idle = {n: _idle(n) for n in sizes}
    for n in sizes:
        yield from _alone(n, idle[n], database)
    yield _growth(idle, database)
    with crew.Crew(DISPATCHERS + ADMITTERS + NEIGHBOURS) as workers:
        for n in sizes:
            yield from _loaded(n, _under_load(workers, n), database)
        if database == "postgresql":
            yield from _stuck(_under_load(workers, SIZES[-1], stuck=True), database)


# what is done -------------------------------------------------------------------------------------


def _press(world: World, mode: str = "cancel") -> Took:
    """The gate, and the fan-out in this process until it is fenced."""
    began, used = time.perf_counter(), time.process_time()
    target = scopes.Target("workspace", world.workspace.pk)
    answer = scopes._press(world.person, Wish(mode=mode), f"{began}", target)
    acknowledged = time.perf_counter() - began
    while not fanout.fence(answer.stop.pk, 5.0, patient=True):
        pass
    took, used = Took(acknowledged, time.perf_counter() - began), time.process_time() - used
    stop = StopRequest.objects.get(pk=answer.stop.pk)
    active = Run.objects.filter(workspace=world.workspace, status="ACTIVE").count()
    assert stop.fenced_at is not None
    assert not active, "0 ACTIVE runs after the fence"
    took.seen = {"runs": stop.runs_n, "own_cpu_ms": used * 1000}
    return took


def _idle(n: int) -> Took:
    world = World.make()
    world.runs(n)
    return _press(world)


def _under_load(workers: crew.Crew, n: int, *, stuck: bool = False) -> Took:
    """Dispatchers and admitters of the workspace at full speed, and neighbours that are counted."""
    world, other = World.make(), World.make()
    runs = world.runs(n)
    seconds = 2.0 + n / 1_500 + (STUCK_S + 1 if stuck else 0)
    order = {"token": world.token, "seconds": seconds}
    orders: list[dict[str, Any]] = [
        {**order, "call": "permits", "run": run, "again": True} for run in runs[:DISPATCHERS]
    ]
    if stuck:
        orders[0] = {**order, "call": "stick", "run": runs[n // 2], "stuck_s": STUCK_S}
    orders += [{**order, "call": "admit", "run": runs[0], "again": True} for _ in range(ADMITTERS)]
    orders += [
        {"token": other.token, "seconds": seconds, "call": "permits", "run": other.run().pk}
        for _ in range(NEIGHBOURS)
    ]
    workers.tell(orders)
    time.sleep(1.0)
    pressed = time.time()
    took = _press(world)
    over = time.time()
    answers = workers.hear()
    at = [moment for answer in answers[-NEIGHBOURS:] for moment in answer["at"]]
    took.before = sum(pressed - 1.0 < one < pressed for one in at)
    took.meanwhile = sum(pressed < one < over for one in at) / (over - pressed)
    took.seen |= {
        "dispatches": sum(answer["done"] for answer in answers[:DISPATCHERS]),
        "admissions": sum(answer["done"] for answer in answers[DISPATCHERS:-NEIGHBOURS]),
        "refused": sum(answer["refused"] for answer in answers[:-NEIGHBOURS]),
    }
    return took


def _raw(n: int) -> float:
    """One UPDATE of so many rows and one INSERT of as many, committed, without Django."""
    sql = (
        "CREATE TABLE IF NOT EXISTS bench_scope (id integer PRIMARY KEY, n integer, told text)",
        "DELETE FROM bench_scope",
    )
    with connection.cursor() as cursor:
        for text in sql:
            cursor.execute(text)
        cursor.executemany("INSERT INTO bench_scope VALUES (%s, 0, 'x')", [(at,) for at in range(n)])
        cursor.execute("CREATE TABLE IF NOT EXISTS bench_scope_stop (id integer, told text)")

        def both() -> None:
            cursor.execute("BEGIN")
            cursor.execute("UPDATE bench_scope SET n = n + 1")
            cursor.execute("INSERT INTO bench_scope_stop SELECT id, told FROM bench_scope")
            cursor.execute("COMMIT")

        return statistics.median(timed(both) for _ in range(3))


# what is told -------------------------------------------------------------------------------------


def _alone(n: int, took: Took, database: str) -> Iterator[Figure]:
    base = _raw(n)
    yield Figure(
        "scope",
        f"{n:,} runs, idle: fenced",
        database,
        took.fenced * 1000,
        "ms",
        1,
        baseline=base * 1000,
        ratio=took.fenced / base,
        goal="≤ 2× a raw UPDATE + INSERT",
        met=took.fenced <= 2 * base,
        detail={**took.seen, "acknowledged_ms": took.acknowledged * 1000},
    )


def _growth(idle: dict[int, Took], database: str) -> Figure:
    """How the time grows with the number of runs: ten times as many, at the upper end."""
    most, less = sorted(idle)[-1], sorted(idle)[-2]
    ratio = idle[most].fenced / idle[less].fenced
    judged = most == LONG
    return Figure(
        "scope",
        f"{most:,} runs against {less:,}, idle",
        database,
        idle[most].fenced * 1000,
        "ms",
        1,
        baseline=idle[less].fenced * 1000,
        ratio=ratio,
        goal="100,000 runs ≤ 12× the time of 10,000",
        met=ratio <= 12 if judged else None,
    )


def _loaded(n: int, took: Took, database: str) -> Iterator[Figure]:
    judged = n == 10_000
    load = f"{n:,} runs, {DISPATCHERS} dispatchers, {ADMITTERS} admitters"
    for what, seconds, most in (("acknowledged", took.acknowledged, 0.25), ("fenced", took.fenced, 5.0)):
        yield Figure(
            "scope",
            f"{load}: {what}",
            database,
            seconds * 1000,
            "ms",
            1,
            goal=f"≤ {most * 1000:.0f} ms with 10,000",
            met=seconds <= most if judged else None,
            detail=took.seen,
        )
    if n >= 1_000:
        yield Figure(
            "scope",
            f"{n:,} runs: another workspace's dispatches",
            database,
            took.meanwhile,
            "1/s",
            NEIGHBOURS,
            baseline=took.before,
            ratio=took.meanwhile / took.before if took.before else None,
            goal="≥ 0.7× their rate before",
            met=took.meanwhile >= 0.7 * took.before if took.before else None,
        )


def _stuck(took: Took, database: str) -> Iterator[Figure]:
    yield Figure(
        "scope",
        f"{SIZES[-1]:,} runs, a worker stuck for {STUCK_S:.0f} s: acknowledged",
        database,
        took.acknowledged * 1000,
        "ms",
        1,
        goal="≤ 500 ms",
        met=took.acknowledged <= 0.5,
        detail={**took.seen, "fenced_ms": took.fenced * 1000},
    )
