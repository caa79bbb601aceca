"""A provider that loses answers: faults as data, drawn from a seed, at a rate. It keeps its word even so.

Its word: what is asked for shows in look-ups within SHOWS_S of its request, or never happens; a key is known
for KEPT_S. Which fault meets a request hangs on its seed, its key and how often it was asked, not on who came
first; so each way of sending meets the same ones.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.provider import Fault, Ledger, Line, Provider, State

LIMIT_S = 0.5  # how long its callers wait for an answer
LATE_S = 1.2  # how long a slow request takes
SHOWS_S = 1.9
KEPT_S = 8.0
SILENT_S = 8.5  # an outage of its look-ups; when it ends, the key is forgotten
PAGE: dict[str, Any] = {"text": "<!doctype html><title>Sign in</title>", "content_type": "text/html"}

ON_SENDS = {
    "lost acknowledgement": Fault("drop_after"),
    "cut before it was done": Fault("drop_before"),
    "timeout, done": Fault("hold_after", for_s=LATE_S),
    "timeout, done later": Fault("hold_before", for_s=LATE_S),
    "a part of the batch": Fault("partial"),
    "429": Fault("answer", status=429),
    "500": Fault("answer", status=500),
    "a page instead of data": Fault("answer_after", status=502, **PAGE),
}
ON_LOOK_UPS = {
    "somebody else's object": Fault("wrong"),
    "a page for an object": Fault("answer", status=200, **PAGE),
    "429 to a look-up": Fault("answer", status=429),
    "look-up cut": Fault("drop_before"),
    "look-up timeout": Fault("hold_before", for_s=LATE_S),
}
NOT_YET, DOWN, FORGOTTEN = "404 though done", "look-ups down", "key forgotten"


class Lossy(State):
    """`met`: how often each fault came. `changed`: how often the world changed, by key.

    `keyless`: it takes each request for a new one, and can be asked by the key all the same. `only`: no other
    faults than these, on sends.
    """

    def __init__(
        self,
        ledger: Ledger,
        rate: float,
        seed: int,
        *,
        keyless: bool = False,
        only: Mapping[str, Fault] | None = None,
        kept_s: float = KEPT_S,
    ) -> None:
        super().__init__(ledger)
        self.rate, self.seed, self.keyless, self.only, self.kept_s = rate, seed, keyless, only, kept_s
        self.met: Counter[str] = Counter()
        self.changed: Counter[str] = Counter()
        self.asked: Counter[tuple[str, str]] = Counter()
        self._first: dict[str, float] = {}  # when a key was first sent, and last; when it was applied
        self.last: dict[str, float] = {}
        self._done: dict[str, float] = {}

    def take(self, method: str, key: str | None) -> dict[str, Fault]:
        with self.lock:
            told, found = super().take(method, key), self._fault(method, str(key))
            if found is None:
                return told
            name, fault = found
            self.met[name] += 1
        return {**told, fault.do: replace(fault)}

    def apply(self, key: str | None, body: Any, faults: dict[str, Fault]) -> tuple[int, Line]:
        name = str(key)
        with self.lock:
            if time.monotonic() > self.last[name] + SHOWS_S:
                return 503, {"error": "too late"}
            if self.keyless or self._forgotten(name):
                self.objects.pop(name, None)
            status, made = super().apply(key, body, faults)
            if status == 201:
                self.changed[name] += 1
                self._done[name] = time.monotonic()
        return status, made

    def _fault(self, method: str, key: str) -> tuple[str, Fault] | None:
        """What the next request of this key meets, by name."""
        now = time.monotonic()
        if method == "POST":
            self._first.setdefault(key, now)
            self.last[key] = now
        elif (often := self._of_key(key, now)) is not None:
            return often
        self.asked[method, key] += 1
        draw = self._draw(method, key, self.asked[method, key])
        faults = self._on(method)
        return draw.choice(list(faults.items())) if faults and draw.random() < self.rate else None

    def _on(self, method: str) -> Mapping[str, Fault]:
        if self.only is not None:
            return self.only if method == "POST" else {}
        return ON_SENDS if method == "POST" else ON_LOOK_UPS

    def _of_key(self, key: str, now: float) -> tuple[str, Fault] | None:
        """What each look-up of this key meets: an outage, a key that is forgotten, or not to be seen yet."""
        if self.only is not None:
            return None
        draw = self._draw("key", key)
        down, slow, lag = draw.random() < self.rate / 2, draw.random() < self.rate, draw.uniform(0.2, 0.6)
        if down and now < self._first.get(key, now) + SILENT_S:
            return DOWN, Fault("drop_before")
        if self._forgotten(key):
            return FORGOTTEN, Fault("absent")
        done = self._done.get(key)
        if slow and done is not None and now < min(done + lag, self.last[key] + SHOWS_S):
            return NOT_YET, Fault("absent")
        return None

    def _forgotten(self, key: str) -> bool:
        return key in self._done and time.monotonic() > self._done[key] + self.kept_s

    def _draw(self, *of: object) -> random.Random:
        return random.Random(":".join(map(str, (self.seed, *of))))


class LossyProvider(Provider):
    """The provider of tests/provider.py with that mind."""

    def __init__(self, ledger: Path, rate: float, seed: int, **more: Any) -> None:
        super().__init__(ledger)
        self.mind = Lossy(self.ledger, rate, seed, **more)
        self.state = self._server.state = self.mind

    def sends(self, key: str) -> int:
        """How many requests came under this key, before any is taken for a repetition."""
        return self.mind.asked["POST", key]

    def changed(self, key: str) -> int:
        """How often the world was changed for this key."""
        return self.mind.changed[key]

    def come_to_rest(self) -> None:
        """Until whatever was sent is done, or never will be."""
        last = max(self.mind.last.values(), default=0.0)
        time.sleep(max(0.0, last + SHOWS_S - time.monotonic()))
