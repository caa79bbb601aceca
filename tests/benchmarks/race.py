"""G1: stops against dispatchers; every permit under the version that a stop ended is in its list."""

from __future__ import annotations

import time
from collections.abc import Iterator

from django.db import connection
from django.db.models import Exists, OuterRef

from runs.models import InFlight, Permit, PermitState, StopRequest

from . import crew
from .figures import Figure
from .world import World


def measure(scale: int = 1) -> Iterator[Figure]:
    """Yields the figures of this database: full speed and at a pace, one dispatcher and eight."""
    for dispatchers in (1, 8):
        yield _race(dispatchers, stops=100 * scale)


def _race(dispatchers: int, stops: int) -> Figure:
    world = World.make()
    token = world.agent.token
    assert token is not None
    with crew.Crew(dispatchers) as workers:
        for number in range(stops):
            run = world.run().pk
            order = {"call": "permits", "token": token.pk, "run": run, "seconds": 5}
            workers.tell([order] * dispatchers)
            time.sleep(0.01 + 0.003 * (number % 20))
            world.stop(run)
            workers.hear()
    unlisted, listed = count_unlisted(world.workspace.pk)
    return Figure(
        "race",
        f"unlisted, {dispatchers} dispatchers, full speed",
        connection.vendor,
        float(unlisted),
        "permits",
        listed + unlisted,
        goal="0 unlisted",
        met=unlisted == 0 and listed > 0,
        detail={"stops": stops, "listed": listed},
    )


def count_unlisted(workspace_id: str) -> tuple[int, int]:
    """(unlisted, listed) permits of stopped runs that were not ended before their stop."""
    stops = StopRequest.objects.filter(
        run_id=OuterRef("run_id"), version_before__gte=OuterRef("seen_version")
    )
    listed = InFlight.objects.filter(permit_id=OuterRef("pk"))
    mine = Permit.objects.filter(run__workspace_id=workspace_id, state=PermitState.OPEN)
    under = mine.filter(Exists(stops))
    return under.exclude(Exists(listed)).count(), under.filter(Exists(listed)).count()
