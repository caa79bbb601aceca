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
    """Do `n` calls, or go on until `seconds` are over; a refusal ends it."""
    from runs import access
    from runs.guard import Ask
    from runs.models import Token

    from . import world

    token = Token.objects.select_related("workspace").get(pk=order["token"])
    agent = access.agent(token)
    ask = Ask(order["run"], agent, f"bench-{os.getpid()}", order.get("version", 1))
    here = world.World(token.workspace, agent, agent)
    until = time.monotonic() + order.get("seconds", 3600)
    done = 0
    while done < order.get("n", 10**9) and time.monotonic() < until:
        try:
            world.full_step(here, ask) if order["call"] == "steps" else world.permit(ask)
        except AssertionError:  # refused: the run was stopped
            return {"done": done, "refused": True}
        done += 1
    return {"done": done, "refused": False}


if __name__ == "__main__":
    main()
