"""Every drill, on a real instance. What a drill checks is in it; that it would fail is shown by sabotage."""

from __future__ import annotations

import pytest

from dashboard.drills.engine import Bench, Drill, carry_out
from dashboard.drills.listed import DRILLS

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
def test_passes(
    drill: Drill, place: Bench, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "browser" in drill.needs:
        monkeypatch.setenv("ALLSTOP_CHROMIUM", str(request.getfixturevalue("chromium")))
    ticks: list[str] = []
    result = carry_out(drill, place, ticks.append)
    assert result.findings.why == ""
    assert result.result == "passed"
    assert result.private == drill.private
    assert result.findings.report.startswith("http://127.0.0.1:")
    assert result.findings.situation, "it says what had to occur"
    assert ticks
