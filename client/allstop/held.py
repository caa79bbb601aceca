"""A permit as its holder keeps it: the second look, and the report of what happened."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Any

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
    Withheld,
)
from allstop.facts import Fact, telling
from allstop.link import Link
from allstop.outcome import Outcome
from allstop.talk import Ask, Talk, asked

Judge = Callable[[object], Outcome]

log = logging.getLogger("allstop")

_MAX_PART = 64 * 1024


def now() -> float:
    """Seconds of a clock that never goes back and, where there is one, runs on while the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class Held:
    """Holds one permit until it is reported. `asked_at` is now() from before the gate was first asked.

    The permit ends by the database's clock; counting from before the question can only end it sooner here.
    """

    def __init__(self, link: Link, data: Json, *, asked_at: float) -> None:
        try:
            self.id, self.step_id = str(data["id"]), str(data["step_id"])
            self.claim_token = str(data["claim_token"])
            self.seen_version = int(data["seen_version"])
            self._ends_at = asked_at + float(data["permit_ttl_s"])
        except (KeyError, TypeError, ValueError) as error:
            raise GateUnavailable(f"Allstop sent a permit that can't be read: {error!r}.") from error
        self._link = link
        self.outcome: Outcome | None = None
        self.answer: Json = {}

    def left(self) -> float:
        """Seconds in which a send may still begin."""
        return self._ends_at - now()

    # -- the second look

    def looking(self) -> Talk[None]:
        """Ends without raising only when a read made now said "open" and the permit has time left.

        The call must begin directly after it, in the thread or task that looked.
        """
        try:
            yield from self.opening()
        except GeneratorExit:
            raise
        except BaseException as error:
            yield from self.reporting_not_sent(error)
            raise
        if self.left() <= 0:
            yield from self.reporting_too_late()

    def opening(self) -> Talk[None]:
        """Ends without raising only when a read made now said "open"."""
        seen = yield from self._reading()
        if seen.get("look") != "open":
            raise self._shut(seen)

    def _reading(self) -> Talk[Json]:
        if self.left() <= 0:
            raise PermitExpired(f"Permit {self.id} ended before the send. Nothing was sent.")
        params, within = {"claim_token": self.claim_token}, min(self.left(), self._link.give_up_s)
        try:
            answer = yield from asked(Ask("GET", f"permits/{self.id}", params=params, within_s=within))
        except Rejected as error:
            raise GateUnavailable(f"The second look was not answered: {error}. Nothing was sent.") from error
        return answer.data

    def _shut(self, seen: Json) -> BaseException:
        look, status = seen.get("look"), seen.get("run_status")
        if look == "expired":
            return PermitExpired(f"Permit {self.id} has ended. Nothing was sent.")
        if look == "ended":
            return LostClaim(f"Permit {self.id} is no longer this worker's. Nothing was sent.", seen)
        if look != "shut":
            return GateUnavailable(f"The second look was answered with {look!r}. Nothing was sent.")
        if seen.get("run_goes_on") is True:
            return Withheld("A stop holds this step, or effects of its kind. Nothing was sent.", seen)
        if status == "ACTIVE" and seen.get("current_version") != self.seen_version:
            return StaleVersion("The run goes on at another version. Nothing was sent.", seen)
        return StopRequested(f"The gate shut before the send; the run is {status}. Nothing was sent.", seen)

    # -- the report

    def reporting_not_sent(self, why: BaseException) -> Talk[None]:
        """Only while no "open" was ever received. Best effort: the refusal itself matters more."""
        body = {"outcome": "not_sent", "detail": type(why).__name__}
        try:
            yield from self._telling(body, within_s=self._link.give_up_s)
        except (GateUnavailable, Refused, Rejected) as error:
            log.warning("Could not report that permit %s was not used: %s", self.id, error)

    def reporting_too_late(self) -> Talk[None]:
        """ "Open" came too late; from here on "not sent" is no longer ours to say. Raises PermitExpired."""
        yield from self._telling({"outcome": "not_applied", "detail": "The permit ended before the send."})
        raise PermitExpired(f"Permit {self.id} ended while the gate was being asked. Nothing was sent.")

    def reporting(self, outcome: Outcome, value: object, *, keep_result: bool) -> Talk[None]:
        """What the call came to. Raises ReportNotDelivered."""
        fact = self._fact(_body(outcome, keep_result=keep_result))
        try:
            self.answer = yield from telling(self._link.outbox, fact, self._link.pace.report_for_s)
        except (GateUnavailable, Refused, Rejected) as error:
            kept = self._link.outbox.is_kept(fact.key)
            later = "It is kept on disk and told later. " if kept else ""
            log.critical("The call was made (%s) but its report was not delivered: %s", outcome.name, error)
            raise ReportNotDelivered(
                f"The call was made ({outcome.name}), but Allstop could not be told. {later}{error}",
                permit_id=self.id,
                outcome=outcome.name,
                result=value,
                kept=kept,
            ) from error

    def reporting_failure(self, outcome: Outcome, raised: BaseException) -> Talk[None]:
        """The caller's exception goes on in any case; a lost report is noted on it and logged."""
        try:
            yield from self._telling(_body(outcome, keep_result=True))
        except (GateUnavailable, Refused, Rejected) as error:
            log.critical("The call raised (%s) and its report was not delivered: %s", outcome.name, error)
            raised.add_note(f"Allstop could not be told the outcome, {outcome.name}: {error}")

    def _telling(self, body: Json, within_s: float | None = None) -> Talk[None]:
        within = self._link.pace.report_for_s if within_s is None else within_s
        self.answer = yield from telling(self._link.outbox, self._fact(body), within)

    def _fact(self, body: Json) -> Fact:
        body, path = {**body, "claim_token": self.claim_token}, f"permits/{self.id}/report"
        return Fact.of(path, body, step=self.step_id, told_by=self._link.outbox.told_by)


def judged(judge: Judge, value: object) -> Outcome:
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
        "spend": outcome.spend or None,
    }
    kept = {name: part for name, part in parts.items() if part is not None and _fits(part)}
    lost = [name for name, part in parts.items() if part is not None and name not in kept]
    note = f"Not kept, because not JSON of at most 64 KiB: {', '.join(lost)}." if lost else None
    kept["detail"] = _clean(" ".join(words for words in (outcome.detail, note) if words))
    kept["provider_ref"] = _clean(outcome.provider_ref or "")
    kept["partial_output"] = outcome.partial_output
    return {"outcome": outcome.name} | {name: part for name, part in kept.items() if part not in ("", None)}


def _fits(part: Any) -> bool:
    try:
        return len(json.dumps(part, allow_nan=False, ensure_ascii=False).encode()) <= _MAX_PART
    except (TypeError, ValueError, RecursionError):
        return False


def _clean(words: str) -> str:
    return words.encode(errors="replace").decode()
