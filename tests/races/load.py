"""Processes that dispatch as fast as they can while others press Stop; then all that started is counted.

Run as `python -m tests.races.load '{"shape": "gate"}'` on the database of DATABASE_URL, which it fills.
The last line that it prints is the count, as JSON.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")

RUNS = 3
GIVE_UP_S = 1_700


@dataclass(frozen=True)
class Order:
    """What a load is made of. `shape`: gate (the product's) or plain (an EXISTS without a lock)."""

    shape: str = "gate"
    dispatches: int = 5_000
    stops: int = 200
    dispatchers: int = 4
    stoppers: int = 2


@dataclass(frozen=True)
class Shared:
    """What the processes share: how many dispatches were let through, and stops pressed."""

    dispatched: Any
    stopped: Any

    @classmethod
    def made(cls, context: SpawnContext) -> Shared:
        return cls(context.Value("q", 0), context.Value("q", 0))


def count_one(value: Any) -> int:
    with value.get_lock():
        value.value += 1
        return int(value.value)


# --- One process of each sort -----------------------------------------------------------------------------


def begin(seed: int) -> None:
    """In a new process: Django, an end when the parent ends, and a chance of its own."""
    import django

    from tests.tools import die_with_parent

    (die_with_parent() or (lambda: None))()
    django.setup()
    random.seed(seed)


def dispatcher(order: Order, shared: Shared, workspace: str, name: int, told: Any) -> None:
    begin(name)
    from runs.models import Run, Workspace
    from tests.worlds import World

    world = World(workspace=Workspace.objects.get(pk=workspace))
    cross = {"gate": by_gate, "plain": by_plain}[order.shape]
    seen: Counter[str] = Counter()
    run: Run | None = None
    end = time.monotonic() + GIVE_UP_S
    while shared.dispatched.value < order.dispatches and time.monotonic() < end:
        if run is None or random.random() < 0.1:
            run = random.choice([*Run.objects.filter(workspace=workspace, status="ACTIVE")] or [None])
            continue
        if cross(world, run, f"{name}-{seen.total()}", seen):
            count_one(shared.dispatched)
        else:
            run = None
    told.put(dict(seen))


def by_gate(world: Any, run: Any, key: str, seen: Counter[str]) -> bool:
    """A permit for a read, or an effect that is registered and dispatched in one call."""
    from effects import intents
    from runs import gate
    from runs.guard import Opened
    from tests.worlds import intention

    if random.random() < 0.7:
        answer = gate.dispatch(world.ask(run, step_key=key, op_class="read"))
    else:
        answer = intents.dispatch(world.ask(run, step_key=key), intention(key))
    if not isinstance(answer, Opened):
        seen["refused"] += 1
        return False
    seen["dispatched"] += 1
    if random.random() < 0.1:
        look_and_report(world, answer, seen)
    return True


def look_and_report(world: Any, opened: Any, seen: Counter[str]) -> None:
    """A worker that takes a moment before it looks again, and sends only if it may."""
    from runs import gate

    time.sleep(random.uniform(0, 0.1))
    look = gate.look(opened.permit.pk, opened.permit.token).answer
    seen[f"looked: {look}"] += 1
    world.report(opened, "applied" if look == "open" else "not_sent")


def by_plain(world: Any, run: Any, key: str, seen: Counter[str]) -> bool:
    """The control: the same registration, behind an EXISTS that takes no lock."""
    from tests.races import unsafe

    rows = unsafe.inserted(run)
    seen["dispatched" if rows else "refused"] += 1
    return bool(rows)


def stopper(order: Order, shared: Shared, workspace: str, name: int, told: Any) -> None:
    """Presses Stop in step with the dispatches, and admits a new run for each that it stopped."""
    begin(1_000 + name)
    from runs.models import Run, Workspace
    from tests.worlds import World

    world = World(workspace=Workspace.objects.get(pk=workspace))
    seen: Counter[str] = Counter()
    took: list[float] = []
    end = time.monotonic() + GIVE_UP_S
    while shared.stopped.value < order.stops and time.monotonic() < end:
        due = order.dispatches * shared.stopped.value / order.stops
        if shared.dispatched.value < due:
            time.sleep(0.001)
            continue
        run = random.choice([*Run.objects.filter(workspace=workspace, status="ACTIVE")] or [None])
        if run is None:
            continue
        asked = time.perf_counter()
        answer = world.stop(run)
        took.append(time.perf_counter() - asked)
        seen[answer.answer] += 1
        if answer.answer == "recorded":
            world.run(f"stopper-{name}-{seen.total()}")
            count_one(shared.stopped)
    told.put({**seen, "slowest ms": round(1_000 * max(took, default=0))})


# --- All of them ------------------------------------------------------------------------------------------


def load(order: Order) -> dict[str, Any]:
    """Fill the database, wait for all processes, and count."""
    begin(0)
    from django.db import connections

    from tests.worlds import World

    world = World()
    for n in range(RUNS):
        world.run(f"first-{n}")
    connections.close_all()
    context = multiprocessing.get_context("spawn")
    shared, told = Shared.made(context), context.Queue()
    began = time.monotonic()
    processes = [
        context.Process(target=work, args=(order, shared, world.workspace.pk, n, told), daemon=True)
        for work, number in ((dispatcher, order.dispatchers), (stopper, order.stoppers))
        for n in range(number)
    ]
    for process in processes:
        process.start()
    seen = gather(processes, told)
    return {
        **asdict(order),
        "seconds": round(time.monotonic() - began, 1),
        **seen,
        **counted(world.workspace.pk),
    }


def gather(processes: list[SpawnProcess], told: Any) -> dict[str, int]:
    """What each process told, added up. A process that died tells nothing: that is an error."""
    import queue

    seen: Counter[str] = Counter()
    answers = 0
    while answers < len(processes):
        try:
            answer = told.get(timeout=1)
        except queue.Empty:
            if any(process.exitcode for process in processes):
                raise SystemExit("a process of the load died; its last words are above") from None
            continue
        answers += 1
        slowest = max(seen.pop("slowest ms", 0), answer.pop("slowest ms", 0))
        seen.update(answer)
        seen["slowest ms"] = slowest
    for process in processes:
        process.join()
    return dict(seen)


def counted(workspace: str) -> dict[str, int]:
    """What the rows say: every permit and every stop, whoever wrote them."""
    from django.db import connection

    from runs.models import InFlight
    from tests.races.checker import verdict

    listing = InFlight.objects.filter(stop__workspace_id=workspace).values("stop_id").distinct().count()
    found = {**asdict(verdict(workspace)), "stops with something in flight": listing, "deadlocks": 0}
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
            found["deadlocks"] = cursor.fetchone()[0]
    return found


if __name__ == "__main__":
    print(json.dumps(load(Order(**json.loads(sys.argv[1])))), flush=True)  # noqa: T201
