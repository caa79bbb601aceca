"""A permit: one attempt to cross a boundary, between the gate's yes and the report of what happened."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from allstop.errors import (
    GateUnavailable,
    Json,
    LostClaim,
    PermitExpired,
    Refused,
    Rejected,
    ReportNotDelivered,
    StaleVersion,
    StopRequested,
)
from allstop.outcome import Outcome
from allstop.wire import Wire

T = TypeVar("T")
Judge = Callable[[object], Outcome]

log = logging.getLogger("allstop")

_MAX_PART = 64 * 1024


def now() -> float:
    """Seconds of a clock that never goes back and, where there is one, runs on while the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class Permit:
    """Holds one permit until it is reported. `asked_at` is now() from before the gate was first asked.

    The permit ends by the database's clock; counting from before the question can only end it sooner here.
    """

    def __init__(self, wire: Wire, data: Json, *, asked_at: float, report_for_s: float) -> None:
        try:
            self.id, self.step_id = str(data["id"]), str(data["step_id"])
            self.claim_token = str(data["claim_token"])
            self.seen_version = int(data["seen_version"])
            self._ends_at = asked_at + float(data["permit_ttl_s"])
        except (KeyError, TypeError, ValueError) as error:
            raise GateUnavailable(f"Allstop sent a permit that can't be read: {error!r}.") from error
        self._wire = wire
        self._report_for_s = report_for_s
        self.outcome: Outcome | None = None
        self.answer: Json = {}

    def spend(self, call: Callable[[], T], judge: Judge, *, keep_result: bool) -> T:
        """Look, then call at once in this very thread, then report. `keep_result`: also store a plain return
        value.

        Raises Refused, GateUnavailable or PermitExpired with nothing sent; what `call` raises;
        ReportNotDelivered.
        """
        self._look()
        try:
            value = call()
        except BaseException as error:
            self.outcome = _judged(judge, error)
            self._report_failure(self.outcome, error)
            raise
        self.outcome = _judged(judge, value)
        self._report(self.outcome, value, keep_result=keep_result or isinstance(value, Outcome))
        return value

    def _left(self) -> float:
        return self._ends_at - now()

    def _look(self) -> None:
        """The second look. Returns only when a read made now said "open" and the permit has time left."""
        try:
            seen = self._read()
            if seen.get("look") != "open":
                raise self._shut(seen)
        except BaseException as error:
            self._not_sent(error)
            raise
        if self._left() <= 0:  # "open" came too late; from here on "not sent" is no longer ours to say
            self._deliver({"outcome": "not_applied", "detail": "The permit ended before the send."})
            raise PermitExpired(f"Permit {self.id} ended while the gate was being asked. Nothing was sent.")

    def _read(self) -> Json:
        if self._left() <= 0:
            raise PermitExpired(f"Permit {self.id} ended before the send. Nothing was sent.")
        params, within = {"claim_token": self.claim_token}, min(self._left(), self._wire.give_up_s)
        try:
            return self._wire.get(f"permits/{self.id}", params=params, within_s=within).data
        except Rejected as error:
            raise GateUnavailable(f"The second look was not answered: {error}. Nothing was sent.") from error

    def _shut(self, seen: Json) -> BaseException:
        look, status = seen.get("look"), seen.get("run_status")
        if look == "expired":
            return PermitExpired(f"Permit {self.id} has ended. Nothing was sent.")
        if look == "ended":
            return LostClaim(f"Permit {self.id} is no longer this worker's. Nothing was sent.", seen)
        if look != "shut":
            return GateUnavailable(f"The second look was answered with {look!r}. Nothing was sent.")
        if status == "ACTIVE" and seen.get("current_version") != self.seen_version:
            return StaleVersion("The run goes on at another version. Nothing was sent.", seen)
        return StopRequested(f"The gate shut before the send; the run is {status}. Nothing was sent.", seen)

    def _not_sent(self, why: BaseException) -> None:
        """Only reached while no "open" was ever received. Best effort: the refusal itself matters more."""
        try:
            self._deliver(
                {"outcome": "not_sent", "detail": type(why).__name__}, within_s=self._wire.give_up_s
            )
        except (GateUnavailable, Refused, Rejected) as error:
            log.warning("Could not report that permit %s was not used: %s", self.id, error)

    def _report(self, outcome: Outcome, value: object, *, keep_result: bool) -> None:
        try:
            self._deliver(_body(outcome, keep_result=keep_result))
        except (GateUnavailable, Refused, Rejected) as error:
            log.critical("The call was made (%s) but its report was not delivered: %s", outcome.name, error)
            raise ReportNotDelivered(
                f"The call was made ({outcome.name}), but Allstop could not be told: {error}",
                permit_id=self.id,
                outcome=outcome.name,
                result=value,
            ) from error

    def _report_failure(self, outcome: Outcome, raised: BaseException) -> None:
        """The caller's exception goes on in any case; a lost report is noted on it and logged."""
        try:
            self._deliver(_body(outcome, keep_result=True))
        except (GateUnavailable, Refused, Rejected) as error:
            log.critical("The call raised (%s) and its report was not delivered: %s", outcome.name, error)
            raised.add_note(f"Allstop could not be told the outcome, {outcome.name}: {error}")

    def _deliver(self, body: Json, within_s: float | None = None) -> None:
        path, within = f"permits/{self.id}/report", self._report_for_s if within_s is None else within_s
        bare = {"claim_token": self.claim_token, "reported_at": datetime.now(UTC).isoformat()}
        try:
            self.answer = self._wire.post(path, {**body, **bare}, within_s=within).data
        except Rejected as error:
            if error.status not in (413, 422) or body.keys() <= {"outcome"}:
                raise
            log.warning("A report was rejected, so only its outcome is sent: %s", error)
            self.answer = self._wire.post(path, {"outcome": body["outcome"], **bare}, within_s=within).data


def _judged(judge: Judge, value: object) -> Outcome:
    """A judge that fails knows nothing: the outcome is unknown, never applied."""
    try:
        return judge(value)
    except Exception as error:
        log.error("The outcome could not be judged, so it is unknown: %r", error)
        return Outcome("unknown", detail=f"The outcome could not be judged: {type(error).__name__}.")


def _body(outcome: Outcome, *, keep_result: bool) -> Json:
    """The report's fields. Whatever can't be sent is left out and named: the outcome must get through."""
    parts = {
        "result": outcome.result if keep_result else None,
        "items": outcome.items,
        "usage": outcome.usage,
    }
    kept = {name: part for name, part in parts.items() if part is not None and _fits(part)}
    lost = [name for name, part in parts.items() if part is not None and name not in kept]
    note = f"Not kept, because not JSON of at most 64 KiB: {', '.join(lost)}." if lost else None
    kept["detail"] = _clean(" ".join(words for words in (outcome.detail, note) if words))
    kept["provider_ref"] = _clean(outcome.provider_ref or "")
    return {"outcome": outcome.name} | {name: part for name, part in kept.items() if part not in ("", None)}


def _fits(part: Any) -> bool:
    try:
        return len(json.dumps(part, allow_nan=False, ensure_ascii=False).encode()) <= _MAX_PART
    except (TypeError, ValueError, RecursionError):
        return False


def _clean(words: str) -> str:
    return words.encode(errors="replace").decode()
