"""The compensations of one run as rows: two queries, one more where halts may keep one. No sentences."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from django.db.models import F, OuterRef, Subquery

from effects.models import Approval, Compensation, CompensationState, Review
from effects.review_tables import ApprovalState, Subject
from runs import halts
from runs.models import Evidence, Halt, Run

from .queries import newest

MOST = 200  # compensations with sentences of their own; the oldest
STANDING = (ApprovalState.GIVEN, ApprovalState.CONSUMED)


class RepairRows:
    """Compensations in the order in which they were proposed, with their approvals and lines."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.rows = self._read()
        self.approved_by = self._read_approvals()
        self.halts = self._read_halts()

    @property
    def lines(self) -> set[int]:
        """Every line that a sentence about one may cite."""
        return {seq for row in self.rows for seq in (row.line, row.sent, row.asked) if seq}

    @property
    def actors(self) -> set[str]:
        """Everybody who is named: who proposed, approved, decided."""
        gave = {actor for actors in self.approved_by.values() for actor in actors}
        return gave | {actor for row in self.rows for actor in (row.proposed_by, row.decided_by) if actor}

    def halt_of(self, row: Any) -> Halt | None:
        """The halt that keeps an undecided or approved one from being sent."""
        kinds = [(row.kind_name, row.op_class), (row.effect_kind, row.effect_class)]
        return halts.over(self.run, kinds) if self.halts else None

    def _read(self) -> list[Any]:
        mine = Evidence.objects.filter(stream=self.run.pk, effect_key=OuterRef("key")).order_by("-seq")
        asked = Review.objects.filter(subject=Subject.COMPENSATION, subject_id=OuterRef("pk")).order_by("-pk")
        of_effect = {f"effect_{name}": F(f"effect__{name}") for name in ("title", "amount", "target")}
        rows = Compensation.objects.filter(run=self.run).annotate(
            line=newest(mine.filter(kind__startswith="compensation.").exclude(kind="compensation.looked_up")),
            sent=newest(mine.filter(kind="compensation.dispatched")),
            asked=newest(mine.filter(kind="compensation.proposed")),
            permit_state=F("permit__state"),
            step_status=F("permit__step__status"),
            review=Subquery(asked.values("pk")[:1]),
            needed=Subquery(asked.values("needed")[:1]),
            expires_at=Subquery(asked.values("expires_at")[:1]),
            effect_kind=F("effect__kind_name"),
            effect_class=F("effect__op_class"),
            effect_key=F("effect__key"),
            polled=F("kind__lookup__poll"),
            **of_effect,
        )
        return list(rows.order_by("pk").values_list(*REPAIR, named=True)[:MOST])

    def _read_approvals(self) -> dict[str, list[str]]:
        """Who approved each, by its id: the approvals that stand or were used."""
        given = Approval.objects.filter(
            review__run=self.run, review__subject=Subject.COMPENSATION, state__in=STANDING
        )
        told: dict[str, list[str]] = defaultdict(list)
        for subject, person in given.order_by("pk").values_list("review__subject_id", "person_id"):
            told[subject].append(f"user:{person}")
        return told

    def _read_halts(self) -> list[Halt]:
        waiting = (CompensationState.PROPOSED, CompensationState.APPROVED)
        return halts.in_force(self.run.workspace_id) if any(r.state in waiting for r in self.rows) else []


class _NoRepairs(RepairRows):
    """A run of which nothing was compensated: nothing is asked."""

    def __init__(self) -> None:
        self.rows, self.approved_by, self.halts = [], {}, []


NO_REPAIRS = _NoRepairs()
REPAIR = (
    *("pk", "number", "key", "title", "target", "amount", "kind_name", "op_class", "state", "ground"),
    *("effect_id", "effect_key", "effect_title", "effect_amount", "effect_target"),
    *("effect_kind", "effect_class", "proposed_at", "proposed_by", "decided_by", "decided_at", "reason"),
    *("attempt", "late", "items", "provider_ref", "why_unknown", "dispatched_at", "settled_at"),
    *("unknown_since", "next_check_at", "check_until", "checks", "counted", "line", "sent", "asked"),
    *("permit_state", "step_status", "review", "needed", "expires_at", "polled"),
)
