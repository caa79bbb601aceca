"""Coverage: what the gates of a workspace see, and what they can't, in queries that don't grow with it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from effects import coverage
from runs import gate
from runs.coverage import Runtime, Tool
from runs.models import Permit, Receipt, Run, Worker
from runs.store import database_time
from tests.wire import agent_of
from tests.worlds import World, a_kind, a_permit, a_run, a_step, an_effect

pytestmark = pytest.mark.django_db


def of(world: World) -> coverage.Coverage:
    return coverage.of_workspace(world.workspace.pk)


def a_worker(run: Run, name: str, version: int | None = 1) -> Worker:
    return Worker.objects.create(run=run, name=name, confirmed_version=version)


def test_workers_are_told_by_runtime_and_agent_with_what_they_hold(world: World) -> None:
    mine: dict[str, Any] = {"workspace": world.workspace, "runtime": "celery", "agent": "books"}
    moved, done, other = a_run(**mine, cancel_version=2), a_run("COMPLETED", **mine), a_run(**mine)
    a_run(workspace=world.workspace, runtime="lambda")
    a_run(workspace=world.elsewhere, runtime="celery")
    for run, name, version in ((moved, "w-1", 2), (moved, "w-2", 1), (done, "w-1", 1), (other, "w-3", None)):
        a_worker(run, name, version)
    Receipt.objects.create(run=moved, worker="w-1", boundary="dispatch", version=2)
    Receipt.objects.create(run=moved, worker="w-2", boundary="checkpoint", version=1)
    Receipt.objects.create(run=other, worker="w-1", boundary="dispatch", version=1)
    a_permit(a_step(done, "SUCCEEDED"), "REPORTED", worker="w-1")
    found = {one.runtime: one for one in of(world).seen.runtimes}
    assert set(found) == {"celery", "lambda"}
    assert found["celery"] == Runtime(
        "celery", "books", runs=3, open_runs=2, unnamed=0, last_heard_at=None,
        workers=4, never=2, confirmed=1, behind=2,
    )  # fmt: skip
    assert (found["lambda"].unnamed, found["lambda"].workers) == (1, 0)


def test_a_worker_that_asks_the_gate_is_seen_there(world: World) -> None:
    """Through the verbs: admission names it, its first gate call is its receipt."""
    run = world.run(runtime="celery")
    (before,) = of(world).seen.runtimes
    gate.claim(world.ask(run, step_key="pay"))
    (after,) = of(world).seen.runtimes
    assert (before.workers, before.never, before.behind) == (1, 1, 1)
    assert (after.workers, after.never, after.confirmed, after.behind) == (1, 0, 1, 0)
    assert after.last_heard_at is not None


def test_kinds_in_use_are_registered_or_opaque(world: World) -> None:
    run = a_run(workspace=world.workspace)
    kind = a_kind(world.workspace, lookup={"url": "https://bank.example/{key}"})
    a_kind(world.workspace, "mail.send")
    step = a_step(run)
    for settlement in ("CONFIRMED", "UNKNOWN"):
        an_effect(step, settlement, kind=kind)
    Permit.objects.all().delete()
    an_effect(step, "UNKNOWN")
    effects = of(world)
    assert [(one.name, one.effects, one.unknown, one.can_look_up) for one in effects.registered] == [
        ("bank.charge", 2, 1, True),
        ("mail.send", 0, 0, False),
    ]
    assert [(one.name, one.registered, one.effects) for one in effects.opaque] == [("bank.charge", False, 1)]
    assert (effects.effects, effects.opaque_effects) == (3, 1)


def test_tools_outside_the_gates_are_told_by_their_runs(world: World) -> None:
    a_run(workspace=world.workspace, ungateable=["web search"])
    newest = a_run("COMPLETED", workspace=world.workspace, ungateable=["web search", "code"])
    assert of(world).seen.tools == [Tool("web search", 2, 1, newest.pk), Tool("code", 1, 0, newest.pk)]


def test_what_ended_long_ago_is_left_out_and_what_is_open_stays(world: World) -> None:
    old = database_time() - timedelta(days=60)
    a_run("COMPLETED", workspace=world.workspace, runtime="old", admitted_at=old, last_heard_at=old)
    a_run(workspace=world.workspace, runtime="open", admitted_at=old, last_heard_at=old)
    assert [one.runtime for one in of(world).seen.runtimes] == ["open"]


def test_the_same_queries_are_made_for_ten_runs_and_for_many(world: World) -> None:
    def asked() -> int:
        with CaptureQueriesContext(connection) as seen:
            of(world)
        return len(seen.captured_queries)

    a_worker(a_run(workspace=world.workspace, ungateable=["a"]), "w-1")
    before = asked()
    for n in range(20):
        run = a_run(workspace=world.workspace, runtime=f"r{n}", ungateable=[f"tool {n}"])
        a_worker(run, "w-1")
        an_effect(a_step(run))
    assert asked() == before <= 6


def test_the_api_tells_the_workspace_of_its_token_alone(world: World) -> None:
    a_run(workspace=world.workspace, runtime="celery", ungateable=["web search"])
    told = agent_of(world.workspace).get("/coverage")
    assert told.status == 200
    assert [one["runtime"] for one in told.data["runtimes"]] == ["celery"]
    assert [one["name"] for one in told.data["ungateable"]] == ["web search"]
    mallory = agent_of(world.elsewhere)
    assert mallory.get("/coverage").data["runtimes"] == []
    assert mallory.get(f"/coverage?workspace_id={world.workspace.pk}").status == 404
    assert agent_of(world.workspace, run=world.run()).get("/coverage").status == 404
    assert agent_of(world.workspace).get("/coverage?days=0").problem == "invalid-request"
