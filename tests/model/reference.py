"""What the machine believes by itself: written by hand from the contract, never read from the code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

FINAL = {"CANCELLED", "COMPLETED", "FAILED", "ABANDONED"}
MOVING = {"ACTIVE", "PAUSING", "CANCELLING", "CANCELLING_TIMEOUT"}
AT_REST = {"PAUSED", "CANCELLED", "UNKNOWN", "COMPLETED", "FAILED"}
# Run.status, each arrow of the contract; what a resume alone may do, and a restore alone, is apart.
ARROWS: dict[str, set[str]] = {
    "ACTIVE": {"PAUSING", "CANCELLING", "ABANDONED", "COMPLETED", "FAILED"},
    "PAUSING": {"PAUSED", "CANCELLING", "ABANDONED"},
    "PAUSED": {"CANCELLING", "ABANDONED"},
    "CANCELLING": {"CANCELLED", "UNKNOWN", "CANCELLING_TIMEOUT", "ABANDONED"},
    "CANCELLING_TIMEOUT": {"CANCELLED", "UNKNOWN", "ABANDONED"},
    "UNKNOWN": {"CANCELLED", "ABANDONED"},
}
# Effect.settlement: out of UNKNOWN only with evidence, out of a settled one only into doubt.
EFFECT_ARROWS: dict[str, set[str]] = {
    "DECLARED": {"DISPATCHED", "NOT_STARTED"},
    "DISPATCHED": {"CONFIRMED", "PARTIAL", "NOT_APPLIED", "UNKNOWN", "DECLARED"},
    "NOT_APPLIED": {"DISPATCHED", "UNKNOWN"},
    "UNKNOWN": {"CONFIRMED", "PARTIAL", "NOT_APPLIED", "ACCEPTED_UNKNOWN"},
    "ACCEPTED_UNKNOWN": {"CONFIRMED", "PARTIAL", "NOT_APPLIED"},
    "CONFIRMED": {"UNKNOWN"},
    "PARTIAL": {"UNKNOWN"},
    "NOT_STARTED": {"UNKNOWN"},
}
COMPENSATION_ARROWS: dict[str, set[str]] = {
    "PROPOSED": {"APPROVED", "REJECTED", "EXPIRED", "VOID", "NOT_NEEDED"},
    "APPROVED": {"DISPATCHED", "EXPIRED", "VOID", "PROPOSED"},
    "DISPATCHED": {"VERIFIED", "FAILED", "UNKNOWN", "PROPOSED"},
    "UNKNOWN": {"VERIFIED", "FAILED", "ACCEPTED_UNKNOWN"},
    "FAILED": {"NOT_NEEDED"},
}
SETTLED = {"CONFIRMED", "PARTIAL", "NOT_APPLIED", "NOT_STARTED"}


def reach(arrows: dict[str, set[str]], start: str) -> set[str]:
    """Every status to which one call may lead, in as many arrows as it takes."""
    found, left = {start}, [start]
    while left:
        for one in arrows.get(left.pop(), set()) - found:
            found.add(one)
            left.append(one)
    return found


def outcome(status: str, effects: Iterable[str], repairs: list[tuple[str, bool]], sent: bool) -> str:
    """The outcome of 01 §1.2, first match wins. `repairs`: state, and whether a failure is undecided yet."""
    known, states = set(effects), {state for state, _ in repairs}
    pending = bool(states & {"PROPOSED", "APPROVED", "DISPATCHED"}) or ("FAILED", True) in repairs
    in_order: list[tuple[bool, str]] = [
        (status in MOVING, "not ended"),
        (status == "ABANDONED", "abandoned"),
        (bool(known & {"DISPATCHED", "UNKNOWN"}) or "UNKNOWN" in states, "awaiting verification"),
        (pending, "compensation pending"),
        (status == "PAUSED", "resumable pause"),
        ("ACCEPTED_UNKNOWN" in known | states, "ended with an accepted unknown"),
        (status in ("COMPLETED", "FAILED"), status.lower()),
        (bool(known & {"CONFIRMED", "PARTIAL"}), "partially completed"),
        (sent, "stopped after safe settlement"),
    ]
    return next((word for holds, word in in_order if holds), "stopped before effect")


@dataclass
class RunRef:
    """A run as people decided on it: `goes_on` from its admission, or a resume, to the next stop or end."""

    pk: str
    scopes: set[str]
    owner: str = ""
    goes_on: bool = True
    ended: bool = False
    stoppers: set[str] = field(default_factory=set)
    stopped_after_end: bool = False


@dataclass
class Call:
    """What a worker holds in its own memory: a permit, and how far it came with it."""

    permit: Any
    run_id: str
    key: str
    matter: str
    kind: str
    at_s: float
    body: bytes = b""
    came: str = "opened"
    answer: str = ""

    @property
    def wire_key(self) -> str:
        """The key that the provider sees."""
        return self.key if self.matter == "repair" else f"{self.run_id}/{self.key}"


@dataclass
class Yes:
    """An approval as the person gave it: what they were shown, and until when it counts."""

    person: str
    shown: tuple[Any, ...]
    until_s: float
