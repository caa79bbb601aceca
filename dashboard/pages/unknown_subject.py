"""One effect, delivery or compensation as the unknowns desk names it: the same words for all three."""

from __future__ import annotations

import json
from datetime import datetime
from functools import cached_property
from typing import Any

from django.urls import reverse

from dashboard import repair_words, words
from dashboard.pages.hiding import body_lines, hide
from dashboard.pages.stages import clock
from dashboard.reports.sentences import effect_term
from dashboard.unknown_words import WHY_SAYS, thing_of, why_of
from dashboard.words import Term
from effects.models import Kind, Matter, Provider
from effects.resolve import SETTLED
from effects.unknowns import Unknown
from runs.models import RunStatus

SENT_BY = {"webhook": "Allstop, by webhook", "email": "Allstop, by e-mail", "outside": "its agent itself"}


class Subject:
    """An Unknown as of `now`, in words. Those of a list read no row of their own."""

    def __init__(self, unknown: Unknown, now: datetime) -> None:
        self.u, self.now = unknown, now
        self.matter = Matter(unknown.matter)
        self.row: Any = unknown.row
        self.run, self.state = unknown.run, unknown.state

    @property
    def kind(self) -> Kind | None:
        return self.u.kind

    @property
    def kind_name(self) -> str:
        told = f"message, {self.row.channel}" if self.matter == Matter.DELIVERY else self.u.kind_name
        return words.brief(told, 120)

    @property
    def href(self) -> str:
        return reverse("unknown", args=[self.u.id])

    @property
    def thing(self) -> str:
        """charge · message · compensation: what it is called inside a sentence."""
        return thing_of(self.matter, self.u.kind_name)

    @cached_property
    def title(self) -> str:
        """The effect in words: title, amount and target, each once."""
        title = words.brief(self.u.title, 120)
        more = [words.brief(part, 80) for part in (self.amount, self.target) if part]
        said = [part for part in more if part not in title]
        return f"{title} ({', '.join(said)})" if said else title

    @property
    def amount(self) -> str:
        return words.clean(self.u.amount)

    @property
    def target(self) -> str:
        return words.clean(self.u.target)

    # where it stands ----------------------------------------------------------------------------

    @property
    def is_unknown(self) -> bool:
        return self.state == "UNKNOWN"

    @property
    def is_settled(self) -> bool:
        """Whether a verdict on it would be a correction."""
        return self.state in SETTLED

    @property
    def contradicted(self) -> bool:
        """Whether it was settled once, and later evidence disagrees."""
        return self.u.contradicted

    @property
    def term(self) -> Term:
        if self.matter == Matter.EFFECT:
            return effect_term(self.state, self.run.status)
        if self.matter == Matter.DELIVERY:
            return words.DELIVERY[self.state]
        permit = self.row.permit.state if self.row.permit else ""
        return repair_words.term_of(self.row, permit)

    @property
    def settled_word(self) -> str:
        """What became of it, in a word or two: Confirmed; Handed over; Verified."""
        if self.matter == Matter.COMPENSATION:
            return repair_words.WORDS[repair_words.stage_of(self.row)][0]
        table = words.DELIVERY if self.matter == Matter.DELIVERY else words.SETTLEMENT
        return table[self.state].word

    @property
    def says(self) -> str:
        """The lead sentence."""
        if self.is_unknown:
            did = "was handed over" if self.matter == Matter.DELIVERY else "happened"
            return f"We cannot yet say whether this {self.thing} {did}."
        if self.matter == Matter.COMPENSATION:
            return repair_words.told(self.term, self.row)
        return self.term.sentence

    @property
    def told_why(self) -> str:
        return words.brief(self.u.why, 200)

    @property
    def why(self) -> str:
        """timeout · worker died · ambiguous answer · lost response · contradicted · …"""
        return why_of(self.told_why, contradicted=self.contradicted)

    @property
    def why_says(self) -> str:
        """The same in a sentence, with what its holder said."""
        told = self.told_why.rstrip(".")
        return f"{WHY_SAYS[self.why]} “{told}”." if told else WHY_SAYS[self.why]

    # time -----------------------------------------------------------------------------------------

    @property
    def due_at(self) -> datetime | None:
        return self.u.due_at if self.is_unknown else None

    @property
    def overdue(self) -> bool:
        return bool(self.due_at and self.due_at <= self.now)

    @property
    def due_says(self) -> str:
        """due 18:00, or by how long it is overdue."""
        if self.due_at is None:
            return ""
        if self.overdue:
            return f"overdue {words.span(int((self.now - self.due_at).total_seconds()))}"
        day = "" if self.due_at.date() == self.now.date() else self.due_at.strftime("%-d %b, ")
        return f"due {day}{self.due_at.strftime('%H:%M')}"

    @property
    def due_in_words(self) -> str:
        """The whole of it: until when, and how long that is."""
        if self.due_at is None:
            return ""
        at = f"{self.due_at.strftime('%-d %b %Y, %H:%M')} UTC"
        left = words.span(abs(int((self.due_at - self.now).total_seconds())))
        return f"It was due {at}: overdue by {left}." if self.overdue else f"Due {at}, in {left}."

    @property
    def next_check(self) -> datetime | None:
        return self.u.next_check_at if self.is_unknown else None

    @property
    def check_says(self) -> str:
        """When it is looked up next and until when; or why it is not."""
        until = self.u.check_until
        if self.next_check:
            stops = f", and until {self._clock(until)}" if until else ""
            polled = self.kind is not None and self.kind.lookup.get("poll")
            how = "when its agent comes for it; nobody else asks" if polled else "automatic, look-up only"
            return f"{self._clock(self.next_check)}{stops}; {how}"
        if self.matter == Matter.DELIVERY:
            return "No further check: only its receiver can say whether it came"
        if self.run.status == RunStatus.ABANDONED:
            return "No further check: its run was abandoned. What arrives by itself still counts"
        if self.kind is None or not self.kind.lookup:
            return "No further check: this kind has no look-up. What arrives by itself still counts"
        if until:
            return f"No further check: the schedule ended at {self._clock(until)}. A late report still counts"
        return "No further check is scheduled"

    def _clock(self, at: datetime) -> str:
        day = "" if at.date() == self.now.date() else at.strftime("%-d %b, ")
        return f"{day}{clock(at)} UTC"

    @property
    def tries(self) -> str:
        """3 tries: how often its provider was asked."""
        return words.count(self.u.checks, "look-up") if self.u.checks else "not looked up"

    # what was sent --------------------------------------------------------------------------------

    @property
    def call(self) -> list[tuple[str, str]]:
        """Name and value of what was sent; secrets are hidden, the digest covers them."""
        row = self.row
        named = [*self._where(), ("kind", self.kind_name), ("key", row.key)]
        named += [("target", self.target), ("amount", self.amount), ("attempt", str(row.attempt or ""))]
        return [(name, words.clean(value)) for name, value in named if value]

    def _where(self) -> list[tuple[str, str]]:
        if self.matter == Matter.DELIVERY:
            return [("sent by", SENT_BY[self.row.channel])]
        kind = self.kind
        if kind is None or kind.provider == Provider.OUTSIDE:
            return [("sent by", "the agent itself, after the gate’s permit")]
        if not kind.send.get("url"):
            return [("sent by", f"Allstop, provider {kind.provider}")]
        return [("method", f"{kind.send.get('method', 'POST')} {hide(str(kind.send['url']))}")]

    @property
    def body(self) -> str:
        return "\n".join(body_lines(bytes(self.row.body)))

    @property
    def plan(self) -> tuple[str, str]:
        """(what was declared that could lessen it, why there is nothing): one of the two is empty."""
        if self.matter != Matter.EFFECT:
            return "", ""
        try:
            told: dict[str, Any] = json.loads(bytes(self.row.plan) or b"{}")
        except ValueError:
            return "", ""
        if told.get("none_because"):
            return "", words.brief(told["none_because"], 200)
        return words.brief(told.get("title") or told.get("kind") or "", 120), ""
