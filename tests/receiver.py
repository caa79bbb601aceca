"""A real receiver of notices on loopback: it checks signatures as Standard Webhooks says, and keeps a ledger.

`with Receiver() as receiver: …`. `receiver.secret` is what it was given; `receiver.letters` are the requests
in order. Faults, one a request: ("answer", 500) · ("drop", 0): take it and cut the connection · ("hold", 0):
wait for `release()`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOLERANCE_S = 300


@dataclass(frozen=True)
class Letter:
    """One request as it came. `genuine`: one of its signatures is right, and it is not old."""

    id: str
    at: int
    signatures: list[str]
    genuine: bool
    body: dict[str, Any]
    content_type: str


@dataclass
class State:
    secret: str = ""
    letters: list[Letter] = field(default_factory=list)
    faults: list[tuple[str, int]] = field(default_factory=list)
    held: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)


def is_genuine(secret: str, headers: Any, body: bytes) -> bool:
    """The check of a receiver, written from the standard and not from our own code."""
    text = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    key = base64.b64decode(secret.removeprefix("whsec_"))
    right = "v1," + base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()
    fresh = abs(time.time() - int(headers["webhook-timestamp"])) < TOLERANCE_S
    given = headers["webhook-signature"].split(" ")
    return fresh and any(hmac.compare_digest(right, one) for one in given)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        state = self.server.state
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        what, number = state.faults.pop(0) if state.faults else ("answer", 204)
        state.letters.append(
            Letter(
                self.headers["webhook-id"],
                int(self.headers["webhook-timestamp"]),
                self.headers["webhook-signature"].split(" "),
                is_genuine(state.secret, self.headers, body),
                json.loads(body),
                self.headers["Content-Type"],
            )
        )
        if what == "drop":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if what == "hold":
            state.held.set()
            state.released.wait(20)
        self.send_response(number if what == "answer" else 204)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, state: State) -> None:
        self.state = state
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that vanished is daily life here."""


class Receiver:
    """The server in threads of this process."""

    def __init__(self) -> None:
        self.state = State()
        self._server = _Server(self.state)
        self.origin = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.url = f"{self.origin}/hooks/s3cret-path"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def letters(self) -> list[Letter]:
        return self.state.letters

    def fault(self, *faults: tuple[str, int]) -> None:
        """How the next requests are treated, one each."""
        self.state.faults.extend(faults)

    def release(self) -> None:
        """Let what is held go on."""
        self.state.released.set()

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
