"""The network between a drill's agent and Allstop: it holds answers, delays them, or cuts the wire."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import threading
import time
import urllib.parse
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LONGEST_HOLD_S = 60.0


@dataclass
class Rule:
    """What happens to the next answer of a call that matches, once the server has given it.

    do: hold (until `let_go`) · cut (it is lost) · delay (by `for_s`). `come`: it stands there now, since
    `come_at` by time.monotonic(); `data`: what the server said; `passed`: it has left.
    """

    do: str
    method: str
    path: str
    for_s: float = LONGEST_HOLD_S
    taken: bool = False
    come_at: float = 0.0
    come: threading.Event = field(default_factory=threading.Event)
    let_go: threading.Event = field(default_factory=threading.Event)
    passed: threading.Event = field(default_factory=threading.Event)
    data: Any = None

    def matches(self, method: str, path: str) -> bool:
        return self.method == method and re.search(self.path, path) is not None

    def release(self, within_s: float = 5) -> bool:
        """Let the answer go on its way; whether it has left."""
        self.let_go.set()
        return self.passed.wait(within_s)


def permit_of(asked: Rule) -> dict[str, Any]:
    """The permit in the gate's answer that is held here; empty when it gave none."""
    found: dict[str, Any] = (asked.data or {}).get("permit") or {}
    return found


def time_left(asked: Rule) -> float:
    """Seconds until that permit ends, at most: counted from when it had been given."""
    return float(asked.come_at + float(permit_of(asked)["permit_ttl_s"]) - time.monotonic())


class Proxy(ThreadingHTTPServer):
    """In front of the server at `upstream`; `url` is where. Answers: (method, path, status) as they came."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, upstream: str) -> None:
        self.upstream = urllib.parse.urlsplit(upstream)
        self.rules: list[Rule] = []
        self.answers: list[tuple[str, str, int]] = []
        self.lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for rule in self.rules:
            rule.let_go.set()
        self.shutdown()
        self.server_close()
        self._thread.join(5)

    def rule(self, do: str, method: str, path: str, **settings: Any) -> Rule:
        """Treat the next call so whose method is this and whose path matches."""
        made = Rule(do, method, path, **settings)
        with self.lock:
            self.rules.append(made)
        return made

    def take(self, method: str, path: str) -> Rule | None:
        with self.lock:
            rule = next((r for r in self.rules if not r.taken and r.matches(method, path)), None)
            if rule is not None:
                rule.taken = True
            return rule

    def saw(self, method: str, path: str, status: int) -> int:
        """How many calls were answered so."""
        with self.lock:
            return sum(m == method and s == status and bool(re.search(path, p)) for m, p, s in self.answers)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever is cut off is part of the drill."""


class _Handler(BaseHTTPRequestHandler):
    server: Proxy

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            status, headers, data = self._ask(body)
        except (OSError, http.client.HTTPException):
            return self._cut()  # the server is away: so is the answer
        with self.server.lock:
            self.server.answers.append((self.command, self.path, status))
        rule = self.server.take(self.command, self.path)
        if rule is not None and self._treat(rule, data):
            return self._cut()
        self._answer(status, headers, data)
        if rule is not None:
            rule.passed.set()
        return None

    def _ask(self, body: bytes) -> tuple[int, Any, bytes]:
        place = self.server.upstream
        asked = http.client.HTTPConnection(place.hostname or "", place.port, timeout=30)
        kept = {
            name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")
        }
        try:
            asked.request(self.command, self.path, body, kept | {"Connection": "close"})
            answer = asked.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            asked.close()

    def _treat(self, rule: Rule, data: bytes) -> bool:
        """Do what the rule says. Whether the answer is lost."""
        with contextlib.suppress(ValueError):
            rule.data = json.loads(data)
        rule.come_at = time.monotonic()
        rule.come.set()
        if rule.do == "hold":
            rule.let_go.wait(rule.for_s)
        elif rule.do == "delay":
            time.sleep(rule.for_s)
        return rule.do == "cut"

    def _cut(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _answer(self, status: int, headers: Any, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self.send_response(status)
            for name in ("Content-Type", "Idempotency-Replayed", "Retry-After"):
                if headers.get(name):
                    self.send_header(name, headers[name])
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    do_GET = _pass_on  # noqa: N815
    do_POST = _pass_on  # noqa: N815
    do_PUT = _pass_on  # noqa: N815

    def log_message(self, *_: Any) -> None:
        pass
