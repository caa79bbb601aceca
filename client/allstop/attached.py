"""What a worker knows of the run that it is attached to, and what it says about it. Nobody waits here."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import sys
import threading
from collections.abc import Iterator

from allstop.errors import (
    GateUnavailable,
    Json,
    MustWait,
    NotApproved,
    NotQuiet,
    Refused,
    Rejected,
    RetryNotDue,
    RunEnded,
    StaleVersion,
    StopRequested,
    WaitingForApproval,
    Withheld,
)
from allstop.held import now
from allstop.link import Link
from allstop.talk import Ask, Talk, asked
from allstop.wire import new_key

log = logging.getLogger("allstop")

# Where a worker can hold a version, and say so: the boundaries of the gate, and its own checkpoints.
POINTS = ("admit", "claim", "model", "dispatch", "retry", "act", "deliver", "checkpoint")


class Attached:
    """One worker's side of a run. Safe to share between threads."""

    def __init__(self, link: Link, spec: Json) -> None:
        self.worker = link.worker
        self.id = self.url = ""
        self.version = 0
        self._link = link
        self._spec = spec
        self._lock = threading.Lock()
        self._held: set[str] = set()
        self._asks: dict[str, tuple[str, float]] = {}
        self._halt: Refused | None = None
        self._points: dict[str, int] = {}
        self._lost: frozenset[str] = frozenset()
        self._stopped: set[str] = set()  # steps with a stop of their own
        self._told: set[str] = set()  # those of which the agent was told
        self.status = ""
        self._ended = False

    @property
    def key(self) -> str:
        """The run key."""
        return str(self._spec["key"])

    def checkpoint(self) -> None:
        """Raise StopRequested (or StaleVersion) if one is known by now. Asks nobody: cheap in any loop."""
        if self._halt is not None:
            self._holds("checkpoint", self._halt.current_version)
            self._news()
            raise self.halted()

    def lost(self, claim_token: str) -> bool:
        """Whether the server said that this claim is somebody else's, or nobody's, by now."""
        return claim_token in self._lost

    def withheld(self, step_id: str) -> Withheld | None:
        """What a step with a stop of its own raises, for it to be raised; None for any other."""
        if step_id not in self._stopped:
            return None
        self._told.add(step_id)
        told = {"scope": "step", "step_id": step_id, "run_goes_on": True}
        return Withheld("This step was stopped. Do nothing more of it; its run goes on.", told)

    def is_told(self, step_id: str) -> bool:
        """Whether its agent knows that this step was stopped."""
        return step_id in self._told

    def note_step(self, refusal: Withheld, step_id: str = "") -> None:
        """Remember a step that was stopped alone, as its agent is told of it."""
        step_id = step_id or str(refusal.problem.get("step_id") or "")
        if step_id and refusal.scope == "step":
            self._stopped.add(step_id)
            self._told.add(step_id)

    def _news(self) -> None:
        """There is something that should be confirmed without waiting for the next heartbeat."""

    def _holds(self, boundary: object, version: int | None) -> None:
        """A receipt to be sent: what this worker goes by at a boundary. The newest counts."""
        if isinstance(boundary, str) and boundary in POINTS and version is not None:
            with self._lock:
                self._points[boundary] = max(version, self._points.get(boundary, 0))

    def halted(self) -> Refused:
        """The refusal that ends this worker, as a new exception. Only after one is known."""
        assert self._halt is not None
        return type(self._halt)(str(self._halt), self._halt.problem)

    # -- beginning and end

    def registering(self) -> Talk[None]:
        """Register the run, or attach to it. Raises when there is nothing to begin."""
        data = yield from self.posting("runs", {**self._spec, "worker": self.worker})
        try:
            self.id, self.version = str(data["id"]), int(data["cancel_version"])
        except (KeyError, TypeError, ValueError) as error:
            raise GateUnavailable(f"Allstop sent a run that can't be read: {error!r}.") from error
        self.url = str(data.get("url") or "")
        self._say_what_cannot_be_gated()
        yield from self._refusing_to_begin(data)

    def _refusing_to_begin(self, data: Json) -> Talk[None]:
        status = data.get("status")
        if not status:
            raise GateUnavailable("Allstop sent a run without a status.")
        if status in ("COMPLETED", "FAILED"):
            raise RunEnded(f"The run {self.key!r} has ended: {status}. Use a new key for a new run.")
        if status != "ACTIVE":
            self.heard(data)
            yield from self.confirming()
            self.checkpoint()

    def _say_what_cannot_be_gated(self) -> None:
        names = ", ".join(self._spec.get("ungateable") or [])
        if names:
            sys.stderr.write(f"allstop: a stop can't hold these, they run outside the gate: {names}\n")

    def leaving(self, error: BaseException | None) -> Talk[None]:
        """At the end of the run's block. A stop, also of a step alone, a gate that is away, an effect in
        doubt, or one that people still decide about, end nothing.
        """
        if error is None:
            yield from self.ending("complete", None)
        elif not isinstance(error, (Refused, GateUnavailable, MustWait, WaitingForApproval, Withheld)):
            yield from self._failing_quietly(error)

    def ending(self, verb: str, summary: str | None) -> Talk[None]:
        """Complete or fail the run, once."""
        if self._ended:
            return
        body: Json = {"seen_version": self.version} | ({"summary": summary} if summary else {})
        yield from self.posting(f"runs/{self.id}/{verb}", body)
        self._ended = True

    def _failing_quietly(self, error: BaseException) -> Talk[None]:
        """The agent's exception goes on. Its text stays here: it may hold what must not leave the process."""
        try:
            yield from self.ending("fail", f"The agent ended with {type(error).__name__}.")
        except (Refused, GateUnavailable, Rejected, NotQuiet) as late:
            log.warning("Run %s could not be marked failed: %s", self.key, late)

    def take_on_the_stop(self) -> bool:
        """Carry the version of the stop from here on, if one is known: what the gate asks of a cleanup."""
        halt = self._halt
        if not isinstance(halt, StopRequested) or halt.current_version is None:
            return False
        self.version = halt.current_version
        return True

    # -- questions

    def asking(self, path: str, body: Json) -> Talk[tuple[Json, float]]:
        """Ask for a permit. Returns the answer and the moment, on now(), from which its time is counted.

        When no answer came, the server may have permitted nonetheless. The key is kept, so that the same
        question, asked again later, meets that permit instead of "must wait".
        """
        lease_s = self._link.pace.lease_s
        body = {**body, "worker": self.worker, "seen_version": self.version, "lease_s": lease_s}
        digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        this_time = now()
        key, first_time = self._asks.pop(digest, (new_key(), this_time))
        try:
            answer = yield from asked(Ask("POST", path, body, key))
        except Refused as refusal:
            self._holds(refusal.problem.get("boundary"), refusal.current_version)
            self.note(refusal)
            raise
        except Withheld as refusal:
            self.note_step(refusal)
            raise
        except (Rejected, NotApproved, RetryNotDue):
            raise
        except BaseException:  # no answer, or interrupted while waiting for it
            self._asks[digest] = (key, first_time)
            raise
        self._holds((answer.data.get("permit") or {}).get("boundary"), body["seen_version"])
        return answer.data, first_time if answer.replayed else this_time

    def posting(self, path: str, body: Json) -> Talk[Json]:
        """One call that is not a question to the gate. A refusal is remembered for `checkpoint`."""
        try:
            return (yield from asked(Ask("POST", path, body, new_key()))).data
        except Refused as refusal:
            self.note(refusal)
            raise
        except Withheld as refusal:
            self.note_step(refusal)
            raise

    def delivering(self, channel: str, target: str, **message: str | None) -> Talk[Json]:
        """Queue one of the run's own messages."""
        body: Json = {name: text for name, text in message.items() if text is not None}
        body |= {"channel": channel, "target": target}
        body |= {"worker": self.worker, "seen_version": self.version}
        return (yield from self.posting(f"runs/{self.id}/deliveries", body))

    @staticmethod
    def handed_before(key: str, answer: Json) -> None:
        """A message for which the gate gave no permit. Raises MustWait unless it was handed over."""
        if answer.get("known") != "settled":
            todo = answer.get("what_to_do") or "Wait until its outcome is known."
            raise MustWait(f"Message {key!r} may not be handed over now. {todo}", answer)

    @staticmethod
    def permit_data(answer: Json) -> Json:
        """The permit in a gate's answer. Raises GateUnavailable when there is none."""
        data = answer.get("permit")
        if not isinstance(data, dict):
            raise GateUnavailable("Allstop answered without a permit. Nothing was sent.")
        return data

    # -- claims

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
        self.status = str(status)
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

    def beating(self) -> Talk[bool]:
        """Renew, confirm, listen. True when news should be confirmed at once."""
        before = self._halt
        with self._lock:
            tokens, confirmed = sorted(self._held), dict(self._points)
        body: Json = {"worker": self.worker, "seen_version": self._seen(), "claim_tokens": tokens}
        body |= {"confirmed": confirmed} if confirmed else {}
        told = (yield from asked(Ask("POST", f"runs/{self.id}/heartbeat", body))).data
        self._lost |= {token for token in told.get("lost") or [] if token in self._held}
        self._stopped |= set(told.get("stopped_steps") or [])
        self.heard(told)
        return before is None and self._halt is not None

    def _seen(self) -> int:
        """The version to confirm: of the stop, once it is known. Gate calls keep the version they began
        with.
        """
        version = self._halt.current_version if self._halt is not None else None
        return self.version if version is None else version

    def confirming(self) -> Talk[None]:
        """A last receipt for a stop, so that the page need not wait for this worker. Best effort."""
        if self._halt is None or not self.id:
            return
        with contextlib.suppress(GateUnavailable, Refused, Rejected):
            yield from self.beating()
