"""What goes on at providers, as a report says it: jobs, requests to cancel, and when somebody asks again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dashboard import words
from dashboard.effect_words import ASKED, JOB, NO_CHECK
from effects import jobs, presets
from effects.models import Settlement
from runs.models import OperationClass

from .model import Claim
from .sentences import GROUND, name_of, short
from .teller import Teller, say

SAID = 20
TAKEN = (Settlement.CONFIRMED, Settlement.PARTIAL)


def jobs_go_on(t: Teller) -> Iterator[Claim]:
    """Accepted by the provider is not finished at the provider: that goes on without us."""
    rows = [e for e in t.rows.settled_as(*TAKEN) if e.op_class == OperationClass.EXTERNAL_JOB]
    going = [e for e in rows if e.job_state not in jobs.OVER]
    for effect in going[:SAID]:
        state = JOB.get(effect.job_state, "how far it is, is not known here")
        when = f", as of {t.at(effect.job_at)}" if effect.job_at else ""
        text = f"The provider may still be carrying out {name_of(effect)}: {state}{when}; {_next(t, effect)}."
        yield say(text, effect.line, effect=effect.pk)
    if len(going) > SAID:
        yield say(f"The same holds for {len(going) - SAID} more jobs, which the manifest lists.")


def _next(t: Teller, effect: Any) -> str:
    """ "next check 15:30:00 UTC, until 18:00:00 UTC", or that there is none."""
    if not effect.next_check_at:
        return NO_CHECK
    until = f", until {t.at(effect.check_until)}" if effect.check_until else ""
    return f"next check {t.at(effect.next_check_at)}{until}"


def jobs_over(effect: Any, at: str) -> str:
    """The end of a job beside its settlement; "" while it goes on."""
    if effect.op_class != OperationClass.EXTERNAL_JOB or effect.job_state not in jobs.OVER:
        return ""
    return f" The job: {JOB[effect.job_state]}, as of {at}."


def asked(t: Teller) -> Iterator[Claim]:
    """What was asked of providers because of a stop: asked, never more."""
    rows = [e for e in t.rows.effects if e.asks_about_id and e.settlement in ASKED]
    told = [e for e in rows if e.settlement not in (Settlement.UNKNOWN, Settlement.DISPATCHED)]
    names = {e.pk: name_of(e) for e in t.rows.effects}
    for effect in told[:SAID]:
        about = names.get(effect.asks_about_id, "an effect of this run")
        ground = GROUND.get(effect.ground, "")
        when = f" ({t.at(effect.settled_at)}{' ' + ground if ground else ''})" if effect.settled_at else ""
        text = f"{ASKED[Settlement(effect.settlement)]}{when}."
        lead = f"Asking {short(effect.target)} to cancel {about}:"
        yield say(text, effect.sent, effect.line, lead=lead, effect=effect.pk)
    if len(told) > SAID:
        yield say(f"{words.count(len(told) - SAID, 'more request')} to cancel, which the manifest lists.")


def not_asked_of(effects: list[Any]) -> list[Any]:
    """Effects but for requests to cancel, which have sentences of their own."""
    return [effect for effect in effects if not effect.asks_about_id]


def called_back(effect: Any) -> str:
    """That it can't be called back, where its kind says so."""
    preset = presets.named(effect.reversible or "", effect.provider or "")
    return f" {preset.sentence}" if preset.can is False and not effect.asks_about_id else ""
