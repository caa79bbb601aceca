"""What a killed executor leaves of a compensation: `python -m tests.kills.mender prepare|carry|mend …`.

prepare URL  a refund at this bank, of a charge whose run completed, approved by Bob; prints its id
carry ID     as our executor takes it
mend ID      carries it out once more; then as the sweep and the look-ups do, until its state is known
"""

from __future__ import annotations

import os
import sys
import time

import django


def prepare(url: str) -> str:
    from runs import access
    from runs.models import Workspace
    from runs.people import issue_token
    from tests.effects.repairing import approved, with_refunds
    from tests.worlds import World

    team = Workspace.objects.get(slug="finance")
    world = World(team)
    scopes = ["runs:read", "runs:write", "stop:write"]
    token, _ = issue_token(actor=access.SET_UP, workspace_id=team.pk, name="charging", scopes=scopes)
    world.agent = access.agent(token)
    return str(approved(with_refunds(world, url)).pk)


def carry(compensation_id: str) -> str:
    from effects import repair

    return repair.carry_out(compensation_id)


def mend(compensation_id: str) -> str:
    from effects import drain, repair
    from effects.models import Compensation
    from runs import drain as due

    again, end = repair.carry_out(compensation_id), time.monotonic() + 20
    while time.monotonic() < end:
        for run_id in due.runs_due():
            drain.drain_run(run_id)
        for one in repair.waiting():
            repair.carry_out(one)
        for one in repair.due():
            repair.check(one)
        state = str(Compensation.objects.get(pk=compensation_id).state)
        if state in ("VERIFIED", "FAILED"):
            return f"{again}; {state}"
        time.sleep(0.1)
    return "nothing came"


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    django.setup()
    ways = {"prepare": prepare, "carry": carry, "mend": mend}
    print(ways[sys.argv[1]](sys.argv[2]), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
