"""G4, G12: how long a stop takes to be recorded: at a pace, under load, without workers, with one stuck."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

from django.db import OperationalError, connection, transaction

from runs.models import Run

from . import crew, raw
from .figures import Figure, percentile, timed
from .world import World

STUCK_S = 3.0


def measure(scale: int = 1) -> Iterator[Figure]:
    """Yields the figures of this database."""
    raw.prepare()
    world, database = World.make(), connection.vendor
    alone = _paced(world, 100 * scale)
    yield from _against_raw(alone, database)
    yield from _under_load(world, database, scale, [ours for ours, _ in alone])


def _paced(world: World, n: int) -> list[tuple[float, float]]:
    return _stopped([world.run().pk for _ in range(n)], world)


def _stopped(runs: list[str], world: World) -> list[tuple[float, float]]:
    """(a stop, a raw commit) in seconds, one pair each 10 ms."""
    commit, close = raw.committer()
    pairs = []
    for run in runs:
        base = timed(commit)
        pairs.append((timed(lambda run=run: world.stop(run)), base))  # type: ignore[misc]
        time.sleep(0.01)
    close()
    return pairs


def _against_raw(pairs: list[tuple[float, float]], database: str) -> Iterator[Figure]:
    for share, most in ((0.5, 2.0), (0.99, 4.0)):
        ours = percentile([pair[0] for pair in pairs], share) * 1000
        base = percentile([pair[1] for pair in pairs], share) * 1000
        ratios = [pair[0] / pair[1] for pair in pairs]
        yield Figure(
            "stop",
            f"p{share * 100:.0f} at 10 ms pace",
            database,
            ours,
            "ms",
            len(pairs),
            baseline=base,
            ratio=ours / base,
            p10=percentile(ratios, 0.1),
            p90=percentile(ratios, 0.9),
            goal=f"≤ {most}× the raw commit",
            met=ours / base <= most,
        )


def _under_load(world: World, database: str, scale: int, idle: list[float]) -> Iterator[Figure]:
    """Each stop meets a run on which all dispatchers work at full speed."""
    n = 8 if database == "sqlite" else 48
    took: list[float] = []
    dispatched = 0
    token = world.agent.token
    assert token is not None
    with crew.Crew(n) as workers:
        for _ in range(20 * scale):
            run = world.run().pk
            order = {"call": "permits", "token": token.pk, "run": run, "seconds": 5}
            workers.tell([order] * n)
            time.sleep(0.4)
            took.append(timed(lambda run=run: world.stop(run)) * 1000)  # type: ignore[misc]
            dispatched += sum(answer["done"] for answer in workers.hear())
    worst, p99 = max(took), percentile(took, 0.99)
    met = p99 <= 500 and (database != "sqlite" or worst <= 1000)
    case = f"p99, {n} dispatchers on one run, full speed"
    goal = "p99 ≤ 500 ms" + (", max ≤ 1 s" if database == "sqlite" else "")
    detail = {"max_ms": worst, "p50_ms": statistics.median(took), "dispatches": dispatched}
    yield Figure(
        "stop",
        case,
        database,
        p99,
        "ms",
        len(took),
        baseline=statistics.median(idle) * 1000,
        ratio=p99 / (statistics.median(idle) * 1000),
        p10=percentile(took, 0.1),
        p90=percentile(took, 0.9),
        goal=goal,
        met=met,
        detail=detail,
    )
    yield from _with_and_without(world, database, scale)


def _with_and_without(world: World, database: str, scale: int) -> Iterator[Figure]:
    """G12: the acknowledgement does not wait for a worker, so none alive is as good as eight."""
    without = [ours * 1000 for ours, _ in _paced(world, 30 * scale)]
    token = world.agent.token
    assert token is not None
    with crew.Crew(8) as workers:
        others = [world.run().pk for _ in range(8)]
        seconds = 0.02 * 30 * scale + 2
        workers.tell([{"call": "permits", "token": token.pk, "run": r, "seconds": seconds} for r in others])
        with_eight = [ours * 1000 for ours, _ in _paced(world, 30 * scale)]
        workers.hear()
    alone, busy = statistics.median(without), statistics.median(with_eight)
    yield Figure(
        "stop",
        "p50 with no worker alive",
        database,
        alone,
        "ms",
        len(without),
        baseline=busy,
        ratio=alone / busy,
        p10=percentile(without, 0.1),
        p90=percentile(without, 0.9),
        goal="no slower than with 8 at work",
        met=alone <= busy * 1.2,
    )
    yield from _with_one_stuck(world, database, alone)


def _until_held(run_id: str) -> None:
    """Until somebody else has the lock of this run."""
    try:
        while True:
            with transaction.atomic():
                Run.objects.select_for_update(no_key=True, nowait=True).get(pk=run_id)
            time.sleep(0.005)
    except OperationalError:
        return


def _with_one_stuck(world: World, database: str, alone: float) -> Iterator[Figure]:
    """A process stands still for 3 s with the lock of a run: the stops of others, then that of its own run.

    Its own run is waited for, a scope's gate is not (`bench scope`). On SQLite, with one writer, whoever
    stands still holds up every stop; nothing is compared there.
    """
    if database == "sqlite":
        return
    stuck, others = world.run().pk, [world.run().pk for _ in range(30)]
    with crew.Crew(1) as workers:
        hold = {"call": "stick", "token": world.token, "run": stuck, "stuck_s": STUCK_S, "seconds": 0}
        workers.tell([hold])
        _until_held(stuck)
        took = [ours * 1000 for ours, _ in _stopped(others, world)]
        own = timed(lambda: world.stop(stuck)) * 1000
        workers.hear()
    p50, longest = statistics.median(took), STUCK_S * 1000 + 500
    cases = [("p50 with one stuck on another run", p50, took, "no slower than with none", p50 <= alone * 1.2)]
    cases.append(
        ("of the run that one is stuck on", own, [own], "no later than 0.5 s after it", own <= longest)
    )
    for case, figure, values, goal, met in cases:
        yield Figure(
            "stop",
            case,
            database,
            figure,
            "ms",
            len(values),
            baseline=alone,
            ratio=figure / alone,
            p10=percentile(values, 0.1),
            p90=percentile(values, 0.9),
            goal=goal,
            met=met,
        )
