"""Where an agent process begins."""

from __future__ import annotations

from types import TracebackType

from allstop.base import BaseClient, StopNotRecorded, registering_kind, stopping, target
from allstop.errors import Json
from allstop.run import Run
from allstop.talk import carry_out

__all__ = ["Client", "StopNotRecorded"]


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
