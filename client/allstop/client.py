"""Where an agent process begins."""

from __future__ import annotations

import os
import socket
from types import TracebackType

from allstop.errors import GateUnavailable, Json, Rejected
from allstop.run import Pace, Run
from allstop.wire import Wire, new_key


class StopNotRecorded(Exception):
    """Nobody confirmed this stop: it may or may not be on record. Ask again with the same `key`."""

    def __init__(self, message: str, key: str) -> None:
        super().__init__(message)
        self.key = key


class Client:
    """A connection to one Allstop server. Safe to share between threads. All times are in seconds.

    url, token: default to ALLSTOP_URL and ALLSTOP_TOKEN. timeout_s: one try of one call. give_up_s: all tries
    of one call; after it the gate counts as unavailable. report_for_s: how long a report is repeated until it
    is delivered. lease_s: how long the server waits for a sign of life before it takes a claim for lost; the
    heartbeat renews it.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        worker: str | None = None,
        timeout_s: float = 5,
        give_up_s: float = 5,
        report_for_s: float = 30,
        heartbeat_s: float = 3,
        lease_s: float = 30,
    ) -> None:
        url, token = url or os.environ.get("ALLSTOP_URL"), token or os.environ.get("ALLSTOP_TOKEN")
        if not url or not token:
            raise ValueError("Where is Allstop? Set ALLSTOP_URL and ALLSTOP_TOKEN, or pass url and token.")
        self.worker = worker or f"{socket.gethostname()}-{os.getpid()}"
        self._pace = Pace(heartbeat_s=heartbeat_s, report_for_s=report_for_s, lease_s=lease_s)
        self._wire = Wire(url, token, timeout_s=timeout_s, give_up_s=give_up_s)

    def run(
        self,
        key: str,
        *,
        name: str | None = None,
        session: str | None = None,
        agent: str | None = None,
        runtime: str | None = None,
        labels: dict[str, str] | None = None,
        ungateable: list[str] | None = None,
        drill: bool = False,
        silent_after_s: int | None = None,
    ) -> Run:
        """Register the run, or attach to it if the key is known: `with client.run("nightly-7") as run: …`.

        ungateable: tools that the model provider runs by itself, which no stop of yours can hold. Entering
        raises StopRequested when a stop is in force already, RunEnded when the key belongs to a finished run.
        """
        spec = {
            "key": key,
            "name": name,
            "session": session,
            "agent": agent,
            "runtime": runtime,
            "labels": labels,
            "ungateable": ungateable,
            "drill": drill or None,
            "silent_after_s": silent_after_s,
        }
        spec = {field: value for field, value in spec.items() if value is not None}
        return Run(self._wire, spec, worker=self.worker, pace=self._pace)

    def request_stop(
        self,
        *,
        run_id: str | None = None,
        run_key: str | None = None,
        key: str | None = None,
        **words: object,
    ) -> Json:
        """Stop a run, by id or, also before it exists, by key. Returns the stop request.

        words: reason, note, mode. Needs a token with stop:write. Raises StopNotRecorded unless the server
        confirmed it.
        """
        if (run_id is None) == (run_key is None):
            raise TypeError("Say either run_id=… or run_key=….")
        path, key = "stops" if run_id is None else f"runs/{run_id}/stops", key or new_key()
        body = {**words} if run_key is None else {**words, "run_key": run_key}
        try:
            return self._wire.post(path, body, key=key).data
        except (GateUnavailable, Rejected) as error:
            raise StopNotRecorded(f"This stop is NOT confirmed: {error}", key) from error

    def put_kind(self, name: str, definition: Json) -> Json:
        """Register or replace an effect kind with its six answers. Needs a token with kinds:write."""
        return self._wire.put(f"kinds/{name}", definition).data

    def close(self) -> None:
        """Close the connections. Runs must have ended."""
        self._wire.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
