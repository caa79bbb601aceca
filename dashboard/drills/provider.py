"""The drills' own provider: a small HTTP server on loopback that misbehaves on order and forgets nothing.

POST /charges   applies once per Idempotency-Key (or the `key` of a form): 201 the object; 200 if it was there
GET  /charges?key=K   200 with the object, or 404
GET  /page?key=K      a page with one button, which posts that key

Its ledger holds each request before it is deduplicated: what a drill says about safety, it says by this.
"""

from __future__ import annotations

import contextlib
import html
import json
import socket
import threading
import time
import urllib.parse
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LONGEST_HOLD_S = 60.0
FIRST_BYTES = b"HT"  # of an answer: a longer beginning is taken for all of one
PAGE = """<!doctype html><title>DRILL</title><link rel="icon" href="data:,">
<h1>A page of the drill's own provider</h1>
<form method="post" action="/charges"><input type="hidden" name="key" value="{key}">
<button id="send">Send</button></form>"""


@dataclass(frozen=True)
class Entry:
    """One line of the ledger. event: request · held · applied · repeated · cut · answered."""

    event: str
    key: str
    at: float = field(default_factory=time.time)


class Ledger:
    """What arrived and what was done, in order."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._news = threading.Condition()

    def note(self, event: str, key: str) -> None:
        """One more line."""
        with self._news:
            self._entries.append(Entry(event, key))
            self._news.notify_all()

    def count(self, event: str, key: str) -> int:
        """How many such lines there are. A key that ends with * stands for all that begin so."""
        with self._news:
            return self._count(event, key)

    def wait(self, event: str, key: str, count: int = 1, within_s: float = 20) -> bool:
        """Whether there are that many of them in time."""
        with self._news:
            return self._news.wait_for(lambda: self._count(event, key) >= count, within_s)

    def _count(self, event: str, key: str) -> int:
        return sum(entry.event == event and _means(key, entry.key) for entry in self._entries)


def _means(pattern: str, key: str) -> bool:
    return key.startswith(pattern[:-1]) if pattern.endswith("*") else key == pattern


@dataclass
class Fault:
    """How requests with this key are treated. `let_go`: a hold ends.

    do: hold_before (hold it, then apply) · hold_after (apply, then hold the answer) · drop_after (apply, then
    cut the connection) · cut_short (the same, after the first bytes of the answer: a browser that got none
    repeats a form by itself) · double (apply twice, as a provider that knows no keys) · late (apply, answer
    after `for_s`) · answer (apply nothing, answer `status`).
    """

    do: str
    key: str
    times: int = 0
    status: int = 402
    for_s: float = LONGEST_HOLD_S
    let_go: threading.Event = field(default_factory=threading.Event)


class Provider:
    """Serves in threads of this process. `url` has no slash at its end."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.objects: dict[str, dict[str, Any]] = {}
        self.faults: list[Fault] = []
        self.lock = threading.RLock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.provider = self
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Provider:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def fault(self, do: str, key: str, *, times: int = 0, **settings: Any) -> Fault:
        """Misbehave so from now on, for that many requests (0: always)."""
        made = Fault(do, key, times, **settings)
        with self.lock:
            self.faults.append(made)
        return made

    def release(self) -> None:
        """Let everything go that is held, and behave from now on."""
        with self.lock:
            for fault in self.faults:
                fault.let_go.set()
            self.faults.clear()

    def sends(self, key: str) -> int:
        """How many requests to change something arrived, before deduplication."""
        return self.ledger.count("request", key)

    def applied(self, key: str) -> int:
        """How many times the world changed."""
        return self.ledger.count("applied", key)

    # -- what its handler asks

    def take(self, key: str) -> dict[str, Fault]:
        """The faults of this request, by what they do."""
        with self.lock:
            taken = [fault for fault in self.faults if _means(fault.key, key)]
            for fault in taken:
                fault.times -= 1
            self.faults = [fault for fault in self.faults if fault.times != 0]
        return {fault.do: fault for fault in taken}

    def apply(self, key: str, *, twice: bool) -> tuple[int, dict[str, Any]]:
        """Change the world, unless this key already did. Status and object."""
        with self.lock:
            if key in self.objects and not twice:
                self.ledger.note("repeated", key)
                return 200, self.objects[key]
            for _ in range(2 if twice else 1):
                self.objects[key] = {"id": f"obj_{uuid.uuid4().hex[:12]}", "key": key, "status": "succeeded"}
                self.ledger.note("applied", key)
            return 201, self.objects[key]

    def hold(self, key: str, fault: Fault | None) -> None:
        """Wait until it is let go."""
        if fault is not None:
            self.ledger.note("held", key)
            fault.let_go.wait(min(fault.for_s, LONGEST_HOLD_S))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    provider: Provider

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that was killed is part of the drill."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        provider, key = self.server.provider, self._key()
        provider.ledger.note("request", key)
        faults = provider.take(key)
        provider.hold(key, faults.get("hold_before"))
        if fault := faults.get("answer"):
            return self._answer(key, fault.status, {"error": "declined"})
        status, made = provider.apply(key, twice="double" in faults)
        provider.hold(key, faults.get("hold_after"))
        provider.hold(key, faults.get("late"))
        if "cut_short" in faults or "drop_after" in faults:
            return self._cut(key, FIRST_BYTES if "cut_short" in faults else b"")
        return self._answer(key, status, made)

    def do_GET(self) -> None:
        address = urllib.parse.urlsplit(self.path)
        key = urllib.parse.parse_qs(address.query).get("key", [""])[0]
        if address.path == "/page":
            return self._send(200, "text/html", PAGE.format(key=html.escape(key)).encode())
        found = self.server.provider.objects.get(key)
        if found is None:
            return self._send(404, "application/json", b'{"error": "absent"}')
        return self._send(200, "application/json", json.dumps(found).encode())

    def _key(self) -> str:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        form = urllib.parse.parse_qs(body).get("key", [""])[0]
        return self.headers.get("Idempotency-Key") or form

    def _cut(self, key: str, first: bytes) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.wfile.write(first)
            self.connection.shutdown(socket.SHUT_RDWR)
        self.server.provider.ledger.note("cut", key)

    def _answer(self, key: str, status: int, body: dict[str, Any]) -> None:
        self._send(status, "application/json", json.dumps(body).encode())
        self.server.provider.ledger.note("answered", key)

    def _send(self, status: int, kind: str, body: bytes) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:  # whoever asked has gone; what was applied stays applied
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """The ledger is the log."""


@contextlib.contextmanager
def served() -> Iterator[Provider]:
    """A provider for as long as the block lasts."""
    with Provider() as provider:
        yield provider
