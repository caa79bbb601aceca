"""Model turns on the run page: what each spent, and the output of those that were cut off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dashboard import words
from dashboard.pages.facts import Facts
from dashboard.reports.turns import spend_says, term
from runs.models import OperationClass, Permit, PermitState

SHOWN = 20
TEXT = 8_000  # signs of an output on the page; the API has all of it


@dataclass(frozen=True)
class Row:
    """One turn as a person reads it; `text` is a stranger's, and shown as text only."""

    permit: Any
    term: words.Term
    spend: str
    output: str
    text: str


class Turns:
    """The newest turns; one query, none where no step asks a model."""

    def __init__(self, facts: Facts) -> None:
        self.rows = [_row(permit) for permit in _newest(facts)]
        self.total = facts.model_turns

    @property
    def left_out(self) -> int:
        return self.total - len(self.rows)


def _newest(facts: Facts) -> list[Permit]:
    if not facts.model_turns:
        return []
    rows = Permit.objects.filter(run=facts.run, op_class=OperationClass.MODEL_TURN)
    begun = rows.exclude(state=PermitState.NOT_SENT).select_related("step", "turn")
    return list(begun.order_by("-pk")[:SHOWN])


def _row(permit: Any) -> Row:
    turn = getattr(permit, "turn", None)
    size = turn.output_size if turn else None
    output = "" if size is None else _output(turn)
    return Row(permit, term(permit), spend_says(turn, permit), output, _lines(turn.output) if turn else "")


def _output(turn: Any) -> str:
    kept = "kept" if turn.output_kept else "dropped by the workspace’s rules"
    return f"Partial output, {words.count(turn.output_size, 'byte')}, {kept}. It is no completed task."


def _lines(text: str) -> str:
    """Line by line without what could mislead the eye; cut where a page has no room."""
    shown = "\n".join(words.clean_end(line) for line in text[:TEXT].splitlines())
    return f"{shown}\n…" if len(text) > TEXT else shown
