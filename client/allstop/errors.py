"""What the client raises.

Two families, split by one question: may the agent carry on if it swallows this?

`Refused` and `GateUnavailable` are BaseException, not Exception. Agents wrap their tools in `except
Exception` and in retry helpers; a stop that can be caught there is told to the model as "the tool failed, try
again" and the run goes on. As with KeyboardInterrupt, only code that names them (or catches everything) holds
them up, and even then the next gate call is refused again. The rest are ordinary exceptions: trying again is
harmless, because every attempt passes the gate anew and a key that is settled or in doubt is never sent a
second time.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


class Refused(BaseException):
    """The gate said no. Nothing was sent, and the refusal is on record with both versions."""

    def __init__(self, message: str, problem: Json | None = None) -> None:
        super().__init__(message)
        self.problem: Json = problem or {}

    @property
    def run_status(self) -> str | None:
        """The run's status as the server gave it with the refusal, e.g. CANCELLING."""
        return self.problem.get("run_status")

    @property
    def current_version(self) -> int | None:
        """The run's cancel version at the refusal."""
        return self.problem.get("current_version")

    @property
    def stop_id(self) -> str | None:
        """The stop behind the refusal, when it was a stop."""
        return self.problem.get("stop_id")

    @property
    def what_to_do(self) -> str:
        """One sentence for the worker."""
        return str(self.problem.get("what_to_do") or "")


class StopRequested(Refused):
    """A stop is in force. End at this safe point: start nothing new."""

    @property
    def may_resume(self) -> bool:
        """Whether the run is only held: after a resume, which is a person's decision, it can be attached to
        again.
        """
        return self.run_status in ("PAUSING", "PAUSED")


class StaleVersion(Refused):
    """The run goes on at another version than this worker carries. Attach again before you ask again."""


class LostClaim(Refused):
    """The step or permit is no longer this worker's. Do nothing more with it."""


class GateUnavailable(BaseException):
    """The gate gave no answer that permits. Nothing was sent: without a gate nothing may start."""


class ReportNotDelivered(GateUnavailable):
    """The call was made, but the server could not be told its outcome. `result`: what it returned.

    kept: the report is on disk, and is told when the server is there again, by this process or a later one.
    """

    def __init__(
        self, message: str, *, permit_id: str, outcome: str, result: object = None, kept: bool = False
    ) -> None:
        super().__init__(message)
        self.kept = kept
        self.permit_id = permit_id
        self.outcome = outcome
        self.result = result


class PermitExpired(Exception):
    """The permit ended before the send could begin. Nothing was sent; asking again is safe."""


class MustWait(Exception):
    """This key was sent before and its outcome is not known yet. It may not be sent again now."""

    def __init__(self, message: str, effect: Json) -> None:
        super().__init__(message)
        self.effect = effect


class WaitingForApproval(Exception):
    """People decide first: the effect is declared, and was not sent. Send it again later, with its key."""

    def __init__(self, message: str, effect: Json, review: Json) -> None:
        super().__init__(message)
        self.effect = effect
        self.review = review


class NotApproved(Exception):
    """People decided against this effect, or not in time. Nothing was sent; this run may go on without it."""

    def __init__(self, message: str, problem: Json) -> None:
        super().__init__(message)
        self.problem = problem


class Withheld(Exception):
    """A stop holds this step, or effects of this kind, and not the run. Nothing was sent; other work of the
    run may begin. Asked again, it is refused again; a stop of a kind until it is released, that of a step for
    good.
    """

    def __init__(self, message: str, problem: Json | None = None) -> None:
        super().__init__(message)
        self.problem: Json = problem or {}

    @property
    def scope(self) -> str:
        """What the stop is of: step, or policy; "" when that was not told."""
        return str(self.problem.get("scope") or "")

    @property
    def stop_id(self) -> str | None:
        """The stop behind it, when that was told."""
        return self.problem.get("stop_id")


class RetryRefused(Exception):
    """No other try: it may have happened, only a worker's word denies it, or it was tried often enough.

    Nothing was scheduled. Have it looked up, or let a person decide.
    """

    def __init__(self, message: str, problem: Json) -> None:
        super().__init__(message)
        self.problem = problem


class RetryNotDue(Exception):
    """Another try is scheduled, and its time has not come. Nothing was sent; send it again when it is due."""


class Queued(Exception):
    """Effects of this kind are sent by Allstop itself: it is queued, and your function was not called."""

    def __init__(self, message: str, effect: Json) -> None:
        super().__init__(message)
        self.effect = effect


class NotApplied(Exception):
    """Raise it from the function you send when you know that the outside world did not change."""


class NeverSent(RuntimeError):
    """The block of an effect ended without send(). Nothing was declared; call the function through send()."""


class NotQuiet(Exception):
    """The run can't be completed: a permit is open or a step is still held."""


class RunEnded(Exception):
    """The run with this key has ended before. Use a new key for a new run."""


class StepEnded(Exception):
    """The step with this key is not free: it has ended, or somebody else holds it."""

    def __init__(self, message: str, step: Json) -> None:
        super().__init__(message)
        self.step = step


class Rejected(Exception):
    """The server understood the request and does not accept it: a mistake of the caller."""

    def __init__(self, status: int, problem: Json) -> None:
        super().__init__(f"{status} {problem.get('title', '')}: {problem.get('detail', '')}".strip(" :"))
        self.status = status
        self.problem = problem


_REFUSALS: dict[str, type[Refused]] = {
    "stopped": StopRequested,
    "stale-version": StaleVersion,
    "lost-claim": LostClaim,
}

_NO_RETRY = ("blind-retry", "retry-unverified", "retry-too-old", "retries-used-up")


def from_problem(status: int, problem: Json) -> BaseException:
    """The exception for an answer of 400 and above. `problem` is the RFC 9457 document, possibly empty."""
    name = str(problem.get("type", "")).rpartition("/")[2]
    if name == "stopped" and problem.get("run_goes_on") is True:
        return Withheld(_sentence(problem), problem)
    if name in _REFUSALS:
        return _REFUSALS[name](_sentence(problem), problem)
    if name == "retry-not-due":
        return RetryNotDue(_sentence(problem))
    if name in _NO_RETRY:
        return RetryRefused(_sentence(problem), problem)
    if name == "not-approved":
        return NotApproved(_sentence(problem), problem)
    if name == "not-quiet":
        return NotQuiet(_sentence(problem))
    if status in (401, 403):
        return GateUnavailable(f"Allstop refused this token ({status}). {problem.get('detail', '')}".strip())
    return Rejected(status, problem)


def _sentence(problem: Json) -> str:
    said = [str(problem.get(name) or "").strip().rstrip(".") for name in ("title", "detail", "what_to_do")]
    new = [words for n, words in enumerate(said) if words and not any(words in before for before in said[:n])]
    return ". ".join(new or ["Refused"]) + "."
