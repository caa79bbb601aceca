"""What must hold whatever was killed. Fed the unsafe shapes of unsafe.py, it has to say so."""

from __future__ import annotations

from typing import Any

from tests.kills import rows
from tests.kills.site import Site

HAPPENED = ("CONFIRMED", "PARTIAL")
DID_NOT = ("NOT_APPLIED", "NOT_STARTED", "DECLARED")


def violations(site: Site) -> list[str]:
    """One sentence each; none for a system that keeps its promises."""
    return [
        *sent_twice(site),
        *called_wrongly(site),
        *stops_lost(site),
        *(f"{permit} was opened after the fence" for (permit,) in rows.begun_after_the_fence(site.database)),
        *(f"{permit} is in no stop's list" for (permit,) in rows.unlisted(site.database)),
    ]


def sent_twice(site: Site) -> list[str]:
    """Counted before the bank deduplicates, and by order, so that a new key does not hide it."""
    counts = rows.requests(site.bank.ledger)
    return [f"{order} was sent {count} times" for order, count in counts.items() if count > 1]


def called_wrongly(site: Site) -> list[str]:
    """UNKNOWN is never wrong; whether it may be the last word is for the table."""
    booked = rows.applied(site.bank.ledger)
    return [
        f"{order} is called {settlement}; the bank booked it {booked[order]} times"
        for order, settlement in rows.effects(site.database)
        if (settlement in DID_NOT and booked[order]) or (settlement in HAPPENED and not booked[order])
    ]


def stops_lost(site: Site) -> list[str]:
    """Each stop that was answered 200 or 201 is a row, and its run was moved to its version, or it waits."""
    return [f"the stop of {told['run_key']} was acknowledged and is not there: {lost}"
            for told in site.acknowledged if (lost := _lost(site, told))]  # fmt: skip


def _lost(site: Site, told: dict[str, Any]) -> str:
    found = site.database.rows(
        "SELECT s.version_after, r.cancel_version, r.status FROM runs_stoprequest s "
        f"LEFT JOIN runs_run r ON r.id = s.run_id WHERE s.id = '{told['id']}'"
    )
    if not found:
        return "no row"
    ((stop, run, status),) = found
    if told["waiting"] and run is None:
        return ""
    held = stop == (told["version_after"] or stop) and run >= stop and status != "ACTIVE"
    return "" if held else f"stop v{stop}, run v{run} {status}"
