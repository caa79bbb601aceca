"""Who signed which version, and the sentence of it. Read now: sign-offs stand beside a version, not in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import OuterRef, QuerySet, Subquery

from dashboard import words
from dashboard.repair_words import STILL
from effects.close import COMPENSATION_PENDING
from effects.models import DeliveryState, Settlement, SignOff
from runs.models import EvidencePayload, RunStatus

DOUBTFUL = (Settlement.UNKNOWN, Settlement.DISPATCHED)
UNSENT = (DeliveryState.QUEUED, DeliveryState.HELD, DeliveryState.DISPATCHED, DeliveryState.UNKNOWN)


@dataclass(frozen=True)
class SignRow:
    """One sign-off. `actor` is an id; `open` counts what the version left open; `line` is its evidence.

    `newest`: the newest version when it was signed. `note` is "" where there was none or it was removed.
    """

    id: str
    version: int
    newest: int
    digest: str
    actor: str
    open: int
    at: datetime
    line: int
    note: str
    says: str


@dataclass(frozen=True)
class StatementFacts:
    """The statement of a version: whose key signed it, or why none did. Kept by others, it dates the head."""

    id: str
    key: str
    signature: str
    unsigned: str

    @property
    def says(self) -> str:
        if self.unsigned:
            return f"Its statement is {self.unsigned}."
        return f"Its statement {self.id} is signed (Ed25519) with the key {self.key}."


def has_read(open_items: int) -> str:
    """What a person signs: "I have read this; 1 item is open."."""
    left = words.count(open_items, "item is", "items are") if open_items else "nothing is"
    return f"I have read this; {left} open."


def says(version: int, newest: int, open_items: int) -> str:
    """The sentence of a sign-off; signing an old version says so."""
    older = f" Version {newest} was the newest when version {version} was signed." if newest > version else ""
    return f"{has_read(open_items)}{older}"


Counts = Mapping[str, int]


def open_items(effects: Counts, repairs: Counts, messages: Counts, status: str, outcome: str) -> int:
    """How many items a version leaves open: effects, compensations and messages, and a stop that timed out.

    A compensation that failed without a decision has no open state, and leaves the outcome open all the same.
    """
    counted = sum(effects.get(state, 0) for state in DOUBTFUL)
    counted += sum(repairs.get(state, 0) for state in STILL)
    counted += sum(messages.get(state, 0) for state in UNSENT)
    counted += status == RunStatus.CANCELLING_TIMEOUT
    return max(counted, outcome == COMPENSATION_PENDING)


def open_in(body: Mapping[str, Any]) -> int:
    """The same of a frozen document."""
    repairs = body.get("repairs", {}).get("counts", {})
    messages = body.get("deliveries", {})
    return open_items(body["manifest"]["counts"], repairs, messages, body["status"], body["outcome"])


def signed_rows(run_id: str) -> list[SignRow]:
    """All sign-offs of a run's report, oldest first: one query."""
    noted = EvidencePayload.objects.filter(stream=run_id, seq=OuterRef("line"))
    rows: QuerySet[Any, Any] = SignOff.objects.filter(report__run=run_id).order_by("pk")
    told = rows.annotate(body=Subquery(noted.values("body")[:1])).values_list(*COLUMNS, named=True)
    return [_row(one) for one in told]


COLUMNS = ("pk", "version", "newest", "digest", "person_id", "open_items", "at", "line", "body")


def _row(one: Any) -> SignRow:
    return SignRow(
        id=one.pk,
        version=one.version,
        newest=one.newest,
        digest=one.digest,
        actor=f"user:{one.person_id}",
        open=one.open_items,
        at=one.at,
        line=one.line,
        note=words.clean(json.loads(one.body).get("note", "")) if one.body else "",
        says=says(one.version, one.newest, one.open_items),
    )
