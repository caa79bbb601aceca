"""A stop of a workspace that is killed at point after point: `python -m tests.kills.fanning RUNS [unsafe]`.

Django is loaded once. Each process that presses, or carries on, is a fork of this one; its faults are those
of the launcher. Prints one JSON line for each: the point, how it ended, and behind a chunk how many runs were
stopped by then.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import django

from tests.kills import launcher

if TYPE_CHECKING:  # its module can't be loaded before Django is
    from runs.stops import Wish

CHUNK = 2
UNSAFE = ["--instead", "runs.fanout._left=tests.kills.fanning.left_again"]
UNSAFE += ["--instead", "runs.fences.as_pressed=tests.kills.fanning.pressed_anew"]
# Where a process dies, one after the other, each time it comes there first. The control needs two of them.
POINTS = [
    "runs.scopes._press:commit",  # nothing is recorded
    "runs.scopes._press:answer",  # the gate is shut, and nobody was told
    "runs.fanout._stop_chunk:before",
    "runs.fences._move:after",  # within a chunk's transaction: runs are moved, nothing else is written
    "runs.fences.record_many:after",
    "runs.fences._keep_parts:after",
    "runs.fanout._stop_chunk:commit",
    *["runs.fanout._stop_chunk:answer"] * 2,
    "runs.fences._record:after",
    *["runs.fanout._stop_chunk:answer"] * 3,
    "runs.fanout._fenced:commit",
    "runs.fanout._fenced:answer",
]


def left_again(real: Callable[..., object], stop: object) -> object:
    """The control: every run of the scope, also those that were reached."""
    from runs.models import Run, StopRequest

    assert isinstance(stop, StopRequest)
    one_more = Run.objects.filter(workspace_id=stop.workspace_id, stops__presses__answer="joined")
    return real(stop) if one_more.exists() else Run.objects.filter(workspace_id=stop.workspace_id)


def pressed_anew(real: Callable[..., tuple[object, Wish]], stop: object) -> tuple[object, Wish]:
    """And with another key each time: a stop refuses the same press twice by itself."""
    actor, wish = real(stop)
    return actor, replace(wish, key=secrets.token_hex(4))


def fork(work: Callable[[], None], at: str = "", also: list[str] | None = None) -> int:
    """The signal that ended it, or 0."""
    pid = os.fork()
    if not pid:
        words = ["--at", at] if at else []
        options, _ = launcher.read([*words, "--set", f"runs.fanout.CHUNK={CHUNK}", *(also or []), "--"])
        launcher.prepare(options)
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def press() -> None:
    from runs import access, scopes
    from runs.models import User, Workspace
    from runs.stops import Wish

    alice = access.person(User.objects.get(email="alice@example.org"))
    target = scopes.Target("workspace", Workspace.objects.get(slug="finance").pk)
    scopes.request_scope_stop(actor=alice, wish=Wish(mode="pause", key="one press"), target=target)


def carry_on() -> None:
    from runs import fanout
    from runs.models import StopRequest

    for stop_id in StopRequest.objects.filter(scope="workspace").values_list("pk", flat=True):
        fanout.carry_on(stop_id)


def make(runs: int) -> Callable[[], None]:
    def work() -> None:
        from runs.models import Run, Step, Workspace

        team = Workspace.objects.get(slug="finance")
        for n in range(runs):
            run = Run.objects.create(workspace=team, key=f"r{n}", name=f"r{n}", parameters_digest="")
            Step.objects.create(run=run, key="s", name="s", op_class="read")

    return work


def stopped() -> None:
    from runs.models import StopPart

    sys.stdout.write(f"{StopPart.objects.count()} ")
    sys.stdout.flush()


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    django.setup()
    fork(make(int(sys.argv[1])))
    unsafe = UNSAFE if "unsafe" in sys.argv else []
    for at in [*(POINTS[1::7] if unsafe else POINTS), ""]:
        ended = fork(press if ".scopes." in at else carry_on, at, unsafe)
        if at.endswith("_stop_chunk:answer"):
            fork(stopped)
        print(json.dumps({"at": at, "ended": ended}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
