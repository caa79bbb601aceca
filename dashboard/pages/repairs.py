"""The run page's section of compensations, and what may be proposed for each of its effects."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.urls import reverse

from dashboard import repair_words
from dashboard.pages import halts
from dashboard.pages.facts import Facts
from dashboard.pages.halts import Told
from dashboard.pages.review_facts import named
from dashboard.pages.stages import clock
from dashboard.words import Term
from effects.models import Compensation, CompensationState, Effect, Settlement
from runs import halts as halting
from runs.models import RunStatus

HAPPENED = (Settlement.CONFIRMED, Settlement.PARTIAL)
AT_REST = (RunStatus.PAUSED, RunStatus.CANCELLED, RunStatus.UNKNOWN, RunStatus.COMPLETED, RunStatus.FAILED)
SPENT = (CompensationState.VERIFIED, CompensationState.ACCEPTED_UNKNOWN)
ORDER = ("PROPOSED", "APPROVED", "DISPATCHED", "UNKNOWN", "FAILED", "VERIFIED", "ACCEPTED_UNKNOWN")
COUNTED = {
    "PROPOSED": "in review",
    "APPROVED": "approved, not sent",
    "DISPATCHED": "under way",
    "UNKNOWN": "result unknown",
    "FAILED": "failed",
    "VERIFIED": "verified",
    "ACCEPTED_UNKNOWN": "accepted as unknown",
    "REJECTED": "rejected",
    "EXPIRED": "expired",
    "VOID": "void",
    "NOT_NEEDED": "not needed",
}


@dataclass(frozen=True)
class Row:
    """One compensation of the run. `line` is its newest evidence, `review` its newest review."""

    compensation: Compensation
    title: str
    term: Term
    says: str
    line: int | None
    href: str


class Repairs:
    """The compensations of one run: how many stand where, and the rows that are shown."""

    def __init__(self, facts: Facts) -> None:
        self.facts, self.run = facts, facts.run
        self.total = facts.repairs.total()
        self.says = counted(facts.repairs)
        self.unanswered = facts.unanswered

    @cached_property
    def halts(self) -> list[Told]:
        """The halts that keep what waits from being sent; none are read where nothing waits."""
        if not (self.facts.repairs["PROPOSED"] or self.facts.repairs["APPROVED"]):
            return []
        kinds = [(one.kind_name, one.op_class) for one in self.facts.compensations]
        kinds += [(one.effect.kind_name, one.effect.op_class) for one in self.facts.compensations]
        halt = halting.over(self.run, kinds)
        return [halts.told(halt)] if halt else []

    @property
    def rows(self) -> list[Row]:
        return [self._row(one) for one in self.facts.compensations]

    @property
    def left_out(self) -> int:
        return self.total - len(self.facts.compensations)

    def _row(self, one: Any) -> Row:
        state = one.permit.state if one.permit else ""
        of = f"{one.given or 0} of {one.needed}" if one.needed else ""
        term = repair_words.term_of(one, state, halted=bool(self.halts), of=of)
        at = one.settled_at or one.unknown_since or one.dispatched_at or one.decided_at or one.proposed_at
        told = repair_words.told(term, one, "")
        href = reverse("review", args=[one.review_id]) if one.review_id else ""
        return Row(one, named(one), term, f"{told} {clock(at)}", one.line, href)


def counted(counts: Counter[str]) -> str:
    """`1 in review · 2 verified`; empty when there is none."""
    states = [*ORDER, *(state for state in COUNTED if state not in ORDER)]
    return " · ".join(f"{counts[state]} {COUNTED[state]}" for state in states if counts[state])


def proposal_of(effect: Effect, run_status: str, newest: dict[str, Compensation]) -> tuple[str, str]:
    """What the effects table offers: a word and an address; two empty texts where there is nothing to offer.

    The page that it leads to asks the rules and everything else, and says so when nothing can be proposed.
    """
    known = newest.get(effect.pk)
    if known is not None and (known.state in repair_words.STILL or known.state in SPENT):
        return "See its compensation", f"#{known.pk}"
    if run_status not in AT_REST or effect.settlement not in HAPPENED or not declares(effect):
        return "", ""
    return "Propose it…", reverse("propose", args=[effect.pk])


def declares(effect: Effect) -> bool:
    """Whether a corrective action was declared with it; by its own bytes, no query."""
    begins = bytes(effect.plan)
    return bool(begins) and not begins.startswith(b'{"none_because"')
