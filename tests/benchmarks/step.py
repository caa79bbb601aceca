"""G7: a full step (declare, dispatch, second look, report) against one raw committed UPDATE."""

from __future__ import annotations

from collections.abc import Iterator

from django.db import connection

from . import crew, raw
from .figures import Figure, Pair, in_turns, timed
from .world import World, full_step


def measure(scale: int = 1) -> Iterator[Figure]:
    """Yields the figures of this database."""
    raw.prepare()
    world, database = World.make(), connection.vendor
    commit, close = raw.committer()
    ask = world.ask(world.run().pk)
    blocks, size = 8 * scale, 25

    def ours(count: int) -> None:
        for _ in range(count):
            full_step(world, ask)

    ours(10)
    pair = in_turns(ours, raw.many(commit), blocks=blocks, size=size)
    yield pair.figure("step", "one client", database, blocks * size, "≥ 0.2×", 0.2)
    with crew.Crew(8) as workers:
        eight = Pair([], [])
        for _ in range(4 * scale):
            eight.raw.append(200 / timed(lambda: raw.many(commit)(200)))
            eight.ours.append(workers.rate("steps", world, [world.run().pk for _ in range(8)], size))
        yield eight.figure("step", "8 workers", database, 4 * scale * 8 * size, "≥ 0.4×", 0.4)
    close()
