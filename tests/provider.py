"""A real HTTP provider on loopback, with a ledger that records every request before it is deduplicated.

In a test: `with Provider(path) as bank: …`. As a process of its own, to be killed or to outlive others:
`python -m tests.provider --port 0 --ledger FILE` prints `ready http://127.0.0.1:PORT`.

POST /<things>          applies once per Idempotency-Key (always without one): 201 {id, key, status, body}
POST /batches           body {"items": [...]}: 201 {id, key, status, applied: [...], failed: [...]}
GET  /<things>?key=K    200 with the object, or 404; with &fence=1 a key that is absent is fenced first
DELETE /<things>?key=K  fences the key: it is never applied from now on; 200 {"fenced": bool}
GET  /__ledger          every line written so far
POST /__control         {"fault": {…}} · {"release": true} · {"clear": true}

Faults are data (see Fault): the provider misbehaves, the product is never told that it is a test.
"""

from __future__ import annotations

import argparse
import json
import socket
import threading
import time
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

Line = dict[str, Any]

LONGEST_HOLD_S = 60.0


@dataclass
class Fault:
    """How the next matching request is treated. Several may match one request.

    do: hold_before · hold_after (apply, then hold the answer) · drop_before · drop_after (apply, then cut the
    connection) · double (apply twice, as a provider without idempotency) · answer (don't apply, answer
    `status` and `text`) · answer_after (apply, then answer so) · absent (a look-up says 404) · wrong (a
    look-up answers with somebody else's object) · partial (apply the first `count` items of a batch).
    method, key: which requests; None is any. times: how many requests; 0 is all. for_s: a hold ends by
    itself.
    """

    do: str
    method: str | None = None
    key: str | None = None
    times: int = 1
    status: int = 500
    text: str = '{"error": "out of order"}'
    content_type: str = "application/json"
    for_s: float = LONGEST_HOLD_S
    count: int = 1

    def matches(self, method: str, key: str | None) -> bool:
        return self.method in (None, method) and self.key in (None, key)


class Ledger:
    """The lines in a file: readable from any process, kept when the provider is killed.

    A line: {"event", "at", "key", …}. Events: request · held · applied · repeated · fenced · cut · answered.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    def write(self, event: str, key: str | None, **more: Any) -> None:
        line = json.dumps({"event": event, "at": time.time(), "key": key, **more}) + "\n"
        with self._lock, self.path.open("a") as file:
            file.write(line)

    def lines(
        self, event: str | None = None, key: str | None = None, method: str | None = None
    ) -> list[Line]:
        """The lines so far, in order; a line cut short by a kill is left out."""
        text = self.path.read_text() if self.path.exists() else ""
        lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        wanted = {"event": event, "key": key, "method": method}
        return [x for x in lines if all(v is None or x.get(k) == v for k, v in wanted.items())]

    def sends(self, key: str | None = None) -> int:
        """How many POSTs arrived, counted before deduplication."""
        return len(self.lines("request", key, "POST"))

    def applied(self, key: str | None = None) -> int:
        """How many times the world changed."""
        return len(self.lines("applied", key))

    def wait_for(
        self, event: str, key: str | None = None, *, count: int = 1, within_s: float = 20
    ) -> list[Line]:
        """The lines, as soon as there are `count` of them. AssertionError when they don't come."""
        end = time.monotonic() + within_s
        while len(found := self.lines(event, key)) < count:
            assert time.monotonic() < end, f"{count} x {event} of {key} did not come; got {self.lines()}"
            time.sleep(0.01)
        return found


@dataclass
class State:
    """What the provider knows. Rebuilt from the ledger, so that it survives a restart."""

    ledger: Ledger
    faults: list[Fault] = field(default_factory=list)
    objects: dict[str, Line] = field(default_factory=dict)
    fenced: set[str] = field(default_factory=set)
    lock: threading.RLock = field(default_factory=threading.RLock)
    released: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.objects = {x["key"]: x["object"] for x in self.ledger.lines("applied") if x["key"]}
        self.fenced = {x["key"] for x in self.ledger.lines("fenced") if x["key"]}

    def take(self, method: str, key: str | None) -> dict[str, Fault]:
        """The faults of this request, by what they do; used-up ones are gone afterwards."""
        with self.lock:
            taken = [f for f in self.faults if f.matches(method, key)]
            for fault in taken:
                fault.times -= 1
            self.faults = [f for f in self.faults if f.times != 0]
        return {f.do: f for f in taken}

    def apply(self, key: str | None, body: Any, faults: dict[str, Fault]) -> tuple[int, Line]:
        """Change the world, unless this key already did or is fenced. Returns status and object."""
        with self.lock:
            if key in self.fenced:
                return 409, {"error": "this key is fenced"}
            if key in self.objects and "double" not in faults:
                self.ledger.write("repeated", key)
                return 200, self.objects[str(key)]
            for _ in range(2 if "double" in faults else 1):
                made = _object(key, body, faults.get("partial"))
                self.ledger.write("applied", key, object=made)
                if key:
                    self.objects[key] = made
            return 201, made

    def fence(self, key: str | None) -> bool:
        """Refuse this key from now on, unless it was applied already. Whether it is fenced."""
        with self.lock:
            if key is None or key in self.objects:
                return False
            self.fenced.add(key)
            self.ledger.write("fenced", key)
            return True

    def hold(self, key: str | None, fault: Fault | None, where: str) -> None:
        if fault is not None:
            self.ledger.write("held", key, where=where)
            self.released.wait(min(fault.for_s, LONGEST_HOLD_S))


def _object(key: str | None, body: Any, partial: Fault | None) -> Line:
    made: Line = {"id": f"obj_{uuid.uuid4().hex[:12]}", "key": key, "status": "succeeded", "body": body}
    items = body.get("items") if isinstance(body, dict) else None
    if isinstance(items, list):
        count = len(items) if partial is None else partial.count
        made |= {"applied": items[:count], "failed": items[count:]}
        made["status"] = "succeeded" if count >= len(items) else "partial"
    return made


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        if self.path == "/__control":
            return self._control(json.loads(self._text()))
        state, key, text = self.server.state, self.headers.get("Idempotency-Key"), self._text()
        state.ledger.write("request", key, method="POST", path=self.path, text=text)
        faults = state.take("POST", key)
        if self._instead(faults, key):
            return None
        status, made = state.apply(key, _parsed(text), faults)
        state.hold(key, faults.get("hold_after"), "after apply")
        if "drop_after" in faults:
            return self._cut(key)
        if later := faults.get("answer_after"):
            return self._answer(later.status, later.text, key, later.content_type)
        return self._answer(status, json.dumps(made), key)

    def do_GET(self) -> None:
        state, key = self.server.state, self._key()
        if self.path == "/__ledger":
            return self._answer(200, json.dumps(state.ledger.lines()), log=False)
        state.ledger.write("request", key, method="GET", path=self.path)
        faults = state.take("GET", key)
        if self._instead(faults, key):
            return None
        if "wrong" in faults:
            return self._answer(200, json.dumps(_object("somebody-else", {"amount": "1.00"}, None)), key)
        with state.lock:
            if self._asked("fence"):
                state.fence(key)
            found = None if "absent" in faults or key is None else state.objects.get(key)
        return self._answer(404, '{"error": "absent"}', key) if found is None else self._found(found, key)

    def do_DELETE(self) -> None:
        state, key = self.server.state, self._key()
        state.ledger.write("request", key, method="DELETE", path=self.path)
        self._answer(200, json.dumps({"fenced": state.fence(key)}), key)

    def _instead(self, faults: dict[str, Fault], key: str | None) -> bool:
        """The faults that come before anything is done. True when the request is finished by one of them."""
        self.server.state.hold(key, faults.get("hold_before"), "before apply")
        if "drop_before" in faults:
            self._cut(key)
        elif fault := faults.get("answer"):
            self._answer(fault.status, fault.text, key, fault.content_type)
        return "drop_before" in faults or "answer" in faults

    def _control(self, order: Line) -> None:
        state = self.server.state
        with state.lock:
            if "fault" in order:
                state.released.clear()
                state.faults.append(Fault(**order["fault"]))
            if order.get("clear"):
                state.faults.clear()
            if order.get("release"):
                state.released.set()
        self._answer(200, "{}", log=False)

    def _found(self, found: Line, key: str | None) -> None:
        self._answer(200, json.dumps(found), key)

    def _key(self) -> str | None:
        return self._asked("key")

    def _asked(self, name: str) -> str | None:
        query = urllib.parse.urlsplit(self.path).query
        return urllib.parse.parse_qs(query).get(name, [None])[0]

    def _text(self) -> str:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()

    def _cut(self, key: str | None) -> None:
        self.server.state.ledger.write("cut", key)
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _answer(
        self, status: int, text: str, key: str | None = None, kind: str = "application/json", log: bool = True
    ) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())
        except OSError:  # the caller was killed or gave up; what was applied stays applied
            self.close_connection = True
        if log:
            self.server.state.ledger.write("answered", key, status=status)

    def log_message(self, *_: Any) -> None:
        pass


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # SIGKILLed callers leave half-open connections; a full queue must not look like a slow provider.
    request_queue_size = 128

    def __init__(self, port: int, state: State) -> None:
        self.state = state
        super().__init__(("127.0.0.1", port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that vanished is daily life here."""


class Provider:
    """The provider in threads of this process. `url` has no slash at its end."""

    def __init__(self, ledger: Path, port: int = 0) -> None:
        self.ledger = Ledger(ledger)
        self.state = State(self.ledger)
        self._server = _Server(port, self.state)
        self.port = int(self._server.server_address[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def fault(self, do: str, **settings: Any) -> None:
        """Misbehave from now on. `settings`: the fields of Fault."""
        self.state.released.clear()
        with self.state.lock:
            self.state.faults.append(Fault(do, **settings))

    def release(self) -> None:
        """Let every held request go on."""
        self.state.released.set()


def control(url: str, **order: Any) -> None:
    """Command a provider that runs as a process: control(url, fault={"do": "hold_after"}), release=True,
    clear=True.
    """
    data = json.dumps(order).encode()
    request = urllib.request.Request(f"{url}/__control", data, method="POST")
    with urllib.request.urlopen(request, timeout=5) as answer:
        answer.read()


@contextmanager
def refused_address() -> Iterator[str]:
    """An address on loopback that refuses connections: bound, so nobody else takes it, but not listening."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description="A provider with a ledger, on loopback.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ledger", type=Path, required=True)
    options = parser.parse_args()
    server = _Server(options.port, State(Ledger(options.ledger)))
    print(f"ready http://127.0.0.1:{server.server_address[1]}", flush=True)  # noqa: T201
    server.serve_forever()


if __name__ == "__main__":
    main()
