"""G6, G10: the gate in process, with its evidence line, against one raw committed UPDATE."""

from __future__ import annotations

from collections.abc import Iterator

from django.db import connection

from . import crew, raw
from .figures import Figure, Pair, in_turns, timed
from .world import World, permit

GOALS = {"one client": 0.35, "8 workers": 0.8, "8 workers on one run": 0.5}


def measure(scale: int = 1) -> Iterator[Figure]:
    """Yields the figures of this database."""
    raw.prepare()
    world, database = World.make(), connection.vendor
    commit, close = raw.committer()
    ask = world.ask(world.run().pk)
    blocks, size = 10 * scale, 40

    def ours(count: int) -> None:
        for _ in range(count):
            permit(ask)

    ours(20)
    pair = in_turns(ours, raw.many(commit), blocks=blocks, size=size)
    least = 0.5 if database == "sqlite" else GOALS["one client"]
    yield pair.figure("gate", "one client, with evidence", database, blocks * size, f"≥ {least}×", least)
    yield from _eight(world, database, raw.many(commit), scale)
    close()


def _eight(world: World, database: str, many: object, scale: int) -> Iterator[Figure]:
    commit, close = raw.committer()
    with crew.Crew(8) as workers:
        for case, shared in (("8 workers", False), ("8 workers on one run", True)):
            runs = [world.run().pk] * 8 if shared else [world.run().pk for _ in range(8)]
            pair, size = Pair([], []), 40
            for _ in range(5 * scale):
                pair.raw.append(200 / timed(lambda: raw.many(commit)(200)))
                pair.ours.append(workers.rate("permits", world, runs, size))
            least = GOALS[case]
            case = f"{case}, with evidence"
            yield pair.figure("gate", case, database, 5 * scale * 8 * size, f"≥ {least}×", least)
    close()
