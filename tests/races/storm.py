"""Two stops of overlapping scopes, again and again, over processes that dispatch, admit, drain and reap.

Run as `python -m tests.races.storm '{"seconds": 60}'` on the database of DATABASE_URL, which it fills. The
last line that it prints is the count, as JSON. A round: once something is in flight two people press at
once, each on a scope of their own; once both stops are fenced everything is counted under the shut gates,
while admissions are refused and another workspace goes on; both are released.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from tests.races.load import begin, gather

LEASE_S = 0.3  # of a worker that is not heard of again
MANY = 40  # active runs, beyond which nobody admits more
PATIENCE_S = 60.0
ROUNDS = 3  # at least, however busy the machine is


@dataclass(frozen=True)
class Order:
    """What a storm is made of. `shape`: gate (the product's), or unlocked: admissions without their lock."""

    shape: str = "gate"
    seconds: float = 60.0
    dispatchers: int = 3
    admitters: int = 2


@dataclass(frozen=True)
class Place:
    """Where it happens; `theirs` is a run of another workspace, which nobody stops."""

    workspace: str
    session: str
    policy: str
    elsewhere: str
    theirs: str

    def world(self, *, elsewhere: bool = False) -> Any:
        from runs.models import Workspace
        from tests.worlds import World

        return World(workspace=Workspace.objects.get(pk=self.elsewhere if elsewhere else self.workspace))


# --- One process of each sort -----------------------------------------------------------------------------


def dispatcher(order: Order, over: Any, place: Place, name: int, told: Any) -> None:
    """Sends on whichever run is active; now and then it is not heard of again."""
    begin(name)
    from effects import intents
    from runs.guard import Opened
    from tests.worlds import intention

    world, seen, n = place.world(), Counter[str](), 0
    while not over.value:
        run = some_run(place.workspace)
        if run is None:
            time.sleep(0.005)
            continue
        n += 1
        key = f"{name}-{n}"
        answer = intents.dispatch(world.ask(run, step_key=key, lease_s=LEASE_S), intention(key))
        seen["dispatched" if isinstance(answer, Opened) else "refused"] += 1
        if isinstance(answer, Opened) and random.random() < 0.5:
            world.report(answer)
    told.put(dict(seen))


def some_run(workspace: str) -> Any:
    from runs.models import Run

    return random.choice([*Run.objects.filter(workspace=workspace, status="ACTIVE")[:MANY]] or [None])


def bystander(order: Order, over: Any, place: Place, name: int, told: Any) -> None:
    """Dispatches in another workspace, which is never refused anything."""
    begin(2_000 + name)
    from effects import intents
    from runs.guard import Opened
    from runs.models import Run
    from tests.worlds import intention

    world, run = place.world(elsewhere=True), Run.objects.get(pk=place.theirs)
    seen: Counter[str] = Counter()
    while not over.value:
        key = f"theirs-{seen.total()}"
        answer = intents.dispatch(world.ask(run, step_key=key), intention(key))
        seen["elsewhere dispatched" if isinstance(answer, Opened) else "elsewhere refused"] += 1
        time.sleep(0.01)
    told.put(dict(seen))


def admitter(order: Order, over: Any, place: Place, name: int, told: Any) -> None:
    """Registers runs under all three scopes, whatever the answer."""
    begin(3_000 + name)
    from runs.admission import Admitted
    from runs.models import Run

    world, seen, n = place.world(), Counter[str](), 0
    while not over.value:
        n += 1
        active = Run.objects.filter(workspace=place.workspace, status="ACTIVE")
        if order.shape == "unlocked":
            seen["unlocked"] += unlocked(world, f"unlocked-{name}-{n}")
        elif active.count() < MANY:
            answer = world.admit(f"run-{name}-{n}", session="nightly", labels={"shift": "night"})
            seen["admitted" if isinstance(answer, Admitted) else "not admitted"] += 1
        time.sleep(0.002)
    told.put(dict(seen))


def unlocked(world: Any, key: str) -> int:
    """The control: an admission that looks at the gate, takes no lock, and is slow until after the stop."""
    from django.db import DatabaseError

    from tests.races import unsafe

    try:
        unsafe.admit_unlocked(world.workspace, key, past_the_fence=True)
    except DatabaseError:  # the trigger saw the gate shut
        return 0
    return 1


def controller(order: Order, over: Any, place: Place, name: int, told: Any) -> None:
    """What the sweep does, as fast as it can: reap, drain, carry on, close."""
    begin(4_000 + name)
    from effects.drain import drain_run
    from runs import drain, fanout

    seen: Counter[str] = Counter()
    while not over.value:
        for stop in fanout.to_carry_on():
            fanout.carry_on(stop)
            seen["carried on"] += 1
        for run in drain.runs_due():
            drain_run(run)
            seen["drained"] += 1
        for stop in fanout.to_close():
            seen["closed"] += fanout.close_if_over(stop)
        time.sleep(0.01)
    told.put(dict(seen))


def presser(order: Order, over: Any, place: Place, name: int, told: Any) -> None:
    """Rounds of two stops at once, from the press to the release, until the time is over."""
    begin(5_000)
    from runs.models import Permit

    world, seen, end = place.world(), Counter[str](), time.monotonic() + order.seconds
    in_flight = Permit.objects.filter(run__workspace=place.workspace, state="OPEN")
    slowest = 0.0
    while time.monotonic() < end or seen["rounds"] < ROUNDS:
        until(lambda: in_flight.exists() or order.shape == "unlocked")
        time.sleep(random.uniform(0, 0.2))
        stops, took = press_both(world, place, workspace=order.shape == "unlocked")
        slowest = max(slowest, took)
        for stop in stops:
            until(lambda stop=stop: fenced(stop))
        seen["active under a shut gate"] += under_shut_gates(place, order)
        seen["rounds"] += 1
        for stop in stops:
            release(world, stop)
    over.value = 1
    told.put({**seen, "slowest ms": round(1_000 * slowest)})


def until(true: Any) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end, "the storm has come to a standstill"
        time.sleep(0.01)


def fenced(stop_id: str) -> bool:
    from runs.models import StopRequest

    return StopRequest.objects.filter(pk=stop_id, fenced_at__isnull=False).exists()


def under_shut_gates(place: Place, order: Order) -> int:
    """Runs that are active there, while others ask for admission and a workspace beside goes on."""
    from runs.models import Permit, Refusal
    from tests.races.checker import active_under_a_shut_gate

    theirs = Permit.objects.filter(run=place.theirs)
    refused = Refusal.objects.filter(workspace=place.workspace, run__isnull=True)
    before, found = (theirs.count(), refused.count()), 0

    end = time.monotonic() + 4

    def went_on() -> bool:
        nonlocal found
        found += len(active_under_a_shut_gate(place.workspace))
        if order.shape == "unlocked":
            return found > 0 or time.monotonic() > end
        return theirs.count() > before[0] + 1 and refused.count() > before[1] + 1

    until(went_on)
    return found


def press_both(world: Any, place: Place, *, workspace: bool) -> tuple[list[str], float]:
    """Of two scopes of the three, in a random order; their ids, and how long the slower one took.

    `workspace`: it is one of them.
    """
    from functools import partial

    from runs import scopes
    from runs.presses import Wish
    from runs.scopes import Target
    from tests.races.sides import together

    whole, some = Target("workspace", place.workspace), Target("session", place.session)
    targets = [whole, some] if workspace else random.sample([whole, some, Target("policy", place.policy)], 2)
    asked = time.perf_counter()
    press = partial(scopes.request_scope_stop, actor=world.alice, wish=Wish())
    answers = together([partial(press, target=target) for target in targets])
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return [answer.stop.pk for answer in answers], time.perf_counter() - asked


def release(world: Any, stop_id: str) -> None:
    from runs import releases

    releases.release(actor=world.bob, stop_id=stop_id, reason="the next round")


# --- All of them ------------------------------------------------------------------------------------------


def storm(order: Order) -> dict[str, Any]:
    """Fill the database, wait for all processes, and count."""
    begin(0)
    from django.db import connections

    place = a_place()
    before = deadlocks()
    connections.close_all()
    context = multiprocessing.get_context("spawn")
    over, told = context.Value("b", 0), context.Queue()
    crew = ((dispatcher, order.dispatchers), (admitter, order.admitters), (bystander, 1), (controller, 1))
    processes = [
        context.Process(target=work, args=(order, over, place, n, told), daemon=True)
        for work, number in (*crew, (presser, 1))
        for n in range(number)
    ]
    for process in processes:
        process.start()
    seen = gather(processes, told)
    return {**asdict(order), **seen, **counted(place), "deadlocks": deadlocks() - before}


def a_place() -> Place:
    from runs import policies
    from runs.policies import Match
    from tests.worlds import World

    world, other = World(), World()
    here, labels = world.workspace.pk, {"shift": "night"}
    rule = policies.create_policy(
        actor=world.alice, workspace_id=here, name="by night", match=Match(labels=labels)
    )
    run = world.run("first", session="nightly", labels=labels)
    theirs = other.run("theirs")
    return Place(here, str(run.session_id), rule.pk, other.workspace.pk, theirs.pk)


def deadlocks() -> int:
    from django.db import connection

    if connection.vendor == "sqlite":
        return 0
    with connection.cursor() as cursor:
        cursor.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


def counted(place: Place) -> dict[str, int]:
    """What the rows say, when all is over."""
    from runs.models import Run
    from tests.races.checker import verdict

    found = verdict(place.workspace)
    theirs = Run.objects.filter(workspace=place.elsewhere).exclude(status="ACTIVE", cancel_version=1)
    return {
        "runs stopped": found.stops,
        "listed": found.listed,
        "unlisted": found.unlisted,
        "runs elsewhere that moved": theirs.count(),
    }


if __name__ == "__main__":
    print(json.dumps(storm(Order(**json.loads(sys.argv[1])))), flush=True)  # noqa: T201
