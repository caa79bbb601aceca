"""A run as its agent process sees it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType

from allstop.errors import (
    GateUnavailable,
    Json,
    MustWait,
    NotQuiet,
    Refused,
    Rejected,
    RunEnded,
    StaleVersion,
    StopRequested,
)
from allstop.gated import Gated
from allstop.heartbeat import Heartbeat
from allstop.outcome import Outcome
from allstop.permit import Permit, now
from allstop.step import Step
from allstop.wire import Wire, new_key

log = logging.getLogger("allstop")


@dataclass(frozen=True)
class Pace:
    """How often and how long, in seconds; see Client."""

    heartbeat_s: float
    report_for_s: float
    lease_s: float


class Run(Gated):
    """Registered or attached to on entry. On exit: completed after a clean body, failed after an exception.

    A stop, a gate that can't be reached and an effect that must wait end nothing: the run stays as the server
    has it.
    """

    def __init__(self, wire: Wire, spec: Json, *, worker: str, pace: Pace) -> None:
        self.run = self
        self.worker = worker
        self.id = self.url = ""
        self.version = 0
        self._wire = wire
        self._spec = spec
        self._pace = pace
        self._lock = threading.Lock()
        self._held: set[str] = set()
        self._asks: dict[str, tuple[str, float]] = {}
        self._halt: Refused | None = None
        self._confirmed = 0
        self._ended = False
        self._heart = Heartbeat(self._beat, pace.heartbeat_s)

    @property
    def key(self) -> str:
        """The run key."""
        return str(self._spec["key"])

    # -- beginning and end

    def __enter__(self) -> Run:
        data = self.post("runs", {**self._spec, "worker": self.worker})
        try:
            self.id, self.version = str(data["id"]), int(data["cancel_version"])
        except (KeyError, TypeError, ValueError) as error:
            raise GateUnavailable(f"Allstop sent a run that can't be read: {error!r}.") from error
        self.url, self._confirmed = str(data.get("url") or ""), self.version
        self._say_what_cannot_be_gated()
        self._refuse_to_begin(data)
        self._heart.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.complete()
            elif not isinstance(error, (Refused, GateUnavailable, MustWait)):
                self._fail_quietly(error)
        finally:
            self._heart.stop()
            self._confirm()

    def complete(self, summary: str | None = None) -> None:
        """Say that the work is done. Raises StopRequested if a stop came first, NotQuiet if a step is
        held.
        """
        if not self._ended:
            self._end("complete", summary)

    def fail(self, summary: str | None = None) -> None:
        """Say that the run ends without its work being done. Raises StopRequested when a stop came first."""
        if not self._ended:
            self._end("fail", summary)

    def _end(self, verb: str, summary: str | None) -> None:
        body: Json = {"seen_version": self.version} | ({"summary": summary} if summary else {})
        self.post(f"runs/{self.id}/{verb}", body)
        self._ended = True

    def _fail_quietly(self, error: BaseException) -> None:
        """The agent's exception goes on. Its text stays here: it may hold what must not leave the process."""
        try:
            self.fail(f"The agent ended with {type(error).__name__}.")
        except (Refused, GateUnavailable, Rejected, NotQuiet) as late:
            log.warning("Run %s could not be marked failed: %s", self.key, late)

    def _refuse_to_begin(self, data: Json) -> None:
        status = data.get("status")
        if not status:
            raise GateUnavailable("Allstop sent a run without a status.")
        if status in ("COMPLETED", "FAILED"):
            raise RunEnded(f"The run {self.key!r} has ended: {status}. Use a new key for a new run.")
        if status != "ACTIVE":
            self.heard(data)
            self._confirm()
            self.checkpoint()

    def _say_what_cannot_be_gated(self) -> None:
        names = ", ".join(self._spec.get("ungateable") or [])
        if names:
            sys.stderr.write(f"allstop: a stop can't hold these, they run outside the gate: {names}\n")

    # -- work

    def step(self, key: str, name: str | None = None, op_class: str = "external_write") -> Step:
        """A step to fill with several effects: `with run.step("invoice-7", "Invoice 7") as step: …`."""
        spec = {"key": key, "class": op_class} | ({"name": name} if name else {})
        return Step(self, spec, lease_s=self._pace.lease_s)

    def checkpoint(self) -> None:
        """Raise StopRequested (or StaleVersion) if one is known by now. Asks nobody: cheap in any loop."""
        halt = self._halt
        if halt is not None:
            raise type(halt)(str(halt), halt.problem)

    # -- what Gated, Step and Permit need

    def step_ref(self, key: str, name: str | None) -> Json:
        """A step of its own for one call, registered and claimed with it."""
        return {"key": key} | ({"name": name} if name else {})

    def note_outcome(self, outcome: Outcome | None) -> None:
        """A run keeps no tally: its steps and effects do."""

    def step_of(self, permit: Permit) -> Step:
        """The step that was registered with this permit, to be finished after its one call."""
        return Step(self, {"key": permit.id}, held=(permit.step_id, permit.claim_token))

    def permit_in(self, answer: Json, asked_at: float) -> Permit:
        """The permit in a gate's answer. Raises GateUnavailable when there is none."""
        data = answer.get("permit")
        if not isinstance(data, dict):
            raise GateUnavailable("Allstop answered without a permit. Nothing was sent.")
        return Permit(self._wire, data, asked_at=asked_at, report_for_s=self._pace.report_for_s)

    def ask_gate(self, path: str, body: Json) -> tuple[Json, float]:
        """Ask for a permit. Returns the answer and the moment, on now(), from which its time is counted.

        When no answer came, the server may have permitted nonetheless. The key is kept, so that the same
        question, asked again later, meets that permit instead of "must wait".
        """
        body = {**body, "worker": self.worker, "seen_version": self.version, "lease_s": self._pace.lease_s}
        digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        this_time = now()
        key, first_time = self._asks.pop(digest, (new_key(), this_time))
        try:
            answer = self._wire.post(path, body, key=key)
        except Refused as refusal:
            self.note(refusal)
            raise
        except Rejected:
            raise
        except BaseException:  # no answer, or interrupted while waiting for it
            self._asks[digest] = (key, first_time)
            raise
        return answer.data, first_time if answer.replayed else this_time

    def post(self, path: str, body: Json) -> Json:
        """One call that is not a question to the gate. A refusal is remembered for `checkpoint`."""
        try:
            return self._wire.post(path, body).data
        except Refused as refusal:
            self.note(refusal)
            raise

    def hold(self, claim_token: str) -> None:
        """Have the heartbeat renew this claim."""
        with self._lock:
            self._held.add(claim_token)

    def let_go(self, claim_token: str) -> None:
        """Renew it no longer."""
        with self._lock:
            self._held.discard(claim_token)

    @contextlib.contextmanager
    def holding(self, claim_token: str) -> Iterator[None]:
        """Hold a claim for one call; a step's own claim stays held afterwards."""
        already = claim_token in self._held
        self.hold(claim_token)
        try:
            yield
        finally:
            if not already:
                self.let_go(claim_token)

    # -- what is heard of stops

    def heard(self, data: Json) -> None:
        """Take note of the status and version that the server told: a stop, or a version that is not ours."""
        status, version = data.get("status", data.get("run_status")), data.get("cancel_version")
        if status is None or (status == "ACTIVE" and version == self.version):
            return
        stop = data.get("stop") or {}
        problem = {"run_status": status, "current_version": version, "stop_id": stop.get("id"), "stop": stop}
        if status == "ACTIVE":
            self.note(
                StaleVersion(f"The run is at version {version}; this worker carries {self.version}.", problem)
            )
        else:
            number = f"Stop {stop['number']}" if stop.get("number") else "A stop"
            self.note(StopRequested(f"{number} is in force; the run is {status}.", problem))

    def note(self, refusal: Refused) -> None:
        """Remember a refusal that says the run as a whole may not go on."""
        if isinstance(refusal, (StopRequested, StaleVersion)) and self._halt is None:
            self._halt = refusal

    def _beat(self) -> bool:
        """Renew, confirm, listen. True when news should be confirmed at once."""
        before = self._halt
        with self._lock:
            tokens = sorted(self._held)
        body = {"worker": self.worker, "seen_version": self._seen(), "claim_tokens": tokens}
        self.heard(self._wire.tell(f"runs/{self.id}/heartbeat", body).data)
        return before is None and self._halt is not None

    def _seen(self) -> int:
        """The version to confirm: of the stop, once it is known. Gate calls keep the version they began
        with.
        """
        version = self._halt.current_version if self._halt is not None else None
        return self.version if version is None else version

    def _confirm(self) -> None:
        """A last receipt for a stop, so that the page need not wait for this worker. Best effort."""
        if self._halt is None or not self.id:
            return
        with contextlib.suppress(GateUnavailable, Refused, Rejected):
            self._beat()
