"""Daphne in this process: listens, lets requests end, then goes."""

import asyncio
import http.client
import socket
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from daphne.http_protocol import WebRequest
from daphne.server import Server as Daphne
from django.conf import settings
from twisted.internet import defer

GRACE = 10.0  # seconds for requests that have begun when the server is told to go


class Server(Daphne):
    """Told to stop, it takes no new connection, waits for requests under way, then closes the sockets.

    `ready` is called when it listens, `leave` at once when it is told to stop.
    """

    def __init__(
        self,
        application: object,
        *,
        host: str,
        port: int,
        ready: Callable[[], None],
        leave: Callable[[], None] = lambda: None,
    ) -> None:
        escaped = host.replace(":", "\\:")
        super().__init__(
            application,
            endpoints=[f"tcp:port={port}:interface={escaped}"],
            ready_callable=ready,
            server_name="",
            websocket_max_message_size=65536,
            verbosity=0,
        )
        self.leave = leave
        self.ports: list[Any] = []
        self.failed: str | None = None

    def listen_success(self, port: Any) -> None:
        self.ports.append(port)
        super().listen_success(port)

    def listen_error(self, failure: object) -> None:
        self.failed = str(failure)
        super().listen_error(failure)

    def kill_all_applications(self) -> object:
        return defer.Deferred.fromFuture(asyncio.ensure_future(self.finish()))

    async def finish(self) -> None:
        self.leave()
        for port in self.ports:
            closing: defer.Deferred[None] = defer.maybeDeferred(port.stopListening)
            await closing.asFuture(asyncio.get_running_loop())
        if requests := self.under_way(WebRequest):
            await asyncio.wait(requests, timeout=GRACE)
        rest = self.under_way(object)
        for future in rest:
            future.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    def under_way(self, kind: type) -> list["asyncio.Future[object]"]:
        found = [
            details.get("application_instance")
            for protocol, details in self.connections.items()
            if isinstance(protocol, kind)
        ]
        return [future for future in found if future is not None and not future.done()]


def taken(host: str, port: int) -> str:
    """Why the port can't be had, or nothing."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.strerror or str(error)
    return ""


def free_port(host: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def first_page(host: str, port: int, *, seconds: float = 30.0) -> int:
    """Ask for the first page, through its redirects, until it answers. The HTTP status; 0 for no answer."""
    until, status = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        try:
            return _page(host, port)
        except OSError:
            time.sleep(0.05)
    return status


def _page(host: str, port: int) -> int:
    path = "/"
    for _ in range(5):
        asked = http.client.HTTPConnection(host, port, timeout=30)
        try:
            asked.request("GET", path, headers=_headers(port))
            answer = asked.getresponse()
            answer.read()
        finally:
            asked.close()
        if answer.status not in (301, 302, 303, 307, 308):
            return answer.status
        path = urlsplit(answer.headers["Location"])._replace(scheme="", netloc="").geturl()
    return 508


def _headers(port: int) -> dict[str, str]:
    """A name the server answers to; behind a proxy also the proxy's word that the visitor came by https."""
    name = next((host.lstrip(".") for host in settings.ALLOWED_HOSTS if host != "*"), "127.0.0.1")
    return {"Host": f"{name}:{port}", "X-Forwarded-Proto": "https" if settings.SECURE else "http"}
