"""Whatever a schema allows or forbids, at random: no fault of ours, and no status that it does not name."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest
import schemathesis
from django.core.wsgi import get_wsgi_application
from hypothesis import HealthCheck, given, settings
from schemathesis.generation import GenerationMode

from tests.wire import Wire, agent_of, kind_body, new_key
from tests.worlds import World

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long]
TRIES = 100  # an operation


@pytest.fixture
def agent() -> Wire:
    return agent_of(World().workspace)


def test_no_request_is_a_fault_of_ours(agent: Wire) -> None:
    schema: Any = schemathesis.openapi.from_wsgi("/api/v1/openapi.json", get_wsgi_application())
    seen: dict[str, Counter[int]] = defaultdict(Counter)
    for found in schema.get_all_operations():
        operation = found.ok()
        try_many(operation, agent, seen[operation.label])
    assert len(seen) == 29
    assert all(answers.total() >= TRIES / 2 for answers in seen.values()), seen
    assert Counter(status for answers in seen.values() for status in answers).keys() >= {200, 201, 409, 422}


def try_many(operation: Any, agent: Wire, answers: Counter[int]) -> None:
    ids = things(agent)
    documented = {int(status) for status in operation.definition.raw["responses"]}
    cases = operation.as_strategy(generation_mode=GenerationMode.POSITIVE) | operation.as_strategy(
        generation_mode=GenerationMode.NEGATIVE
    )

    @settings(max_examples=TRIES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(case=cases)
    def one(case: Any) -> None:
        case.path_parameters |= {name: ids[name] for name in case.path_parameters or {} if name in ids}
        said = case.call(headers={"Authorization": f"Bearer {agent.token}"})
        answers[said.status_code] += 1
        assert said.status_code < 500, said.text
        assert said.status_code in documented, said.text

    one()


def things(agent: Wire) -> dict[str, str]:
    """Something to ask about, new for each operation: ids by the names of the path's parts."""
    run = agent.run(new_key())
    got = agent.permitted(run)
    agent.put("/kinds/bank.charge", kind_body())
    step = agent.claimed(run)
    stop = agent.post("/stops", {"run_key": "never comes"}).data
    return {
        "run_id": run["id"],
        "step_id": step["id"],
        "permit_id": got["permit"]["id"],
        "effect_id": got["effect"]["id"],
        "stop_id": stop["id"],
        "name": "bank.charge",
    }
