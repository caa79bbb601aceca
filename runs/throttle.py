"""Limits of API calls, counted in this process: of a token, of an address, of failed tokens.

What stops is never counted, nor what tells of work that was done or of a worker that lives. A bucket holds a
minute's calls, so a burst is fine and a lasting flood is not. Of many buckets the least used is forgotten.
"""

from __future__ import annotations

import hashlib
import math
import re
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

from . import counts
from .problems import Problem

KEPT = 10_000
# To hold up reports of permits and heartbeats would only make known things unknown.
REPORTS = re.compile(r"/(permits/[^/]+/report|runs/[^/]+/heartbeat)/?$")
# What is done with a stop that is there, such as forcing its deadline.
OF_A_STOP = re.compile(r"/stops/[^/]+/[^/]+/?$")


@dataclass(frozen=True)
class Taken:
    """What a call found: `left` calls of `quota` a minute, the bucket full again in `full_in_s`.

    `wait_s` is 0 for a call that may go on, else the seconds until the next one may.
    """

    quota: int
    left: int
    full_in_s: int
    wait_s: int


class Buckets:
    """A bucket for each name: it holds `quota` and fills by `quota` a minute."""

    def __init__(self, quota: int, kept: int = KEPT) -> None:
        self.quota, self.rate, self.kept = quota, quota / 60, kept
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._left)

    def take(self, name: str) -> Taken:
        """Take one from the bucket of this name, if there is one left."""
        with self._lock:
            now = time.monotonic()
            left, then = self._left.pop(name, (float(self.quota), now))
            left = min(self.quota, left + (now - then) * self.rate)
            wait = 0 if left >= 1 else math.ceil((1 - left) / self.rate)
            left = left if wait else left - 1
            self._left[name] = (left, now)
            if len(self._left) > self.kept:
                self._left.popitem(last=False)
        return Taken(self.quota, int(left), math.ceil((self.quota - left) / self.rate), wait)

    def forget(self) -> None:
        """Begin anew."""
        with self._lock:
            self._left.clear()


class Limits:
    """Of each token and of each address. A limit of 0 is none."""

    def __init__(self, per_token: int, per_address: int) -> None:
        self.of_token = Buckets(per_token) if per_token else None
        self.of_address = Buckets(per_address) if per_address else None

    def take(self, request: HttpRequest, address: str) -> dict[str, Taken]:
        """Count a call. Raises Problem (429) when there were too many; tokens that are wrong count too."""
        shown, found = request.headers.get("Authorization", ""), {}
        if self.of_address is not None:
            found["address"] = self.of_address.take(address)
        if shown and self.of_token is not None:
            # By the digest of all of it: nobody who knows but a part of a token can use up its calls.
            found["token"] = self.of_token.take(hashlib.sha256(shown.encode()).hexdigest())
        for by, taken in found.items():
            if taken.wait_s:
                counts.THROTTLED.labels(by).inc()
                raise _too_many(by, taken)
        return found


def concerns_a_stop(request: HttpRequest) -> bool:
    """Whether something is done with a stop that is there. Such a call waits for no place either."""
    return request.method == "POST" and bool(OF_A_STOP.search(request.path))


def is_counted(request: HttpRequest) -> bool:
    """Whether a limit applies to this call at all. The door knows of the press itself."""
    told = request.method == "POST" and REPORTS.search(request.path)
    return not told and not concerns_a_stop(request)


def _too_many(by: str, taken: Taken) -> Problem:
    detail = f"This {by} may make {taken.quota} calls a minute. Nothing was changed; stops have no limit."
    headers = {"Retry-After": str(taken.wait_s), **_headers({by: taken})}
    return Problem("too-many-requests", detail, headers=headers)


def tell(answer: HttpResponseBase, found: dict[str, Taken]) -> None:
    """Say on an answer how many calls are left: draft-ietf-httpapi-ratelimit-headers."""
    for name, value in _headers(found).items():
        answer.headers[name] = value


def _headers(found: dict[str, Taken]) -> dict[str, str]:
    if not found:
        return {}
    policy = ", ".join(f'"{by}";q={taken.quota};w=60' for by, taken in found.items())
    limit = ", ".join(f'"{by}";r={taken.left};t={taken.full_in_s}' for by, taken in found.items())
    return {"RateLimit-Policy": policy, "RateLimit": limit}


limits = Limits(settings.ALLSTOP_CALLS_PER_TOKEN, settings.ALLSTOP_CALLS_PER_ADDRESS)
