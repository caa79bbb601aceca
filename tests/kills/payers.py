"""Executors that die once the bank has booked: `python -m tests.kills.payers BANK LEDGER KILLS [again]`.

Django is loaded once; whoever sends is a fork of this process, and dies at one of POINTS. Then another fork
goes on as a restarted installation does: each message comes twice more, leases run out, look-ups ask. Prints
one line of JSON: how each ended, and how its rows stood before that and stand now. `again` is the control: it
sends once more what was not recorded, as a queue does that gives an unfinished task to the next worker.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import django

from tests.kills import launcher
from tests.provider import Ledger, control

AT_ONCE = 6
WITHIN_S = 240.0
HELD = "the bank holds its answer"
POINTS = (
    HELD,
    "effects.providers.send:after",
    "effects.settle.report:commit",
    "effects.settle.report:answer",
)
KIND: dict[str, Any] = {
    "provider": "http",
    "op_class": "external_write",
    "commits": "When the bank books it.",
    "idempotency": "The key.",
    "compensation": "none",
    "durable_before_pause": "The key.",
    "when_unknown": "It is looked up.",
    "settle_window_s": 1,
    "check_every_s": [1],
    "check_for_s": 60,
    "retry_after_s": [1, 1],
}


def order(n: int) -> str:
    return f"order-{n:04}"


def point(n: int) -> str:
    return POINTS[n % len(POINTS)]


def fork(work: Callable[[], object]) -> int:
    """The process that does this; it never returns from it."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            work()
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    return pid


def ended(pid: int) -> int:
    """0, or how it failed: the signal that ended it is negative."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def make(bank: str, kills: int) -> None:
    """A team, and effects that wait for our executor."""
    from effects import intents
    from effects.models import Kind
    from runs.models import Workspace
    from tests.worlds import World

    world = World(Workspace.objects.create(name="Pay", slug="pay"))
    at = {"send": {"url": f"{bank}/charges"}, "lookup": {"url": f"{bank}/charges?key={{key}}"}}
    Kind.objects.create(workspace=world.workspace, name="bank.pay", **at, **KIND)
    plan = intents.plan_bytes(none_because="a test")
    for start in range(0, kills, 20):
        run = world.run()
        for n in range(start, min(kills, start + 20)):
            new = intents.Intention(order(n), "bank.pay", json.dumps({"order": order(n)}).encode(), plan)
            intents.declare(world.ask(run, step_key=order(n)), new)


def send(n: int) -> None:
    """As our executor is told to; it comes no further than its point."""
    from effects import executor
    from effects.models import Effect

    if point(n) != HELD:
        options, _ = launcher.read(["--at", point(n), "--"])
        launcher.prepare(options)
    executor.execute(Effect.objects.values_list("pk", flat=True).get(key=order(n)))


def kill(n: int, ledger: Ledger) -> int:
    pid = fork(lambda: send(n))
    if point(n) == HELD:
        ledger.wait_for("held", order(n), within_s=60)
        os.kill(pid, signal.SIGKILL)
    return ended(pid)


def kill_all(kills: int, bank: str, ledger: Ledger) -> list[int]:
    for n in range(0, kills, len(POINTS)):
        control(bank, fault={"do": "hold_after", "key": order(n), "for_s": 20})
    codes: list[int] = []
    for start in range(0, kills, AT_ONCE):
        with ThreadPoolExecutor(AT_ONCE) as threads:
            codes += threads.map(lambda n: kill(n, ledger), range(start, min(kills, start + AT_ONCE)))
    return codes


def stand() -> None:
    """One line: settlement, ground and permit of each effect."""
    from effects.models import Effect

    rows = Effect.objects.order_by("key").values_list("key", "settlement", "ground", "permit__state")
    print(json.dumps({key: list(rest) for key, *rest in rows}))  # noqa: T201


def go_on() -> None:
    """What a restarted installation does by itself, until no more comes of it."""
    from effects import drain, executor, lookup, queue, reconcile
    from effects.models import Effect
    from runs import drain as due

    ids, end = list(Effect.objects.values_list("pk", flat=True)), time.monotonic() + WITHIN_S
    for effect_id in [*ids, *ids]:
        executor.execute(effect_id)
    while time.monotonic() < end and Effect.objects.filter(settlement__in=("DISPATCHED", "UNKNOWN")).exists():
        for run_id in due.runs_due():
            drain.drain_run(run_id)
        for effect_id in reconcile.due(500):
            lookup.check_effect(effect_id)
        for effect_id in queue.waiting():
            executor.execute(effect_id)
        time.sleep(0.05)
    for effect_id in ids:
        executor.execute(effect_id)


def send_again() -> None:
    """The control."""
    from effects import providers
    from effects.models import Effect

    for effect in Effect.objects.filter(settlement="DISPATCHED").select_related("kind"):
        assert effect.kind is not None
        providers.send(effect, effect.kind, lambda: None)


def main() -> None:
    bank, ledger, kills = sys.argv[1], Ledger(Path(sys.argv[2])), int(sys.argv[3])
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    django.setup()
    from effects import executor, settle

    executor.LEASE_S, settle.FIRST_CHECK_S = 1.0, 0.2
    assert ended(fork(lambda: make(bank, kills))) == 0
    print(json.dumps(kill_all(kills, bank, ledger)), flush=True)  # noqa: T201
    for work in (stand, send_again if "again" in sys.argv else go_on, stand):
        assert ended(fork(work)) == 0


if __name__ == "__main__":
    main()
