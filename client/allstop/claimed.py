"""A step as its worker holds it: claimed, filled, and finished with what its calls add up to."""

from __future__ import annotations

import logging

from allstop.attached import Attached
from allstop.errors import GateUnavailable, Json, LostClaim, Refused, Rejected, StepEnded, Withheld
from allstop.facts import Fact, telling
from allstop.link import Link
from allstop.outcome import Outcome
from allstop.talk import Ask, Talk, asked

log = logging.getLogger("allstop")


class Claimed:
    """Finished with the result that its calls add up to; given back if there were none.

    held: id and claim token of a step that is claimed already.
    """

    def __init__(
        self,
        attached: Attached,
        link: Link,
        *,
        key: str,
        name: str | None = None,
        op_class: str = "external_write",
        held: tuple[str, str] = ("", ""),
    ) -> None:
        self._attached = attached
        self._link = link
        self._spec = {"key": key, "class": op_class} | ({"name": name} if name else {})
        self._outcomes: list[str] = []
        self._waits = False
        self.id, self.claim_token = held

    def step_ref(self, key: str, name: str | None) -> Json:
        """This step, by its claim."""
        return {"id": self.id, "claim_token": self.claim_token}

    def checkpoint(self) -> None:
        """As the run's; also raises Withheld once this step was stopped alone, and LostClaim once it is
        somebody else's, by what was heard.
        """
        self._attached.checkpoint()
        if stopped := self._attached.withheld(self.id):
            raise stopped
        if self._attached.lost(self.claim_token):
            raise LostClaim(f"Step {self._spec['key']!r} is no longer this worker's.")

    def note_outcome(self, outcome: Outcome | None) -> None:
        """Remember what a call did, for the step's own result."""
        if outcome is not None:
            self._outcomes.append(outcome.name)

    def note_waiting(self) -> None:
        """People decide: the server took the claim back, and nobody may finish the step meanwhile."""
        self._waits = True

    def coming_back(self) -> Talk[bool]:
        """Claim it again, if people have decided and it is free. False while they decide.

        The gate is not asked then: a yes that came in between would find the old claim, and refuse it.
        """
        run, lease_s = self._attached, self._link.pace.lease_s
        step = (yield from asked(Ask("GET", f"steps/{self.id}"))).data
        if not self._waits or step.get("status") != "PENDING":
            return not self._waits or step.get("status") != "WAITING_APPROVAL"
        claim = {"worker": run.worker, "seen_version": run.version, "lease_s": lease_s}
        run.let_go(self.claim_token)
        data = yield from run.posting(f"steps/{self.id}/claim", claim)
        self.claim_token, self._waits = str(data["claim_token"]), False
        run.hold(self.claim_token)
        return True

    def claiming(self) -> Talk[None]:
        """Register and claim it. Raises StepEnded when it is not free."""
        if self.id:
            return
        run, lease_s = self._attached, self._link.pace.lease_s
        claim = {"worker": run.worker, "seen_version": run.version, "lease_s": lease_s}
        data = yield from run.posting(f"runs/{run.id}/steps", {**self._spec, "claim": claim})
        if not data.get("claim_token"):
            raise StepEnded(f"Step {self._spec['key']!r} is {data.get('status')}; it can't be claimed.", data)
        self.id, self.claim_token = str(data["id"]), str(data["claim_token"])
        run.hold(self.claim_token)

    def leaving(self, error: BaseException | None) -> Talk[None]:
        """At the end of the step's block."""
        try:
            yield from self._ending(error)
        except (Refused, GateUnavailable, Rejected, Withheld) as late:
            if error is None:
                raise
            log.warning("Step %s was not finished by this worker: %s", self._spec["key"], late)
        finally:
            self._attached.let_go(self.claim_token)

    def _ending(self, error: BaseException | None) -> Talk[None]:
        if self._waits or isinstance(error, LostClaim):
            return
        body: Json = {"claim_token": self.claim_token}
        if not self._outcomes:
            yield from self._giving_back(body)
            return
        body["result"] = self._result(failed=error is not None)
        if error is not None:
            body["detail"] = type(error).__name__
        outbox, path = self._link.outbox, f"steps/{self.id}/finish"
        fact = Fact.of(path, body, step=self.id, told_by=outbox.told_by)
        yield from telling(outbox, fact, self._link.give_up_s)

    def _giving_back(self, body: Json) -> Talk[None]:
        """Nothing was sent. Of a step that was stopped meanwhile nothing is left to give."""
        told = self._attached.is_told(self.id)
        try:
            yield from self._attached.posting(f"steps/{self.id}/release", body)
        except Withheld:
            if not told:
                raise

    def _result(self, *, failed: bool) -> str:
        seen = set(self._outcomes)
        if "unknown" in seen:
            return "unknown"
        changed = bool(seen & {"applied", "partial"})
        if not failed and seen <= {"applied"}:
            return "succeeded"
        return "partial" if changed else "failed"
