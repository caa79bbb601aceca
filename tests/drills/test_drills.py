"""Every drill, on a real instance. What a drill checks is in it; that it would fail is shown by sabotage."""

from __future__ import annotations

import pytest

from dashboard.drills.engine import Drill
from dashboard.drills.listed import DRILLS
from tests.drills.conftest import AtWork

# By hand, from the contract: the seven failures, then the seven scenarios.
FOURTEEN = """
    cancel-between-claim-and-dispatch worker-pauses-after-check process-dies-after-request
    retry-timer-after-cancel store-unavailable browser-mid-action controller-restarts-in-drain
    stop-while-the-model-reasons stop-during-a-read stop-during-a-local-write
    stop-after-a-request-timed-out stop-during-an-approval-wait repeated-stop-requests
    resume-after-a-pause
"""
PRIVATE = {"store-unavailable", "controller-restarts-in-drain"}


def test_there_are_the_fourteen_of_the_contract_and_two_never_touch_your_instance() -> None:
    assert [drill.name for drill in DRILLS] == FOURTEEN.split()
    assert {drill.name for drill in DRILLS if drill.private} == PRIVATE
    assert [drill.kind for drill in DRILLS] == ["failure"] * 7 + ["scenario"] * 7


@pytest.mark.parametrize("drill", [pytest.param(drill, id=drill.name) for drill in DRILLS])
def test_passes(drill: Drill, at_work: dict[str, AtWork]) -> None:
    result = at_work[drill.name].result.result()
    assert result.findings.why == ""
    assert result.result == "passed"
    assert result.private == drill.private
    assert result.findings.report.startswith("http://127.0.0.1:")
    assert result.findings.situation, "it says what had to occur"
    assert at_work[drill.name].ticks
