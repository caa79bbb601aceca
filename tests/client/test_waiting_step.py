"""A step whose effect people decide about: when the gate is asked again. Without a wire."""

from __future__ import annotations

import pytest
from allstop.attached import Attached
from allstop.claimed import Claimed
from allstop.link import Link, Pace
from allstop.outbox import Outbox
from allstop.talk import Answer, Ask, carry_out


def a_waiting_step() -> Claimed:
    link = Link("w-1", Pace(heartbeat_s=1, report_for_s=1, lease_s=30), 1.0, Outbox(None, told_by="t"))
    step = Claimed(Attached(link, {"key": "r"}), link, key="pay", held=("ste_1", "old"))
    step.note_waiting()
    return step


@pytest.mark.parametrize(
    ("status", "again", "claim_token", "calls"),
    [
        ("WAITING_APPROVAL", False, "old", ["GET steps/ste_1"]),
        ("PENDING", True, "new", ["GET steps/ste_1", "POST steps/ste_1/claim"]),
        ("WITHHELD", True, "old", ["GET steps/ste_1"]),
    ],
)
def test_the_gate_is_asked_again_only_when_people_have_decided(
    status: str, again: bool, claim_token: str, calls: list[str]
) -> None:
    step, seen = a_waiting_step(), []

    def send(ask: Ask) -> Answer:
        seen.append(f"{ask.method} {ask.path}")
        return Answer(200, {"status": status, "claim_token": "new"})

    assert carry_out(step.coming_back(), send) is again
    assert (step.claim_token, seen) == (claim_token, calls)
