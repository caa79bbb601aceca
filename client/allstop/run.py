"""A run as its agent process sees it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any

from allstop.attached import Attached
from allstop.cleanup import Cleanups
from allstop.courier import Courier
from allstop.errors import Json
from allstop.gated import Gated
from allstop.heartbeat import Heartbeat
from allstop.link import Link, Send
from allstop.outcome import Outcome, plain_outcome
from allstop.permit import Judge, Permit
from allstop.step import Step
from allstop.talk import T, Talk, carry_out


class Run(Attached, Gated):
    """Registered or attached to on entry. On exit: completed after a clean body, failed after an exception.

    A stop, a gate that can't be reached and an effect that must wait end nothing: the run stays as the server
    has it.
    """

    def __init__(self, link: Link, send: Send, courier: Courier, spec: Json) -> None:
        super().__init__(link, spec)
        self.run = self
        self._send = send
        self._courier = courier
        self._heart = Heartbeat(self._beat, link.pace.heartbeat_s)
        self._cleanups = Cleanups(self, link)

    # -- beginning and end

    def __enter__(self) -> Run:
        self._courier.start(self._send)
        self.have(self.registering())
        self._heart.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and self._halt is None:
                self.have(self._cleanups.giving_back())
            self.have(self.leaving(error))
        finally:
            self._tidy_up()
            self._heart.stop()
            self.have(self.confirming())

    def _tidy_up(self) -> None:
        """After a stop: what was declared for it, at the version of the stop, which is what the gate asks."""
        if self.take_on_the_stop():
            self._cleanups.carry_out()

    def complete(self, summary: str | None = None) -> None:
        """Say that the work is done. Raises StopRequested if a stop came first, NotQuiet if a step is
        held. What Allstop itself is sending of the run is waited for, as long as give_up_s lasts.
        """
        self.have(self.ending("complete", summary))

    def fail(self, summary: str | None = None) -> None:
        """Say that the run ends without its work being done. Raises StopRequested when a stop came first."""
        self.have(self.ending("fail", summary))

    # -- work

    def checkpoint(self, *, ask: bool = False) -> None:
        """Raise StopRequested (or StaleVersion) if one is known by now, and confirm that it was seen here.

        Asks nobody, so it is cheap in any loop; `ask=True` asks the server first (GateUnavailable without
        an answer).
        """
        if ask:
            self._beat()
        super().checkpoint()

    def _news(self) -> None:
        self._heart.soon()

    def cleanup(
        self,
        key: str,
        fn: Callable[..., Any],
        /,
        *args: Any,
        name: str | None = None,
        op_class: str = "workspace_change",
    ) -> None:
        """Declare what is tidied up if this run is stopped: `fn(*args)` is called then, before the block
        ends, and not after a clean end. Its class is read or workspace_change, unless the rules name more.

        It is claimed at once, so a pause or a cancel waits for it until its deadline. An abandon does not.
        """
        self.have(self._cleanups.declaring(key, name, op_class, functools.partial(fn, *args)))

    def step(self, key: str, name: str | None = None, op_class: str = "external_write") -> Step:
        """A step to fill with several effects: `with run.step("invoice-7", "Invoice 7") as step: …`."""
        return Step(self, self._link, key=key, name=name, op_class=op_class)

    def deliver(
        self,
        channel: str,
        target: str,
        *,
        key: str,
        title: str | None = None,
        body: str | None = None,
        content_type: str | None = None,
    ) -> Json:
        """Have Allstop hand over one of the run's own messages. Returns the delivery, queued.

        channel: webhook (target is a URL) or email (one address). key: stable, one message. A stop holds or
        withholds it while it is queued; it outlives a run that completes.
        """
        message = {"key": key, "title": title, "body": body, "content_type": content_type}
        return self.have(self.delivering(channel, target, **message))

    def hand_over(
        self,
        fn: Callable[..., Any],
        /,
        *args: Any,
        key: str,
        target: str,
        title: str | None = None,
        body: str | None = None,
        outcome_of: Judge = plain_outcome,
    ) -> Any:
        """Hand a message over yourself: `fn(*args)` is called if, and only if, the gate permits it now.

        Returns what `fn` returned, or None when the message was handed over before. Raises MustWait (in
        flight, or not known), what `Effect.send` raises, and what `fn` raised.
        """
        told = {"key": key, "title": title, "body": body}
        queued = self.have(self.delivering("outside", target, **told))
        answer, asked_at = self.ask_gate(f"deliveries/{queued['id']}/hand-over", {})
        if answer.get("permit") is None:
            return self.handed_before(key, answer)
        permit = self.permit_in(answer, asked_at)
        return self.spend(permit, functools.partial(fn, *args), outcome_of, keep_result=False)

    # -- what Gated, Step and Permit need

    def step_ref(self, key: str, name: str | None) -> Json:
        """A step of its own for one call, registered and claimed with it."""
        return {"key": key} | ({"name": name} if name else {})

    def note_outcome(self, outcome: Outcome | None) -> None:
        """A run keeps no tally: its steps and effects do."""

    def step_of(self, permit: Permit) -> Step:
        """The step that was registered with this permit, to be finished after its one call."""
        return Step(self, self._link, key=permit.id, held=(permit.step_id, permit.claim_token))

    def permit_in(self, answer: Json, asked_at: float) -> Permit:
        """The permit in a gate's answer. Raises GateUnavailable when there is none."""
        return Permit(self._link, self._send, self.permit_data(answer), asked_at=asked_at)

    def ask_gate(self, path: str, body: Json) -> tuple[Json, float]:
        """See `asking`."""
        return self.have(self.asking(path, body))

    def _beat(self) -> bool:
        return self.have(self.beating())

    def have(self, talk: Talk[T]) -> T:
        """Have a conversation, in this thread."""
        return carry_out(talk, self._send)
