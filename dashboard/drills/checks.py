"""What a drill found: did its situation occur, was it safe, can an operator read it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

PASSED, FAILED, INCONCLUSIVE = "passed", "failed", "inconclusive"


class NotMade(Exception):
    """The situation of this drill can't be made here. The text is a sentence for people."""


@dataclass(frozen=True)
class Check:
    """One expectation beside what was observed."""

    what: str
    expected: str
    observed: str
    ok: bool


@dataclass
class Findings:
    """All checks of one drill. `report`: the address of its run's report. `error`: it broke off, and why."""

    situation: list[Check] = field(default_factory=list)
    safety: list[Check] = field(default_factory=list)
    evidence: list[Check] = field(default_factory=list)
    report: str = ""
    error: str = ""

    def add(self, kind: str, what: str, expected: object, observed: object, ok: bool | None = None) -> bool:
        """Note a check of that kind; without `ok`, the two have to be equal. Whether it holds."""
        holds = expected == observed if ok is None else ok
        getattr(self, kind).append(Check(what, text_of(expected), text_of(observed), holds))
        return holds

    def not_made(self, why: str) -> None:
        """The situation did not come about. why: a sentence; empty when a check says so already."""
        if why:
            self.situation.append(Check("The situation can be made here", "yes", "no", ok=False))
            self.error = why

    @property
    def result(self) -> str:
        """Inconclusive unless the situation occurred; then failed if anything was not as it must be."""
        if not self.situation or not all(check.ok for check in self.situation):
            return INCONCLUSIVE
        if not all(check.ok for check in [*self.safety, *self.evidence]):
            return FAILED
        whole = self.safety and self.evidence and not self.error
        return PASSED if whole else INCONCLUSIVE

    @property
    def why(self) -> str:
        """One sentence about what was not as expected; empty when it passed."""
        if self.result == PASSED:
            return ""
        inconclusive = self.result == INCONCLUSIVE
        if inconclusive and self.error:
            return self.error
        checks = self.situation if inconclusive else [*self.safety, *self.evidence]
        wrong = next((check for check in checks if not check.ok), None)
        if wrong is None:
            return "It broke off before everything was checked."
        return f"{wrong.what}: expected {wrong.expected}, observed {wrong.observed}."

    def told(self) -> dict[str, Any]:
        """The checks as plain values."""
        kinds = ("situation", "safety", "evidence")
        return {kind: [asdict(check) for check in getattr(self, kind)] for kind in kinds}


def text_of(value: object) -> str:
    """As it is shown."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
