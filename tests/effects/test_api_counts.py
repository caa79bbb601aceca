"""How often a call asks the store: bounded, and the same for ten rows and for a thousand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from effects.models import Effect
from runs.models import InFlight, Permit, Press, Run, Step, StopRequest
from runs.store import database_time
from tests.wire import Json, Wire, agent_of, effect_body
from tests.worlds import World, a_kind, in_seconds

pytestmark = pytest.mark.django_db
BRACKETS = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE")


@pytest.fixture
def agent(world: World) -> Wire:
    agent = agent_of(world.workspace)
    agent.get("/runs")  # notes the use of the token, once a minute
    return agent


def asked(call: Callable[[], Any]) -> list[str]:
    """The statements that a call sends, without the brackets of its transaction."""
    with CaptureQueriesContext(connection) as seen:
        call()
    return [one["sql"] for one in seen.captured_queries if not one["sql"].startswith(BRACKETS)]


def in_verb(statements: list[str]) -> list[str]:
    """Those between the lock of the run's row and what is kept alongside the verb."""
    locks = [n for n, sql in enumerate(statements) if sql.startswith("SELECT") and "runs_run" in sql]
    first = next(n for n in locks if "JOIN" not in statements[n])
    ends = [n for n, sql in enumerate(statements) if "runs_evidence" in sql and sql.startswith("INSERT")]
    return statements[first : ends[-1] + 1]


def test_register_and_dispatch_stays_within_its_queries(world: World, agent: Wire) -> None:
    a_kind(world.workspace)
    run = agent.run()
    first = asked(lambda: agent.permitted(run, "charge:1"))
    assert len(in_verb(first)) <= 6, first
    assert len(first) <= 18, "a worker's first call at a boundary is kept as its receipt"
    statements = asked(lambda: agent.permitted(run))
    assert len(in_verb(statements)) <= 6, statements
    assert len(statements) <= 14, statements


def test_a_dispatch_in_a_claimed_step_stays_within_its_queries(agent: Wire) -> None:
    run = agent.run()
    step = agent.claimed(run)
    held = {"id": step["id"], "claim_token": step["claim_token"]}
    agent.permitted(run, "charge:1")
    statements = asked(lambda: agent.permitted(run, step=held))
    assert len(in_verb(statements)) <= 6, statements
    assert len(statements) <= 14, statements


def test_the_second_look_and_a_replay_are_cheap(agent: Wire) -> None:
    run = agent.run()
    permit = agent.permitted(run)["permit"]
    assert len(asked(lambda: agent.look(permit))) <= 4
    agent.post(f"/runs/{run['id']}/effects", effect_body(run, "charge:8"), key="k-1")
    again = asked(lambda: agent.post(f"/runs/{run['id']}/effects", effect_body(run, "charge:8"), key="k-1"))
    assert len(again) == 2, "the token and the answer"


def fill(run: Json, numbers: range) -> None:
    """So many runs, steps, permits, effects and stops in flight, beside what is there."""
    first = Run.objects.get(pk=run["id"])
    now, later = database_time(), in_seconds(60)
    more = Run.objects.bulk_create(
        Run(workspace=first.workspace, key=f"r-{n}", name="r", parameters_digest="") for n in numbers
    )
    steps = Step.objects.bulk_create(
        Step(run=first, key=f"s-{n}", name="s", op_class="read") for n in numbers
    )
    held = {"boundary": "dispatch", "op_class": "external_write", "seen_version": 1, "token": "t"}
    permits = Permit.objects.bulk_create(
        Permit(run=first, step=step, worker="w", permit_until=later, lease_until=later, **held)
        for step in steps
    )
    digests = {"body_digest": "", "plan_digest": "", "parameters_digest": "", "op_class": "external_write"}
    Effect.objects.bulk_create(
        Effect(run=one, step=step, key=f"e-{n}", kind_name="k", title="e", **digests)
        for n, one, step in zip(numbers, more, steps, strict=True)
    )
    Effect.objects.bulk_create(
        Effect(run=first, step=step, permit=permit, key=f"f-{n}", kind_name="k", title="e", **digests)
        for n, step, permit in zip(numbers, steps, permits, strict=True)
    )
    stops = StopRequest.objects.bulk_create(
        StopRequest(
            workspace=first.workspace,
            number=1000 + n,
            run=one,
            run_key=one.key,
            mode="cancel",
            actor="system",
            via="api",
            recorded_at=now,
        )
        for n, one in zip(numbers, more, strict=True)
    )
    Press.objects.bulk_create(
        Press(stop=stop, actor="a", via="api", key="k", mode="cancel") for stop in stops
    )
    InFlight.objects.bulk_create(
        InFlight(stop=stop, permit=permit, state_then="OPEN")
        for stop, permit in zip(stops, permits, strict=True)
    )


LISTS = (
    "/runs",
    "/runs/{id}",
    "/runs/{id}/steps",
    "/runs/{id}/effects",
    "/runs/{id}/evidence",
    "/stops",
    "/kinds",
)


def test_lists_ask_as_often_for_a_thousand_rows_as_for_ten(agent: Wire) -> None:
    run = agent.run()
    fill(run, range(10))
    few = _counts(agent, run)
    fill(run, range(10, 1000))
    assert Effect.objects.filter(run=run["id"]).count() == 1000
    many = _counts(agent, run)
    assert many == few
    assert max(many.values()) <= 8, many


def _counts(agent: Wire, run: Json) -> dict[str, int]:
    paths = [path.format(id=run["id"]) for path in LISTS]
    counts = {}
    for path, name in zip(paths, LISTS, strict=True):
        said = agent.get(path)
        assert said.status == 200
        counts[name] = len(asked(lambda path=path: agent.get(path)))  # type: ignore[misc]
    return counts
