"""The one way out of a browser of ours: a proxy that connects to named origins at checked addresses alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from . import outbound

HEAD_MAX, HEAD_S, CHUNK = 64 * 1024, 10.0, 64 * 1024
DROPPED = (b"connection", b"proxy-connection", b"proxy-authorization", b"keep-alive", b"upgrade")


class Proxy:
    """On loopback, for one visit: a tunnel to https, or a request passed on to http (of exempt origins)."""

    def __init__(self, origins: frozenset[str]) -> None:
        self.origins = origins
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """The port that it listens at."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=HEAD_MAX)
        return int(self._server.sockets[0].getsockname()[1])

    async def end(self) -> None:
        """No connection is left afterwards."""
        if self._server is not None:
            self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_S)
            await self._connect(head, reader, writer)
        except (OSError, ValueError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            pass  # the browser is told by the end of its connection
        except asyncio.CancelledError:
            pass
        finally:
            writer.close()
            self._open.discard(task)

    async def _connect(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, _, rest = head.partition(b" ")
        asked = rest.partition(b" ")[0].decode("ascii")
        tunnel = method == b"CONNECT"
        try:
            target = self._target(asked, tunnel)
            place = await self._place(target)
        except (outbound.Refused, outbound.NoConnection):
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
            return
        far_reader, far_writer = await asyncio.open_connection(*place)
        try:
            if tunnel:
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            else:
                far_writer.write(_plain(head, method, target))
            await _both(_pump(reader, far_writer), _pump(far_reader, writer))
        finally:
            far_writer.close()

    def _target(self, asked: str, tunnel: bool) -> outbound.Target:
        """Where this leads: one of the origins. Raises Refused."""
        written = [f"https://{asked}", f"http://{asked}"] if tunnel else [asked]
        for target in map(outbound.target_of, written):
            if target.origin in self.origins:
                return target
        raise outbound.Refused("not named by the kind")

    async def _place(self, target: outbound.Target) -> tuple[str, int]:
        """An address to connect to. Raises Refused, NoConnection."""
        end = time.monotonic() + outbound.LIMIT_S
        places = await asyncio.to_thread(outbound.places_of, target, end)
        return places[0][1][0], places[0][1][1]


def _plain(head: bytes, method: bytes, target: outbound.Target) -> bytes:
    """The request as its server reads it: one a connection, without what was meant for the proxy."""
    lines = [line for line in head.split(b"\r\n")[1:] if line]
    kept = [line for line in lines if line.partition(b":")[0].strip().lower() not in DROPPED]
    first = method + b" " + target.path.encode() + b" HTTP/1.1"
    return b"\r\n".join([first, *kept, b"Connection: close", b"", b""])


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    with suppress(OSError, RuntimeError):
        if writer.can_write_eof():
            writer.write_eof()


async def _both(there: Coroutine[Any, Any, None], back: Coroutine[Any, Any, None]) -> None:
    """Until the far side has said all that it says; what the browser still sends is not waited for."""
    sending, hearing = asyncio.ensure_future(there), asyncio.ensure_future(back)
    try:
        await hearing
    finally:
        sending.cancel()
        hearing.cancel()
        await asyncio.gather(sending, hearing, return_exceptions=True)
