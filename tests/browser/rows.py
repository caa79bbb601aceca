"""The rows that a browser visits, made through the verbs, by the agents and people they stand for."""

from __future__ import annotations

from typing import Any

from effects.drain import drain_run
from runs import gate
from runs.models import Run
from tests.worlds import World, a_person, fresh

SPARE = 24
HOSTILE = "books <img src=x onerror=alert(1)> \u202eevil " + "x" * 120


def flying(world: World, key: str) -> Run:
    """A running run with one effect confirmed, one in flight and two steps queued."""
    run = world.run(key, session="nightly", agent="invoice agent", ungateable=["web_search"])
    world.heartbeat(run)
    world.report(world.opened(run, f"charge:{key}:1"), provider_ref="ch_1")
    world.opened(run, f"charge:{key}:2", lease_s=600)
    for number in range(2):
        gate.register(world.ask(run, step_key=f"queued-{number}"))
    return run


def stopped(world: World) -> Run:
    """A run stopped with one unknown, one partial and several refusals: at rest, not final."""
    run = world.run("stopped", session="nightly", agent="invoice agent", runtime="LangGraph 1.2")
    world.report(world.opened(run, "mail:1"), provider_ref="msg-1")
    world.report(world.opened(run, "file:1"), "partial", provider_ref="212 of 260 rows")
    world.report(world.opened(run, "charge:2"), "unknown", detail="no answer")
    for number in range(5):
        gate.register(world.ask(run, step_key=f"queued-{number}"))
    world.stop(run, note="wrong prices", reason="wrong input")
    world.stop(run, by=world.bob)
    for number in range(3):
        gate.claim(world.ask(run, step_key=f"queued-{number}", seen_version=1))
        world.refused(fresh(run), "charge:3", seen_version=1)
    drain_run(run.pk)
    return run


def fill() -> dict[str, Any]:
    """Fill the database; returns what tests look for."""
    world = World()
    hostile = world.run("hostile", name=HOSTILE)
    world.opened(hostile, "e:" + "k" * 150)
    return {
        "spare": [flying(world, f"spare-{number}").pk for number in range(SPARE)],
        "stopped": stopped(world).pk,
        "hostile": hostile.pk,
        "empty": world.run("empty").pk,
        "people": {name: getattr(world, name).user.email for name in ("alice", "bob", "dana", "mallory")},
        "newcomer": a_person("newcomer", world.workspace, "viewer").email,
    }
