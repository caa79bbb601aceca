"""Where an agent process begins."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from types import TracebackType

from allstop import look_ups
from allstop.base import BaseClient, StopNotRecorded, registering_kind, stopping, target
from allstop.errors import GateUnavailable, Json
from allstop.look_ups import Look, LookUp, Seen
from allstop.run import Run
from allstop.talk import carry_out

__all__ = ["Client", "StopNotRecorded"]

log = logging.getLogger("allstop")


class Client(BaseClient[Run]):
    """A connection to one Allstop server; see BaseClient for its settings. Safe to share between threads."""

    def _attach(self, spec: Json) -> Run:
        return Run(self._link, self._send, self._courier, spec)

    def request_stop(
        self,
        *,
        run_id: str | None = None,
        run_key: str | None = None,
        scope: str | None = None,
        session: str | None = None,
        policy: str | None = None,
        step_id: str | None = None,
        run_ids: list[str] | None = None,
        key: str | None = None,
        **words: object,
    ) -> Json:
        """Stop a run, by id or, also before it exists, by key; or one step, whose run goes on; or all runs
        of a session, a policy (its id or name), a list, or with scope="workspace" of the token's workspace.
        Returns the stop request.

        words: reason, note, mode; of a session, policy or workspace also review_at, ends_at, observe. Needs a
        token with stop:write. Raises StopNotRecorded unless the server confirmed it.
        """
        named = {"run_id": run_id, "run_key": run_key, "step_id": step_id, "run_ids": run_ids}
        where = target(scope, **named, session=session, policy=policy)
        return carry_out(stopping(where, key, dict(words)), self._send)

    def put_kind(self, name: str, definition: Json) -> Json:
        """Register or replace an effect kind with its six answers. Needs a token with kinds:write."""
        return carry_out(registering_kind(name, definition), self._send)

    def answer_look_ups(
        self,
        kinds: Mapping[str, Look],
        *,
        every_s: float | None = None,
        until: threading.Event | None = None,
    ) -> int:
        """Answer what is due of these kinds, each with its function; returns how many answers were taken.

        Once, or again each `every_s` seconds until the event is set (without one: for ever). In a loop a
        server that is away is waited for. A function that raises has seen nothing: "can't tell". Needs a
        token with runs:write, and kinds with lookup {"poll": true}.
        """
        names, done = look_ups.known(kinds), 0
        until = until or threading.Event()
        while True:
            try:
                done += sum(self._answer_due(name, kinds[name]) for name in names)
            except GateUnavailable as error:
                if every_s is None:
                    raise
                log.warning("No look-up is answered for now: %s", error)
            if every_s is None or until.wait(every_s):
                return done

    def _answer_due(self, kind: str, look: Look) -> int:
        due = carry_out(look_ups.taking(kind), self._send)
        return sum(carry_out(look_ups.telling(one, _seen(one, look)), self._send) for one in due)

    def close(self) -> None:
        """Close the connections. Runs must have ended."""
        self._courier.close()
        self._close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _seen(one: LookUp, look: Look) -> Seen:
    try:
        return look(one)
    except Exception as error:
        return look_ups.failed(one, error)
