"""The drills as the server knows them: their names and words, from `dashboard.drills`."""

from __future__ import annotations

from dataclasses import dataclass

from dashboard.drills.engine import Drill
from dashboard.drills.listed import DRILLS


@dataclass(frozen=True)
class Entry:
    """What a page says of a drill before it was run. `note`: what it needs beside this instance."""

    name: str
    title: str
    shows: str
    kind: str
    note: str


def entry_of(drill: Drill) -> Entry:
    """A drill's words."""
    notes = {
        "private instance": "Runs on a private instance that is started for it, never on this one.",
        "browser": "Needs a browser on the worker’s machine.",
    }
    note = " ".join(told for need, told in notes.items() if need in drill.needs)
    return Entry(drill.name, drill.title, drill.shows, drill.kind, note)


ENTRIES: tuple[Entry, ...] = tuple(entry_of(drill) for drill in DRILLS)
NAMES: tuple[str, ...] = tuple(entry.name for entry in ENTRIES)
BY_NAME: dict[str, Entry] = {entry.name: entry for entry in ENTRIES}
