"""The small parts of a report's sentences: names, times, grounds. All text of strangers is cleaned."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from dashboard import words
from dashboard.words import Term
from effects.models import Ground
from runs.evidence import canonical
from runs.models import RunStatus

from .rows import NO_PLAN, Rows

GROUND: dict[str, str] = {
    Ground.REPORTED: "by its worker’s report",
    Ground.LOOKED_UP: "by a look-up at the provider",
    Ground.WEBHOOK: "by the provider’s webhook",
    Ground.INSPECTED: "by inspection",
    Ground.DECIDED: "by a person’s decision, with evidence",
}
NOT_PROOF = "This does not prove it failed."
NO_RETRY = "It will not retry it."
RETRY_AFTER = "It will retry it only once that says that it did not happen."
LONG = 160


class Clock:
    """Moments as text: the day is written when it is not the day of the report's matter."""

    def __init__(self, day: datetime) -> None:
        self.day = day.astimezone(UTC).date()

    def at(self, moment: datetime | None) -> str:
        if moment is None:
            return "an unknown time"
        utc = moment.astimezone(UTC)
        text = utc.strftime("%H:%M:%S UTC")
        if utc.date() == self.day:
            return text
        return f"{utc.strftime('%-d %b' if utc.year == self.day.year else '%-d %b %Y')}, {text}"


def next_look_up(row: Any, called: str, clock: Clock, again: str = "") -> str:
    """Who looks up what is not known, from when and until when: we, or its agent, of which nobody asks it."""
    begins, until = (
        clock.at(row.next_check_at),
        f" and until {clock.at(row.check_until)}" if row.check_until else "",
    )
    if row.polled:
        return f"It will take a look-up of {called} by its agent from {begins}{until}; it asks nobody itself."
    return f"It will look up {called}{again} at {begins}{until}."


def clock_of(rows: Rows) -> Clock:
    """The day of the stop, else of the end, else of now."""
    stop = rows.stop
    return Clock(stop.recorded_at if stop else rows.run.ended_at or rows.as_of)


def name(title: str, amount: str = "", target: str = "") -> str:
    """“Charge card” (€86.40, Ostwind GmbH): as it was declared; what the title says is not repeated."""
    shown = short(title)
    more = [short(part) for part in (amount, target) if part and short(part) not in shown]
    return f"“{shown}” ({', '.join(more)})" if more else f"“{shown}”"


def name_of(effect: Any) -> str:
    return name(effect.title, effect.amount, effect.target)


def names_of(effects: Sequence[Any], total: int | None = None) -> str:
    """“A”, “B” and 3 more."""
    total = len(effects) if total is None else total
    shown = [name_of(effect) for effect in effects[:3]]
    left = total - len(shown)
    return words.listed([*shown, f"{left} more"] if left > 0 else shown)


def short(text: object) -> str:
    """One clean line of at most LONG signs."""
    line = words.clean(text)
    return line if len(line) <= LONG else line[: LONG - 1] + "…"


def quoted(text: object) -> str:
    return f"“{short(text)}”"


def reference(effect: Any) -> str:
    return f", reference {short(effect.provider_ref)}" if effect.provider_ref else ""


def part(effect: Any) -> str:
    """What a partial effect's evidence says of the part, as it was reported."""
    told = effect.part
    if told in (None, "", [], {}):
        return ""
    if isinstance(told, list):
        return f" Reported of the part: {words.count(len(told), 'item')}."
    return f" Reported of the part: {short(told if isinstance(told, str) else canonical(told))}."


def is_planned(effect: Any) -> bool:
    """Whether a corrective action was declared with it, and not the explicit none."""
    return bytes(effect.plan_begins or b"") not in (b"", NO_PLAN)


def look_up_says(effect: Any, body: str | None) -> str:
    """How often the provider was asked and what its last answer means."""
    if not effect.checks and not body:
        return ""
    asked = f" Looked up {words.count(effect.checks or 1, 'time')}"
    if not body:
        return f"{asked}; what the last look-up saw was removed by rule."
    seen = _payload(body)
    answer, detail = seen.get("answer", ""), seen.get("detail", "")
    if answer == "absent":
        return f"{asked}, not found; that is not yet proof that it did not happen."
    why = f" ({short(detail)})" if detail else ""
    return f"{asked}; the last look-up could not tell{why}."


def _payload(body: str | None) -> dict[str, Any]:
    try:
        found = json.loads(body or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def effect_term(settlement: str, run_status: str) -> Term:
    """The words for a settlement. What an abandoned run left unknown awaits nothing: nobody asks any more."""
    if settlement == "UNKNOWN" and run_status == RunStatus.ABANDONED:
        return Term("UNKNOWN", "Unknown", "Nobody is asked about it any more.", "st-unknown", "st-unknown")
    return words.SETTLEMENT[settlement]


def effect_state(settlement: str, run_status: str) -> str:
    """A settlement inside a sentence: confirmed, not applied, awaiting verification."""
    word = effect_term(settlement, run_status).word
    return word[0].lower() + word[1:]


def classes(counts: dict[str, Any], *kinds: str) -> str:
    """2 model turns and 1 read."""
    parts = [words.count(counts[kind], words.CLASS[kind]) for kind in kinds if counts.get(kind)]
    return words.listed(parts)


def refusals(counts: dict[str, Any]) -> str:
    """4 queued steps, 2 retries and 1 browser action."""
    return words.listed(
        [words.count(counts[at], *words.REFUSED[at]) for at in words.REFUSED if counts.get(at)]
    )


def unobserved(tools: Sequence[str]) -> str:
    """The tools that run at a provider, where no gate of ours stands."""
    if not tools:
        return ""
    run = words.count(len(tools), "tool runs", "tools run")
    named = words.listed([short(tool) for tool in tools[:10]])
    return f" {run} at the provider and can’t be observed: {named}."
