"""What bank and mailer share: a ledger in a file, and a small HTTP server on loopback. Standard library
only.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Json = dict[str, Any]

# After the server's death it serves on for a while: a server that is restarted finds its world still there.
GRACE_S = 60.0


class Ledger:
    """Lines of JSON, kept over restarts: each request before it is deduplicated, each entry once per key.

    Two processes may share the file: entries are made under a lock and looked up in the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, event: str, key: str | None, **facts: Any) -> None:
        """Write down what happened."""
        with self._locked() as file:
            file.write(_line(event, key, facts))

    def enter_once(self, key: str | None, entry: Json) -> tuple[Json, bool]:
        """Make an entry, unless this key has one. Returns the key's entry and whether it is new."""
        with self._locked() as file:
            known = self.find(key)
            if known is not None:
                file.write(_line("repeated", key, {}))
                return known, False
            file.write(_line("entered", key, {"entry": entry}))
            return entry, True

    def find(self, key: str | None) -> Json | None:
        """The entry of a key, with `entered_at` in seconds since 1970."""
        for line in self.lines("entered"):
            if key is not None and line["key"] == key:
                return {**line["entry"], "entered_at": datetime.fromisoformat(line["at"]).timestamp()}
        return None

    def lines(self, event: str | None = None) -> list[Json]:
        """The lines so far; one that was cut short by a kill is left out."""
        text = self.path.read_text() if self.path.exists() else ""
        lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [line for line in lines if event in (None, line["event"])]

    @contextmanager
    def _locked(self) -> Iterator[Any]:
        with self.path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file


def _line(event: str, key: str | None, facts: Json) -> str:
    return json.dumps({"event": event, "at": datetime.now(UTC).isoformat(), "key": key, **facts}) + "\n"


class Handler(BaseHTTPRequestHandler):
    """One request. Subclasses say what a POST does (`receive`) and how a look-up answers (`look_up`)."""

    server: Outside

    @property
    def ledger(self) -> Ledger:
        """The ledger of this server."""
        return self.server.ledger

    def do_POST(self) -> None:
        key = self.headers.get("Idempotency-Key")
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        self.ledger.note("request", key, text=text)
        try:
            self.receive(key, json.loads(text))
        except (ValueError, KeyError, TypeError):
            self.answer(422, {"error": "This request can't be read."})

    def do_GET(self) -> None:
        address = urllib.parse.urlsplit(self.path)
        if address.path == "/ledger":
            return self.answer(200, {"lines": self.ledger.lines("entered")})
        key = urllib.parse.parse_qs(address.query).get("key", [None])[0]
        self.ledger.note("looked_up", key)
        return self.look_up(key)

    def wait(self, seconds: float) -> None:
        """Take that long, at the pace of this world."""
        time.sleep(seconds * self.server.pace)

    def receive(self, key: str | None, body: Json) -> None:
        """Act on a POST and answer it."""
        raise NotImplementedError

    def look_up(self, key: str | None) -> None:
        """Answer what became of a key."""
        found = self.ledger.find(key)
        self.answer(404, {"error": "There is nothing under this key."}) if found is None else self.answer(
            200, found
        )

    def answer(self, status: int, body: Json) -> None:
        """Send JSON. A caller that has gone changes nothing that was entered."""
        data = json.dumps(body, ensure_ascii=False, indent=1).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """The ledger is the log."""


class Outside(ThreadingHTTPServer):
    """Serves one kind of Handler on 127.0.0.1; `port` 0 or one that is taken: any free one.

    pace: every duration is multiplied by it.
    """

    daemon_threads = True

    def __init__(self, handler: type[Handler], port: int, ledger: Ledger, pace: float = 1.0) -> None:
        self.ledger, self.pace = ledger, pace
        try:
            super().__init__(("127.0.0.1", port), handler)
        except OSError:
            super().__init__(("127.0.0.1", 0), handler)

    @property
    def url(self) -> str:
        """Where it listens, without a slash at the end."""
        return f"http://127.0.0.1:{self.server_address[1]}"


def serve(handler: type[Handler]) -> None:
    """The main of bank and mailer: print the address, serve until ended or long after the parent's death."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ledger", type=Path, required=True)
    parser.add_argument("--pace", type=float, default=1.0)
    options = parser.parse_args()
    server = Outside(handler, options.port, Ledger(options.ledger), options.pace)
    print(server.url, flush=True)
    threading.Thread(target=_outlive_parent_briefly, daemon=True).start()
    server.serve_forever()


def _outlive_parent_briefly() -> None:
    sys.stdin.read()  # the parent holds the other end and never writes: it ends when the parent does
    time.sleep(GRACE_S)
    os._exit(0)
