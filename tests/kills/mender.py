"""What a killed executor leaves of a compensation or a request to cancel: `python -m tests.kills.mender …`.

prepare URL  a refund at this bank, of a charge whose run completed, approved by Bob; prints its id
carry ID     as our executor takes it
mend ID      carries it out once more; then as the sweep and the look-ups do, until its state is known
stop URL     two runs with a job at this provider, each stopped by Alice; prints the ids of both requests to
             cancel, with a comma between
ask ID       as our executor takes such a request
rest IDS     asks once more; then as the sweep does, until each of them is settled or unknown
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


def stop(url: str) -> str:
    from effects.models import Effect
    from runs.models import RulesRow, Step, Workspace
    from tests.worlds import World, a_kind, a_permit, an_effect, in_seconds

    world = World(Workspace.objects.get(slug="finance"))
    told = {"version": 1, "body": {"forward_stops": True}, "changed_by": "a", "changed_at": in_seconds(0)}
    RulesRow.objects.update_or_create(workspace=world.workspace, defaults=told)
    send = {"url": f"{url}/charges", "cancel": {"url": f"{url}/cancels/{{ref}}"}}
    kind = a_kind(world.workspace, "render.video", op_class="external_job", provider="job", send=send)
    asked = []
    for number in (1, 2):
        run, key = world.run(f"render-{number}"), f"render:{number}"
        given = {"key": key, "name": key, "op_class": "external_job", "status": "SUCCEEDED"}
        step = Step.objects.create(run=run, **given)
        permit = a_permit(step, "REPORTED", effect_key=key, ended_at=in_seconds(-5))
        more = {"on_stop": "ask_provider", "provider_ref": f"job-{number}", "job_state": "running"}
        about = an_effect(step, "CONFIRMED", permit, key=key, kind=kind, **more)
        world.stop(run)
        asked.append(str(Effect.objects.get(asks_about=about).pk))
    return ",".join(asked)


def ask(effect_id: str) -> str:
    from effects import forwarder

    return forwarder.forward(effect_id)


def rest(effect_ids: str) -> str:
    from effects import drain, forwarder, forwards
    from effects.models import Effect
    from runs import drain as due
    from runs.store import after

    ids, end = effect_ids.split(","), time.monotonic() + 20
    again = [forwarder.forward(one) for one in ids]
    Effect.objects.filter(pk__in=ids).update(queued_at=after(-60))  # as if no message of it ever came
    while time.monotonic() < end:
        for run_id in due.runs_due():
            drain.drain_run(run_id)
        for one in forwards.waiting():
            forwarder.forward(one)
        found = list(Effect.objects.filter(pk__in=ids).order_by("pk").values_list("settlement", flat=True))
        if not {"DECLARED", "DISPATCHED"} & set(found):
            return ", ".join([*again, *found])
        time.sleep(0.1)
    return "nothing came"


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    django.setup()
    ways = {"prepare": prepare, "carry": carry, "mend": mend, "stop": stop, "ask": ask, "rest": rest}
    print(ways[sys.argv[1]](sys.argv[2]), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
