"""Model turns: what one spent, and the partial output of one that was cut off, kept or dropped by rule.

A partial output is never a completed task. A spend that nobody reported is "not reported", never zero.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from .evidence import digest
from .models import OperationClass, Permit, PermitState, Run, Step, Turn
from .rules import rules_of

NOT_REPORTED = "not reported"


class NoTurn(ValueError):
    """Only the permit of a model turn has a spend or a partial output. Nothing was changed."""


@dataclass(frozen=True)
class Spend:
    """What a turn spent, as its holder says: whole tokens, and a cost in words such as "0.012 USD"."""

    model: str = ""
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost: str = ""

    @property
    def told(self) -> dict[str, Any]:
        """What was told of it; nothing else is known."""
        return {name: value for name, value in asdict(self).items() if value not in (None, "")}


def check(permit: Permit, spend: Spend | None, output: str | None) -> None:
    """Raises NoTurn unless the permit may have these."""
    if (spend is not None or output is not None) and permit.op_class != OperationClass.MODEL_TURN:
        raise NoTurn(permit.pk)


def keep(run: Run, permit: Permit, spend: Spend | None, output: str | None) -> dict[str, Any]:
    """Keep what a holder told of its turn, under the run's lock; returns it for the evidence.

    The workspace's rules say whether the text of a partial output is kept; size and digest always are. What
    an earlier report told stays, unless this one tells it too.
    """
    told: dict[str, Any] = {"spend": spend.told} if spend is not None and spend.told else {}
    changes: dict[str, Any] = dict(told.get("spend", {}))
    if output is not None:
        kept = rules_of(run.workspace_id).partial_output == "keep"
        size, sha256 = len(output.encode()), digest(output)
        told["partial_output"] = {"size": size, "sha256": sha256, "kept": kept}
        changes |= {"output": output if kept else "", "output_size": size}
        changes |= {"output_digest": sha256, "output_kept": kept}
    if changes:
        Turn.objects.update_or_create(permit=permit, defaults=changes)
    return told


def is_news(permit: Permit, spend: Spend | None, output: str | None) -> bool:
    """Whether a report that came again tells something of its turn that none told before."""
    if spend is None and output is None:
        return False
    known = Turn.objects.filter(permit=permit).first()
    new_spend = spend is not None and bool(spend.told) and (known is None or not spend_of(known).told)
    new_output = output is not None and (known is None or known.output_size is None)
    return new_spend or new_output


def spend_of(turn: Turn) -> Spend:
    """The spend of a row, as it was told."""
    return Spend(turn.model, turn.tokens_in, turn.tokens_out, turn.cost)


def is_cut_off(step: Step) -> bool:
    """Whether the newest turn of a step was cut off: such a step can't have succeeded."""
    turns = Permit.objects.filter(step=step, op_class=OperationClass.MODEL_TURN)
    newest = turns.exclude(state=PermitState.NOT_SENT).order_by("-pk").first()
    return newest is not None and newest.outcome == "partial"


def lost(permit: Permit) -> dict[str, Any]:
    """What the evidence of a lost permit says of its spend."""
    return {"spend": NOT_REPORTED} if permit.op_class == OperationClass.MODEL_TURN else {}
