"""What the two clients share: their settings, and the words of a run and of a stop."""

from __future__ import annotations

import functools
import os
import socket
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from allstop.courier import Courier
from allstop.errors import GateUnavailable, Json, Rejected
from allstop.link import Link, Pace
from allstop.outbox import Outbox, digest, find_folder
from allstop.talk import Answer, Ask, Talk, asked
from allstop.wire import Address, Wire, new_key

R = TypeVar("R")


class StopNotRecorded(Exception):
    """Nobody confirmed this stop: it may or may not be on record. Ask again with the same `key`."""

    def __init__(self, message: str, key: str) -> None:
        super().__init__(message)
        self.key = key


class BaseClient(ABC, Generic[R]):
    """A connection to one Allstop server. All times are in seconds.

    url, token: default to ALLSTOP_URL and ALLSTOP_TOKEN. timeout_s: one try of one call. give_up_s: all tries
    of one call; after it the gate counts as unavailable. report_for_s: how long a report is repeated until it
    is delivered. lease_s: how long the server waits for a sign of life before it takes a claim for lost; the
    heartbeat renews it. buffer: the folder in which reports are kept until they are heard, or False; default
    ALLSTOP_BUFFER (a folder, or "off"), else the user's state folder.
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
        buffer: str | os.PathLike[str] | bool | None = None,
    ) -> None:
        url, token = url or os.environ.get("ALLSTOP_URL"), token or os.environ.get("ALLSTOP_TOKEN")
        if not url or not token:
            raise ValueError("Where is Allstop? Set ALLSTOP_URL and ALLSTOP_TOKEN, or pass url and token.")
        self.worker = worker or f"{socket.gethostname()}-{os.getpid()}"
        pace = Pace(heartbeat_s=heartbeat_s, report_for_s=report_for_s, lease_s=lease_s)
        self._address = Address(url, token, timeout_s=timeout_s, give_up_s=give_up_s)
        self._outbox = Outbox(find_folder(buffer, url), told_by=digest(token))
        self._courier = Courier(self._outbox, self._address)
        self._link = Link(self.worker, pace, give_up_s, self._outbox)

    @functools.cached_property
    def _wire(self) -> Wire:
        return Wire(self._address)

    def _send(self, ask: Ask) -> Answer:
        """Ask, from any thread."""
        return self._wire.send(ask)

    @abstractmethod
    def _attach(self, spec: Json) -> R:
        """The run of this spec, not yet entered."""

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
        parent: str | None = None,
    ) -> R:
        """Register the run, or attach to it if the key is known: `with client.run("nightly-7") as run: …`.

        ungateable: tools that the model provider runs by itself, which no stop of yours can hold. Entering
        raises StopRequested when a stop is in force already, RunEnded when the key belongs to a finished run.
        parent: the id of the run that started this one; a stop of that one reaches this one too.
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
            "parent": parent,
        }
        return self._attach({field: value for field, value in spec.items() if value is not None})

    def _close(self) -> None:
        self._outbox.close()
        if "_wire" in vars(self):
            self._wire.close()


def target(scope: str | None, **named: object) -> tuple[str, Json]:
    """Where a stop is posted, and what it names. Raises TypeError unless exactly one thing is named."""
    given = {name: value for name, value in named.items() if value is not None}
    if scope == "workspace" and not given:
        return "stops", {"scope": scope}
    if len(given) != 1 or scope not in (None, *(_SCOPES[name] for name in given)):
        names = ", ".join(f"{name}=…" for name in _SCOPES)
        raise TypeError(f'Say what to stop, one of {names}; or scope="workspace".')
    name, value = given.popitem()
    if name in ("run_id", "step_id"):
        return f"{name.removesuffix('_id')}s/{value}/stops", {}
    return "stops", {name: value} | ({} if name == "run_key" else {"scope": _SCOPES[name]})


_SCOPES = {
    "run_id": "run",
    "run_key": "run",
    "step_id": "step",
    "session": "session",
    "policy": "policy",
    "run_ids": "runs",
}


def stopping(where: tuple[str, Json], key: str | None, words: Json) -> Talk[Json]:
    """Ask for a stop of a `target`. Raises StopNotRecorded unless the server confirmed it."""
    path, key = where[0], key or new_key()
    body = {**words, **where[1]}
    try:
        return (yield from asked(Ask("POST", path, body, key))).data
    except (GateUnavailable, Rejected) as error:
        raise StopNotRecorded(f"This stop is NOT confirmed: {error}", key) from error


def registering_kind(name: str, definition: Json) -> Talk[Json]:
    """Register or replace an effect kind."""
    return (yield from asked(Ask("PUT", f"kinds/{name}", definition))).data
