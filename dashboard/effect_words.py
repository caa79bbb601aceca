"""What pages say of an effect beside its settlement: afterwards, at its provider, what is asked next."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from dashboard import words
from effects import jobs, presets
from effects.models import Effect, Settlement
from runs.models import OperationClass

HAPPENED = (Settlement.CONFIRMED, Settlement.PARTIAL)
NO_CHECK = "no further check"
JOB = {
    jobs.ACCEPTED: "accepted by the provider",
    jobs.RUNNING: "running at the provider",
    jobs.COMPLETED: "completed at the provider",
    jobs.FAILED: "failed, or was ended, at the provider",
    jobs.UNKNOWN: "the provider does not say how far it is",
}
ASKED = {
    Settlement.DECLARED: "to be asked",
    Settlement.DISPATCHED: "being asked",
    Settlement.CONFIRMED: "asked; it took the request, which says nothing of what it then did",
    Settlement.PARTIAL: "asked; it took part of the request",
    Settlement.NOT_APPLIED: "asked; it refused, or nothing was sent",
    Settlement.NOT_STARTED: "not asked",
    Settlement.UNKNOWN: "whether it was asked is not known",
    Settlement.ACCEPTED_UNKNOWN: "whether it was asked can't be determined",
}


def clock(at: datetime) -> str:
    return f"{at:%H:%M:%S} UTC"


def job_says(effect: Effect) -> str:
    """ "running at the provider, as of 15:02:11 UTC"; "" for what is no job that its provider accepted."""
    if effect.op_class != OperationClass.EXTERNAL_JOB or effect.settlement not in HAPPENED:
        return ""
    state = JOB.get(effect.job_state, "how far it is, is not known here")
    return f"{state}, as of {clock(effect.job_at)}" if effect.job_at else state


def is_asked_about(effect: Effect) -> bool:
    """Whether there is anything left to ask its provider: it is unknown, or its job goes on."""
    job = effect.op_class == OperationClass.EXTERNAL_JOB and effect.settlement in HAPPENED
    return effect.settlement == Settlement.UNKNOWN or (job and effect.job_state not in jobs.OVER)


def asked_says(effect: Effect) -> str:
    """How far a request to cancel came; "" for any other effect. Asked is not cancelled."""
    return ASKED[Settlement(effect.settlement)] if effect.asks_about_id else ""


def afterwards(effect: Effect) -> str:
    """What its kind says of lessening it; "" where nobody said, and of what did not happen."""
    preset = presets.of(effect)
    gone = effect.settlement in (Settlement.NOT_APPLIED, Settlement.NOT_STARTED)
    return "" if preset.can is None or gone else preset.sentence


def is_planned(effect: Effect) -> bool:
    """Whether a compensation was declared with it."""
    try:
        return bool(json.loads(bytes(effect.plan) or b"{}").get("kind"))
    except (ValueError, AttributeError):
        return False


@dataclass(frozen=True)
class Afterwards:
    """Of what already happened: what can't be called back, what has a compensation declared, and the rest."""

    never: Sequence[Effect]
    planned: Sequence[Effect]
    neither: Sequence[Effect]


def sorted_out(effects: Sequence[Effect]) -> Afterwards:
    """Those that happened, each in one place; a request to cancel is none of them."""
    done = [one for one in effects if one.settlement in HAPPENED and not one.asks_about_id]
    never = [one for one in done if presets.of(one).can is False]
    planned = [one for one in done if one not in never and is_planned(one)]
    return Afterwards(never, planned, [one for one in done if one not in never and one not in planned])


def names(effects: Sequence[Effect], most: int = 3) -> str:
    """A few by name, the rest by number."""
    said = [f"“{words.brief(one.title)}”" for one in effects[:most]]
    rest = len(effects) - len(said)
    return words.listed([*said, f"{rest} more"] if rest else said)
