"""What a page shows of a long report: some rows of the manifest, by state, by words, a page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from .rows import DOUBTFUL

SEARCHED = ("name", "key", "target", "amount", "ground", "provider_ref", "kind")


@dataclass(frozen=True)
class Wanted:
    """What a reader looks for in the manifest: a settlement, words in a row, and which page (from 1)."""

    state: str = ""
    q: str = ""
    page: int = 1

    @property
    def narrows(self) -> bool:
        return bool(self.state or self.q)

    def at(self, page: int) -> Wanted:
        return replace(self, page=page)


def shorten(body: dict[str, Any], most: int, wanted: Wanted) -> int:
    """Leave the claims and rows that one page shows; totals say what is left out. Returns how many effects
    match. Nothing of a frozen document is changed but what this copy shows of it.
    """
    for section in body["sections"]:
        section["left_out"] += max(0, len(section["claims"]) - most)
        section["claims"] = section["claims"][:most]
    body["log"]["rows"] = body["log"]["rows"][:most]
    rows, total = _matching(body["manifest"]["rows"], wanted), body["manifest"]["total"]
    if len(rows) > most or wanted.narrows:
        start = (wanted.page - 1) * most
        shown = _in_doubt_first(rows)[start : start + most]
        body["manifest"] |= {"rows": shown, "says": _says(start, len(shown), len(rows), total, wanted)}
    return len(rows)


def _matching(rows: list[Any], wanted: Wanted) -> list[Any]:
    if wanted.state:
        rows = [row for row in rows if row["settlement"] == wanted.state]
    if wanted.q:
        sought = wanted.q.casefold()
        rows = [row for row in rows if any(sought in row[name].casefold() for name in SEARCHED)]
    return rows


def _in_doubt_first(rows: Sequence[Any]) -> list[Any]:
    doubtful = [row for row in rows if row["settlement"] in DOUBTFUL]
    return [*doubtful, *(row for row in rows if row["settlement"] not in DOUBTFUL)]


def _says(start: int, shown: int, matching: int, total: int, wanted: Wanted) -> str:
    whole = "The JSON of this version lists all."
    if not shown:
        return f"No effect matches here. {whole}"
    match = f"{matching} that match, of {total}" if wanted.narrows else f"{total}"
    which = f"{start + 1} to {start + shown} of {match}" if start else f"{shown} of {match}"
    return f"{which} effects, those in doubt first. {whole}"
