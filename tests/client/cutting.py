"""A proxy that lets a request through and cuts the wire before its answer: the server did it, nobody was
told.
"""

from __future__ import annotations

import http.client
import re
import socket
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Cutting(ThreadingHTTPServer):
    """In front of `upstream`. `cut(path)`: lose the next answer to a request whose path matches."""

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        self.upstream = urllib.parse.urlsplit(upstream)
        self.patterns: list[str] = []
        self.cuts = 0
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> Cutting:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()

    def cut(self, path: str) -> None:
        self.patterns.append(path)

    def is_cut(self, path: str) -> bool:
        found = next((pattern for pattern in self.patterns if re.search(pattern, path)), None)
        if found is not None:
            self.patterns.remove(found)
            self.cuts += 1
        return found is not None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever is cut off is part of the test."""


class _Handler(BaseHTTPRequestHandler):
    server: Cutting

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        asked = http.client.HTTPConnection(self.server.upstream.netloc, timeout=20)
        kept = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        asked.request(self.command, self.path, body, kept | {"Host": self.server.upstream.netloc})
        answer = asked.getresponse()
        data = answer.read()
        asked.close()
        if self.server.is_cut(self.path):
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.send_response(answer.status)
        for name in ("Content-Type", "Idempotency-Replayed"):
            if answer.headers.get(name):
                self.send_header(name, answer.headers[name])
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = _pass_on  # noqa: N815
    do_POST = _pass_on  # noqa: N815

    def log_message(self, *_: Any) -> None:
        pass
