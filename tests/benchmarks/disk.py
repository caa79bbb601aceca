"""G15: how much disk an effect takes with its step, its permit and its lines of evidence, sealed.

Effects go through the real verbs: declared, let through, looked at again, reported. Tables and indexes count.
"""

from __future__ import annotations

from collections.abc import Iterator

from django.db import connection

from runs.evidence import seal_stream

from .figures import Figure
from .world import World, full_step

EFFECTS, IN_A_RUN = 2_000, 20
MOST = 4_096


def measure(scale: int = 1) -> Iterator[Figure]:
    """Yields the figure of this database; its detail says what takes most, in bytes an effect."""
    world, n = World.make(), EFFECTS * scale
    before = _sizes()
    for _ in range(n // IN_A_RUN):
        run = world.run().pk
        for _ in range(IN_A_RUN):
            full_step(world, world.ask(run))
        seal_stream(run)
    grown = {name: (size - before.get(name, 0)) / n for name, size in _sizes().items()}
    each = sum(grown.values())
    most = sorted(grown.items(), key=lambda one: -one[1])[:8]
    detail = {name: round(size) for name, size in most}
    case = f"disk an effect, with its evidence ({IN_A_RUN} a run)"
    goal = "≤ 4 KB"
    yield Figure("disk", case, connection.vendor, each, "B", n, goal=goal, met=each <= MOST, detail=detail)


def _sizes() -> dict[str, int]:
    """Bytes of each table with its indexes; SQLite without the means to say it by table: of all of them."""
    if connection.vendor == "postgresql":
        return _asked("SELECT relname, pg_total_relation_size(relid) FROM pg_stat_user_tables")
    if "dbstat" in _options():
        return _asked(
            "SELECT tbl_name, SUM(pgsize) FROM dbstat s JOIN sqlite_master m ON m.name = s.name GROUP BY 1"
        )
    pages, free, size = (_asked(f"SELECT 'n', {name} FROM pragma_{name}")["n"] for name in PRAGMAS)
    return {"all": (pages - free) * size}


PRAGMAS = ("page_count", "freelist_count", "page_size")


def _options() -> str:
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA compile_options")
        told = " ".join(row[0] for row in cursor.fetchall())
    return "dbstat" if "ENABLE_DBSTAT_VTAB" in told else ""


def _asked(sql: str) -> dict[str, int]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return {name: int(size) for name, size in cursor.fetchall()}
