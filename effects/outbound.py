"""Calls that leave this machine: where they may go, how long they take, how much may come back.

Every call of a provider, look-up or webhook passes here. https only, to public addresses only, to
exactly the address that was checked, without redirects, proxies or credentials in the URL. The
exact origins of ALLSTOP_OUTBOUND_ORIGINS are exempt from the https and address rules, from nothing
else. The caller learns one thing for certain: whether a byte of the request may have left.
"""

from __future__ import annotations

import http.client
import io
import ipaddress
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import SplitResult, urlsplit

from django.conf import settings

LIMIT_S = 5.0  # from the first question for the name to the last byte of the answer
CAP = 256 * 1024  # bytes of an answer's body; the rest is not read
CHUNK = 16 * 1024
PORTS = {"https": 443, "http": 80}

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Place = tuple[socket.AddressFamily, Any]
Found = list[Place] | OSError

# Not global, or a way around the rules: addresses that carry an IPv4 address inside, and the
# metadata service of one cloud that has a public one.
NEVER = [
    ipaddress.ip_network(text)
    for text in (
        "100.64.0.0/10",
        "168.63.129.16/32",
        "192.0.0.0/24",
        "192.88.99.0/24",
        "198.18.0.0/15",
        "240.0.0.0/4",
        "::/96",
        "::ffff:0:0/96",
        "64:ff9b::/96",
        "64:ff9b:1::/48",
        "2001::/32",
        "2002::/16",
        "fec0::/10",
    )
]


class Refused(ValueError):
    """Our own rules forbid this call. Nothing was sent."""


class NoConnection(ConnectionError):
    """No connection came about, so not one byte of the request was sent."""


class NoAnswer(ConnectionError):
    """The request began to leave and no whole answer came: what happened is not known."""


@dataclass(frozen=True)
class Request:
    """What to send. `body` leaves byte for byte; header values too (UTF-8).

    `limit_s`: how long all of it may take, for a call that is known to be slow; LIMIT_S otherwise.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    limit_s: float | None = None


@dataclass(frozen=True)
class Answer:
    """What came back. `cut`: the body went on past CAP and the rest was left unread."""

    status: int
    content_type: str
    body: bytes
    cut: bool = False


@dataclass(frozen=True)
class Target:
    """Where a URL points, taken apart once."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self._written}:{self.port}"

    @property
    def host_header(self) -> str:
        return self._written if self.port == PORTS[self.scheme] else f"{self._written}:{self.port}"

    @property
    def _written(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def call(request: Request, ready: Callable[[], None] = lambda: None) -> Answer:
    """Send one request, once; there is no second try in here.

    `ready` is called when the connection stands, directly before the first byte; what it raises
    passes through, and nothing was sent. Raises Refused, NoConnection, NoAnswer.
    """
    end = time.monotonic() + (request.limit_s or LIMIT_S)
    target = target_of(request.url)
    _check_headers(request)
    places = places_of(target, end)
    with _connect(target, places, end) as connected:
        wire = _Wire(connected, end)
        ready()
        return _exchange(wire, target, request)


def places_of(target: Target, end: float) -> list[Place]:
    """The addresses that a target may be called at, looked up once. Raises Refused, NoConnection."""
    exempt = target.origin in exempt_origins()
    if target.scheme != "https" and not exempt:
        raise Refused(f"{target.scheme} is not https")
    places = _resolve(target, end)
    if not exempt:
        _check_places(target, places)
    return places


def target_of(url: str) -> Target:
    """A URL taken apart, or Refused: no other scheme, no credentials, nothing that reads two ways."""
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise Refused("the address holds characters that must be percent-encoded")
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname or ""
    except ValueError as error:
        raise Refused(f"the address can't be read: {error}") from error
    if parts.scheme not in PORTS:
        raise Refused(f"{parts.scheme or 'no scheme'} is not https")
    if "@" in parts.netloc:
        raise Refused("credentials do not belong into an address")
    if not host or "%" in host or port == 0:
        raise Refused("the address names no host")
    return Target(parts.scheme, host, port or PORTS[parts.scheme], _path(parts))


def _path(parts: SplitResult) -> str:
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def exempt_origins() -> set[str]:
    """The origins that this installation's operator trusts; what can't be read exempts nothing."""
    found = set()
    for text in settings.ALLSTOP_OUTBOUND_ORIGINS:
        try:
            found.add(target_of(text).origin)
        except Refused:
            continue
    return found


def _check_headers(request: Request) -> None:
    """A header leaves as it is or not at all: a cut or trimmed key would be another key."""
    for name, value in request.headers.items():
        if value != value.strip() or not all(sign.isprintable() for sign in value):
            raise Refused(f"{name} holds characters that can't stand in a header")


# where -----------------------------------------------------------------------------------------


def forbidden(address: IPAddress) -> str:
    """Why an address may not be called; empty when it may."""
    if address.is_unspecified:
        return "is no address of a host"
    if address.is_loopback:
        return "is this machine"
    if address.is_link_local:
        return "is link-local"
    if address.is_multicast:
        return "is a group, not a host"
    hidden = any(address in network for network in NEVER if network.version == address.version)
    return "" if address.is_global and not address.is_reserved and not hidden else "is not public"


def _resolve(target: Target, end: float) -> list[Place]:
    """Ask for the name once. What is checked is what is connected to."""
    box: queue.SimpleQueue[Found] = queue.SimpleQueue()
    asking = threading.Thread(target=lambda: box.put(_ask(target)), name="allstop-resolve", daemon=True)
    asking.start()
    try:  # the system's resolver knows no deadline
        found = box.get(timeout=max(0.0, end - time.monotonic()))
    except queue.Empty:
        raise NoConnection(f"the name {target.host} was not resolved in time") from None
    if isinstance(found, OSError) or not found:
        raise NoConnection(f"the name {target.host} could not be resolved: {found}")
    return found


def _ask(target: Target) -> Found:
    try:
        rows = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except UnicodeError:  # a label that is empty or too long
        return []
    except OSError as error:
        return error
    return [(row[0], row[4]) for row in rows]


def _check_places(target: Target, places: list[Place]) -> None:
    """One forbidden address is enough: a name with both kinds is not to be trusted."""
    for _, place in places:
        why = forbidden(ipaddress.ip_address(place[0].partition("%")[0]))
        if why:
            found = "" if target.host == place[0] else f" is {place[0]}, which"
            raise Refused(f"{target.host}{found} {why}")


def _connect(target: Target, places: list[Place], end: float) -> socket.socket:
    why: object = "no address"
    for tried, (family, place) in enumerate(places):
        raw = socket.socket(family, socket.SOCK_STREAM)
        try:
            raw.settimeout(_left(end) / (len(places) - tried))  # each address gets its share
            raw.connect(place)
            return _secure(raw, target, end) if target.scheme == "https" else raw
        except (OSError, ValueError) as error:
            raw.close()
            why = error
    raise NoConnection(f"no connection to {target.origin}: {why}")


def _secure(raw: socket.socket, target: Target, end: float) -> socket.socket:
    raw.settimeout(_left(end))
    return _tls().wrap_socket(raw, server_hostname=target.host)


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError("its time was over")
    return left


# one exchange ----------------------------------------------------------------------------------


class _Wire:
    """The socket that http.client sees: one deadline for all of it, and whether a byte has left."""

    def __init__(self, connected: socket.socket, end: float) -> None:
        self.socket, self.end = connected, end
        self.begun = False

    def sendall(self, data: Any) -> None:
        view = memoryview(data)
        for start in range(0, len(view), CHUNK):
            self.socket.settimeout(_left(self.end))
            self.begun = True
            self.socket.sendall(view[start : start + CHUNK])

    def makefile(self, *_: Any) -> io.BufferedReader:
        return io.BufferedReader(_Bytes(self))

    def close(self) -> None:
        """http.client closes early; the socket is closed by call(), which opened it."""


class _Bytes(io.RawIOBase):
    """Reads with what is left of the deadline, so that a dripping answer can't stretch it."""

    def __init__(self, wire: _Wire) -> None:
        self.wire = wire

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self.wire.socket.settimeout(_left(self.wire.end))
        return self.wire.socket.recv_into(buffer)


def _exchange(wire: _Wire, target: Target, request: Request) -> Answer:
    connection: Any = http.client.HTTPConnection(target.host, target.port)
    connection.sock, connection.auto_open = wire, 0
    try:
        connection.request(request.method, target.path, request.body, _headers(target, request))
        response = connection.getresponse()
        body = response.read(CAP + 1)
    except (OSError, http.client.HTTPException, ValueError) as error:
        said = str(error) or type(error).__name__
        if wire.begun:
            raise NoAnswer(f"no answer from {target.origin}: {said}") from error
        raise NoConnection(f"nothing was sent to {target.origin}: {said}") from error
    if len(body) <= CAP and response.length:
        raise NoAnswer(f"the answer of {target.origin} broke off")
    return Answer(response.status, response.headers.get("Content-Type", ""), body[:CAP], len(body) > CAP)


def _headers(target: Target, request: Request) -> dict[str, Any]:
    plain = {
        "Host": target.host_header,
        "User-Agent": "Allstop",
        "Accept": "application/json",
        "Accept-Encoding": "identity",  # what is not unpacked can't burst
        "Connection": "close",
    }
    return {name: value.encode() for name, value in {**plain, **request.headers}.items()}
