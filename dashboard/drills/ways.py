"""What the agents of the seven failures do. Each takes a Work (see agent.py)."""

from __future__ import annotations

from .agent import Work


def claim_then_charge(work: Work) -> None:
    """Claim a step, wait, then ask for a permit."""
    with work.run.step("charge", "Charge a card") as step:
        work.mark("claimed")
        work.wait()
        work.mark("asking")
        work.charge(work.words["effect"], step)


def charge(work: Work) -> None:
    """One effect, at once."""
    work.charge(work.words["effect"])
