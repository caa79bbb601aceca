"""The outside world of outbound calls: servers that misbehave on loopback, and names that resolve as told."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from typing import Any

import pytest

from effects import outbound
from effects.outbound import Answer, Request

PUBLIC, INNER = "127.0.0.2", "127.0.0.1"  # two addresses of this machine play the roles of two places


def get(url: str) -> Answer:
    return outbound.call(Request("GET", url))


def post(url: str, body: bytes = b"{}", key: str = "k") -> Answer:
    return outbound.call(Request("POST", url, {"Idempotency-Key": key}, body))


@contextmanager
def server(answer: Callable[[Any], None], host: str = INNER, port: int = 0) -> Iterator[HTTPServer]:
    """A server whose answer is written by `answer(handler)`; `seen(server)` keeps path and headers."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append((self.path, dict(self.headers)))
            answer(self)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            pass

    requests: list[tuple[str, dict[str, str]]] = []
    made = Quiet((host, port), Handler)
    made.requests = requests  # type: ignore[attr-defined]
    thread = threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.shutdown()
        made.server_close()
        thread.join()


def seen(made: HTTPServer) -> list[tuple[str, dict[str, str]]]:
    found: list[tuple[str, dict[str, str]]] = made.requests  # type: ignore[attr-defined]
    return found


def ok(handler: Any) -> None:
    answer(handler, 200, b'{"ok": true}')


def answer(handler: Any, status: int, body: bytes, **headers: str) -> None:
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **headers}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


def url_of(made: HTTPServer, host: str | None = None, scheme: str = "http") -> str:
    return f"{scheme}://{host or made.server_address[0]!s}:{made.server_port}"


def names(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> list[str]:
    """Let every name resolve to these addresses, one after the other; returns the questions asked."""
    asked: list[str] = []

    def getaddrinfo(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        place = addresses[min(len(asked), len(addresses) - 1)]
        asked.append(host)
        if ":" in place:
            return [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", (place, port, 0, 0))]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (place, port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


def nobody_connects(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Keep each address that someone tried to connect to, and let no one through."""
    tried: list[Any] = []

    def connect(_: socket.socket, place: Any) -> None:
        tried.append(place)
        raise ConnectionRefusedError("refused by the test")

    monkeypatch.setattr(socket.socket, "connect", connect)
    return tried
