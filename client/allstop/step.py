"""A step: a unit of a run that this worker claims, fills with effects, and finishes."""

from __future__ import annotations

import contextlib
import logging
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING

from allstop.errors import GateUnavailable, Json, LostClaim, Refused, Rejected, StepEnded
from allstop.gated import Gated
from allstop.outcome import Outcome
from allstop.permit import Permit

if TYPE_CHECKING:
    from allstop.run import Run

log = logging.getLogger("allstop")


class Step(Gated):
    """Claimed on entry, finished on exit with the result that its calls add up to, given back if there were
    none.

    held: id and claim token of a step that is claimed already.
    """

    def __init__(
        self, run: Run, spec: Json, *, lease_s: float = 30, held: tuple[str, str] = ("", "")
    ) -> None:
        self.run = run
        self._spec = spec
        self._lease_s = lease_s
        self._outcomes: list[str] = []
        self.id, self.claim_token = held

    def step_ref(self, key: str, name: str | None) -> Json:
        """This step, by its claim."""
        return {"id": self.id, "claim_token": self.claim_token}

    def step_of(self, permit: Permit) -> AbstractContextManager[Gated]:
        """This step goes on after the call."""
        return contextlib.nullcontext(self)

    def note_outcome(self, outcome: Outcome | None) -> None:
        """Remember what a call did, for the step's own result."""
        if outcome is not None:
            self._outcomes.append(outcome.name)

    def __enter__(self) -> Step:
        if self.id:
            return self
        claim = {"worker": self.run.worker, "seen_version": self.run.version, "lease_s": self._lease_s}
        data = self.run.post(f"runs/{self.run.id}/steps", {**self._spec, "claim": claim})
        if not data.get("claim_token"):
            raise StepEnded(f"Step {self._spec['key']!r} is {data.get('status')}; it can't be claimed.", data)
        self.id, self.claim_token = str(data["id"]), str(data["claim_token"])
        self.run.hold(self.claim_token)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._end(error)
        except (Refused, GateUnavailable, Rejected) as late:
            if error is None:
                raise
            log.warning("Step %s was not finished by this worker: %s", self._spec["key"], late)
        finally:
            self.run.let_go(self.claim_token)

    def _end(self, error: BaseException | None) -> None:
        if isinstance(error, LostClaim):
            return
        body: Json = {"claim_token": self.claim_token}
        if not self._outcomes:
            self.run.post(f"steps/{self.id}/release", body)
            return
        body["result"] = self._result(failed=error is not None)
        if error is not None:
            body["detail"] = type(error).__name__
        self.run.post(f"steps/{self.id}/finish", body)

    def _result(self, *, failed: bool) -> str:
        seen = set(self._outcomes)
        if "unknown" in seen:
            return "unknown"
        changed = bool(seen & {"applied", "partial"})
        if not failed and seen <= {"applied"}:
            return "succeeded"
        return "partial" if changed else "failed"
