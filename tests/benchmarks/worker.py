"""One worker process of a benchmark: reads orders as lines, does them, answers with what it did."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any


def main() -> None:
    """Until the orders end."""
    import django

    django.setup()
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(_do(json.loads(line))), flush=True)


def _do(order: dict[str, Any]) -> dict[str, Any]:
    """Do `n` calls, or go on until `seconds` are over; a refusal ends it, unless it asks `again`."""
    from runs import access
    from runs.guard import Ask
    from runs.models import Token

    from . import world

    token = Token.objects.select_related("workspace").get(pk=order["token"])
    agent = access.agent(token)
    ask = Ask(order["run"], agent, f"bench-{os.getpid()}", order.get("version", 1))
    here = world.World(token.workspace, agent, agent)
    until = time.monotonic() + order.get("seconds", 3600)
    done = refused = 0
    at: list[float] = []
    if order["call"] == "stick":
        world.stick(order["run"], order["stuck_s"])
    while done + refused < order.get("n", 10**9) and time.monotonic() < until:
        try:
            _once(order["call"], here, ask)
            done += 1
            at.append(time.time())
        except AssertionError:  # refused: the run was stopped
            refused += 1
            if not order.get("again"):
                break
    return {"done": done, "refused": refused, "at": at if "seconds" in order else []}


def _once(call: str, here: Any, ask: Any) -> None:
    from . import world

    if call == "steps":
        world.full_step(here, ask)
    elif call == "admit":
        world.admit(here)
    else:
        world.permit(ask)


if __name__ == "__main__":
    main()
