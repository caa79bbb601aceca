"""The provider of the machine: what reached it, and what it holds. No row of ours knows it."""

from __future__ import annotations

from collections import Counter

ANSWERED, HALF, LATE, NEVER, REFUSED = "answered", "half", "late", "never", "refused"
HOW = (ANSWERED, ANSWERED, HALF, LATE, NEVER, REFUSED)
FORGETS_S = 86_400


class Bank:
    """Each call that began is in `asked`, before anything else. What is on the wire arrives within an hour.

    `fences`: a look-up that finds nothing bars the key. `dedupes`: the same key is applied once a day.
    """

    def __init__(self, *, fences: bool, dedupes: bool) -> None:
        self.fences, self.dedupes = fences, dedupes
        self.asked: Counter[str] = Counter()
        self.applied: Counter[str] = Counter()
        self.halves: set[str] = set()
        self.barred: set[str] = set()
        self.known: set[str] = set()
        self.wire: list[str] = []

    def call(self, key: str, how: str) -> str:
        """A call begins; what its caller can say of it."""
        self.asked[key] += 1
        if how == REFUSED or (key in self.barred and how in (ANSWERED, HALF)):
            return "not_applied"
        if how == LATE:
            self.wire.append(key)
        if how in (LATE, NEVER):
            return "unknown"
        self._apply(key)
        if how == HALF:
            self.halves.add(key)
        return "partial" if key in self.halves else "applied"

    def _apply(self, key: str) -> None:
        if key in self.barred or (self.dedupes and key in self.known):
            return
        self.applied[key] += 1
        self.known.add(key)

    def arrive(self) -> None:
        """All that is on the wire arrives."""
        while self.wire:
            self._apply(self.wire.pop())

    def look(self, key: str) -> str:
        """What it says about a key, by what it remembers."""
        if key in self.known:
            return "partial" if key in self.halves else "present"
        if self.fences:
            self.barred.add(key)
        return "absent"

    def pass_time(self, seconds: float) -> None:
        if seconds >= 3_600:
            self.arrive()
        if seconds > FORGETS_S:
            self.known.clear()
