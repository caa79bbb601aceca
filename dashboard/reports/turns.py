"""What the report says of model turns: their spend as it was told, and the output of those cut off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dashboard import words
from runs.models import OperationClass, PermitState
from runs.turns import NOT_REPORTED

from .model import Claim, TurnRow, Turns
from .rows import TURNS
from .sentences import short
from .teller import Teller, say

NO_TASK = "It is no completed task."


def spent(t: Teller) -> Iterator[Claim]:
    """Question 2: what their workers say that they spent; nothing else is known of it."""
    begun = t.rows.count("begun", OperationClass.MODEL_TURN)
    if not begun:
        return
    told = t.rows.count("turn_told")
    models = words.listed([short(name) for name in sorted(t.rows.tally["turn_told"]) if name][:5])
    amounts = tokens(t.rows.count("tokens_in"), t.rows.count("tokens_out"))
    turns = words.count(begun, "model turn")
    text = f"The spend of {told} of {turns} was reported by its worker"
    text += f": {amounts}{f' ({models})' if models else ''}." if told else "; it is not known."
    yield say(text, t.rows.count("turn_first"))


def cut_off(t: Teller) -> Iterator[Claim]:
    """Question 2: an output that ended in the middle."""
    for kept in ("kept", "dropped"):
        number = t.rows.count("cut_off", kept)
        if number:
            were = words.count(number, "model turn was", "model turns were")
            how = (
                "is kept"
                if kept == "kept"
                else "was dropped by the workspace’s rules; its size and digest are kept"
            )
            text = f"{were} cut off: the partial output {how}."
            yield say(text, t.rows.count("turn_first"), stress=NO_TASK)


def tokens(read: int, written: int) -> str:
    """1,200 tokens in, 340 out."""
    return f"{read:,} tokens in, {written:,} out"


def table(t: Teller) -> Turns:
    rows = [_row(permit) for permit in t.rows.turns]
    total = t.rows.count("begun", OperationClass.MODEL_TURN)
    says = f"The first {TURNS} of {total}; the API lists all." if total > len(rows) else ""
    return Turns(total, says, rows)


def _row(permit: Any) -> TurnRow:
    turn = getattr(permit, "turn", None)
    return TurnRow(
        permit=permit.pk,
        what=words.clean(permit.step.name),
        worker=words.clean(permit.worker),
        opened_at=permit.opened_at,
        state=permit.state,
        model=words.clean(turn.model) if turn else "",
        tokens_in=turn.tokens_in if turn else None,
        tokens_out=turn.tokens_out if turn else None,
        cost=words.clean(turn.cost) if turn else "",
        output_size=turn.output_size if turn else None,
        output_digest=turn.output_digest if turn else "",
        output_kept=bool(turn and turn.output_kept),
        says=f"{term(permit).word}. {spend_says(turn, permit)}{output_says(turn)}",
    )


def term(permit: Any) -> words.Term:
    """How the turn ended, as far as its holder said."""
    reported = words.TURN.get(permit.outcome) if permit.state == PermitState.REPORTED else None
    return reported or words.PERMIT[permit.state]


def spend_says(turn: Any, permit: Any) -> str:
    """ "large-3, 1,200 tokens in, 340 out, 0.012 USD." or "Spend not reported." """
    missing = f"Spend {NOT_REPORTED}{' yet' if permit.state == PermitState.OPEN else ''}."
    if turn is None:
        return missing
    counts = [(turn.tokens_in, "tokens in"), (turn.tokens_out, "tokens out")]
    parts = [words.clean(turn.model), *(f"{n:,} {what}" for n, what in counts if n is not None)]
    parts = [part for part in (*parts, words.clean(turn.cost)) if part]
    return f"Spent, says its worker: {', '.join(parts)}." if parts else missing


def output_says(turn: Any) -> str:
    if turn is None or turn.output_size is None:
        return ""
    kept = "kept" if turn.output_kept else "dropped by rule"
    size = words.count(turn.output_size, "byte")
    return f" Partial output, {size}, {kept}, sha256 {turn.output_digest[:16]}…"
