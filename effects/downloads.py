"""Fetching a file that a person named on a command line, by the rules of every call that leaves (outbound).

https to public addresses, exempt origins, and this machine itself; no redirects, no proxies. A file may be
larger and take longer than an answer of a provider; it goes to disk, a piece at a time.
"""

from __future__ import annotations

import http.client
import ipaddress
import time
from collections.abc import Mapping
from typing import IO, Any

from . import outbound
from .outbound import CHUNK, NoAnswer, NoConnection, Place, Refused, Request, Target

MOST = 1 << 30  # bytes
LIMIT_S = 600.0


def download(url: str, into: IO[bytes], headers: Mapping[str, str], most: int = MOST) -> None:
    """Write what the URL answers with 200 into a file. Raises Refused, NoConnection, NoAnswer."""
    end = time.monotonic() + LIMIT_S
    target = outbound.target_of(url)
    places = _places(target, end)
    with outbound._connect(target, places, end) as connected:
        wire = outbound._Wire(connected, end)
        connection: Any = http.client.HTTPConnection(target.host, target.port)
        connection.sock, connection.auto_open = wire, 0
        try:
            request = Request("GET", url, {"Accept": "*/*", **headers})
            connection.request("GET", target.path, None, outbound._headers(target, request))
            _take(connection.getresponse(), into, most, target)
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswer(
                f"no whole answer from {target.origin}: {str(error) or type(error).__name__}"
            ) from error


def _places(target: Target, end: float) -> list[Place]:
    """Where to connect: this machine, also without https, or where any call may go."""
    found = outbound._resolve(target, end)
    if all(ipaddress.ip_address(place[0].partition("%")[0]).is_loopback for _, place in found):
        return found
    return outbound.places_of(target, end)


def _take(answer: Any, into: IO[bytes], most: int, target: Target) -> None:
    if answer.status != http.client.OK:
        moved = "; redirects are not followed" if 300 <= answer.status < 400 else ""
        raise NoAnswer(f"{target.origin} answers {answer.status}{moved}")
    taken = 0
    while part := answer.read(CHUNK):
        taken += len(part)
        if taken > most:
            raise NoAnswer(f"{target.origin} sends more than {most} bytes")
        into.write(part)
    if answer.length:
        raise NoAnswer(f"the answer of {target.origin} broke off")


__all__ = ["NoAnswer", "NoConnection", "Refused", "download"]
