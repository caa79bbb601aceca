"""What searches for mutants came to: a line a search, kept beside the machine, and the page made of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from django.db import connection

from .directed import BY_HAND, seen
from .mutants import ALL, Mutant
from .search import Found

ROOT = Path(__file__).parents[2]
LINES = Path(__file__).parent / "told.tsv"
PAGE = ROOT / "docs" / "mutants.md"
COLUMNS = "mutant", "database", "examples", "steps", "seconds", "day", "broken"
TITLES = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}

HEAD = """\
# Guards taken away

A test that finds nothing says little until it has found something. So each guard below is taken out of the
real code, one at a time, and a search calls the real verbs in many orders until a promise of the
[contract](invariants.md) breaks. "Killed" means that one broke, and names it. "Survived" means that this
search broke none: look at how long it was, and at the test that was written for that guard. "Not run" means
what it says.

Nobody types a result. The searches write theirs into `tests/model/told.tsv`
(`python -m pytest -m long tests/model/test_machine.py -k missed`), the tests in the last column write into
`tests/model/directed.tsv` whether they failed with that guard gone
(`python -m pytest -p tests.model.directed <tests>`, on SQLite); this page is written from both by
`ALLSTOP_WRITE=1 python -m pytest tests/model/test_machine.py -k page`, and the same test compares it.

"""


@dataclass(frozen=True)
class Told:
    """The newest search for one mutant."""

    database: str
    examples: str
    steps: str
    broken: str


def note(name: str, found: Found, size: tuple[int, int]) -> None:
    """One line more; two searches at once may each write theirs."""
    day = datetime.now(UTC).date().isoformat()
    broken = " ".join(found.broken.split())[:100]
    cells = [name, connection.vendor, *map(str, size), f"{found.seconds:.0f}", day, broken]
    with LINES.open("a") as file:
        file.write("\t".join(cells) + "\n")


def newest() -> dict[tuple[str, str], Told]:
    """By mutant and database; what the search found last counts."""
    read: dict[tuple[str, str], Told] = {}
    for line in LINES.read_text().splitlines() if LINES.exists() else ():
        name, database, examples, steps, _, _, broken = line.split("\t")
        if name in ALL:
            read[name, database] = Told(database, examples, steps, broken)
    return read


def became(mutant: Mutant, one: Told) -> str:
    """In a cell of the table: by which promise, or how long it was looked for."""
    where = f"{TITLES[one.database]}, at most {one.examples} × {one.steps} calls"
    first = one.broken.split(":")[0]
    if not one.broken:
        return f"survived · {where}"
    if first in mutant.killed_by:
        return f"**killed by {first}** · {where}"
    return f"something else broke: {one.broken} · {where}"


def cell(name: str, told: dict[tuple[str, str], Told]) -> str:
    found = [became(ALL[name], told[name, database]) for database in TITLES if (name, database) in told]
    return "<br>".join(found) or "not run"


def by_hand(name: str) -> str:
    test = BY_HAND[name]
    tried = seen()
    said = ("failed without it" if tried[name] else "**passed without it**") if name in tried else "not tried"
    pair = ALL[name].directed
    masked = "Another guard makes up for it.<br>" if pair else ""
    masked = f"Another guard makes up for it; both gone: “{pair}”.<br>" if pair in ALL else masked
    return f"{masked}`{test}`: {said}"


def page() -> str:
    told = newest()
    killed = sum("killed by" in cell(name, told) for name in ALL)
    none = sum(cell(name, told) == "not run" for name in ALL)
    failed = sum(seen().get(name, False) for name in ALL)
    lines = [
        f"{len(ALL)} mutants. Searches: {killed} killed, {len(ALL) - killed - none} not killed,"
        f" {none} not run. Tests written for one guard: {failed} failed without it.\n"
    ]
    lines += [
        "| Mutant | What is not asked any more | The search | The test written for it |",
        "|---|---|---|---|",
    ]
    lines += [f"| {name} | {ALL[name].gone} | {cell(name, told)} | {by_hand(name)} |" for name in ALL]
    return HEAD + "\n".join(lines) + "\n"


def write() -> None:
    PAGE.write_text(page())
