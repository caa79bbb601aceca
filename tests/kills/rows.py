"""What the rows and the bank's ledger say of an order. Its name is run key, effect key and body at once."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tests.databases import Database
from tests.provider import Ledger

# Evidence that a report has to know of before it can be called the last.
ENDS = ("run.cancelled", "run.unknown", "effect.confirmed", "effect.not_applied")
RESTING = ("CANCELLED", "UNKNOWN", "COMPLETED", "FAILED")


@dataclass(frozen=True)
class Stands:
    """An order's rows. "" where there is none; `outcome` is that of the newest issued report."""

    run: str
    version: int
    step: str
    effect: str
    permit: str
    outcome: str
    listed: int

    @property
    def work(self) -> tuple[str, str, str]:
        return self.step, self.effect, self.permit

    @property
    def end(self) -> tuple[str, str, str, str]:
        return self.effect, self.step, self.run, self.outcome


def stands(database: Database, order: str) -> Stands:
    rows = database.rows(f"""
        SELECT r.status, r.cancel_version, s.status, e.settlement, p.state,
          (SELECT outcome FROM effects_report x WHERE x.run_id = r.id ORDER BY version DESC LIMIT 1),
          (SELECT COUNT(*) FROM runs_inflight i JOIN runs_permit q ON q.id = i.permit_id
            WHERE q.run_id = r.id)
        FROM runs_run r LEFT JOIN runs_step s ON s.run_id = r.id
          LEFT JOIN effects_effect e ON e.run_id = r.id LEFT JOIN runs_permit p ON p.run_id = r.id
        WHERE r.key = '{order}' ORDER BY p.id DESC
    """)
    assert rows, f"there is no run {order}"
    run, version, step, effect, permit, outcome, listed = rows[0]
    return Stands(run, version, step or "", effect or "", permit or "", outcome or "", listed)


def is_at_rest(database: Database, order: str) -> bool:
    """Nothing will move any more by itself: the run rests, no look-up is planned, the report knows it."""
    kinds = ", ".join(f"'{kind}'" for kind in ENDS)
    ((status, planned, newest, told),) = database.rows(f"""
        SELECT r.status,
          (SELECT COUNT(*) FROM effects_effect e WHERE e.run_id = r.id AND e.next_check_at IS NOT NULL),
          (SELECT MAX(seq) FROM runs_evidence v WHERE v.stream = r.id AND v.kind IN ({kinds})),
          (SELECT MAX(upto_seq) FROM effects_report x WHERE x.run_id = r.id)
        FROM runs_run r WHERE r.key = '{order}'
    """)
    return status in RESTING and not planned and (told or 0) >= (newest or 0) > 0


def stops_of(database: Database, order: str) -> int:
    """How many stop requests there are for the run of an order."""
    return int(database.value(f"SELECT COUNT(*) FROM runs_stoprequest WHERE run_key = '{order}'"))


def requests(ledger: Ledger) -> Counter[str]:
    """How often each order was asked for, by what the requests say, before any key deduplicates them."""
    return Counter(json.loads(line["text"])["order"] for line in ledger.lines("request", method="POST"))


def applied(ledger: Ledger) -> Counter[str]:
    """How often each order was booked."""
    return Counter(line["object"]["body"]["order"] for line in ledger.lines("applied"))


def effects(database: Database) -> list[tuple[str, str]]:
    """Run key and settlement of every effect."""
    return [
        (order, settlement)
        for order, settlement in database.rows(
            "SELECT r.key, e.settlement FROM effects_effect e JOIN runs_run r ON r.id = e.run_id"
        )
    ]


def begun_after_the_fence(database: Database) -> list[tuple[Any, ...]]:
    """Permits that were opened after the stop that ended their version, by the order of the evidence."""
    return database.rows("""
        SELECT v.permit_id FROM runs_evidence v JOIN runs_evidence f ON f.stream = v.stream
        WHERE v.kind = 'permit.opened' AND f.kind = 'stop.fenced' AND v.seq > f.seq
    """)


def unlisted(database: Database) -> list[tuple[Any, ...]]:
    """Permits from before the fence that had not ended by then, and that the stop does not list."""
    return database.rows("""
        SELECT v.permit_id FROM runs_evidence v JOIN runs_evidence f ON f.stream = v.stream
        WHERE v.kind = 'permit.opened' AND f.kind = 'stop.fenced' AND v.seq < f.seq
          AND NOT EXISTS (SELECT 1 FROM runs_inflight i WHERE i.permit_id = v.permit_id
            AND i.stop_id = f.stop_id)
          AND NOT EXISTS (SELECT 1 FROM runs_evidence d WHERE d.permit_id = v.permit_id AND d.seq < f.seq
            AND d.kind IN ('permit.reported', 'permit.not_sent'))
    """)


def lines_of(database: Database, order: str) -> list[str]:
    """The kinds of a run's evidence, in their order."""
    found = database.rows(
        "SELECT v.kind FROM runs_evidence v JOIN runs_run r ON r.id = v.stream "
        f"WHERE r.key = '{order}' ORDER BY v.seq"
    )
    return [kind for (kind,) in found]


def reports_of(database: Database, order: str) -> int:
    """How many versions of its report were issued."""
    rows = "SELECT COUNT(*) FROM effects_report x JOIN runs_run r ON r.id = x.run_id"
    return int(database.value(f"{rows} WHERE r.key = '{order}'"))


def refusals_of(database: Database, order: str) -> list[tuple[Any, ...]]:
    """Boundary, reason, carried and current version of each refusal."""
    return database.rows(
        "SELECT f.boundary, f.reason, f.carried_version, f.current_version FROM runs_refusal f "
        f"JOIN runs_run r ON r.id = f.run_id WHERE r.key = '{order}' ORDER BY f.id"
    )


def sent_for_again(database: Database, order: str) -> bool:
    """The sweep has found that nobody took this effect, and asked for it once more."""
    found = database.rows(
        "SELECT 1 FROM effects_effect e JOIN runs_run r ON r.id = e.run_id "
        f"WHERE r.key = '{order}' AND e.queued_at > e.declared_at"
    )
    return bool(found)


def exists(database: Database, order: str, *, effect: bool = False) -> bool:
    """Whether the run of an order was registered, and its effect declared."""
    table = "runs_run r" if not effect else "runs_run r JOIN effects_effect e ON e.run_id = r.id"
    return bool(database.value(f"SELECT COUNT(*) FROM {table} WHERE r.key = '{order}'"))


def asks_no_more(database: Database, order: str) -> bool:
    """No look-up of its effect is planned."""
    planned = "SELECT COUNT(*) FROM effects_effect WHERE next_check_at IS NOT NULL"
    return not database.value(f"{planned} AND key = '{order}'")
