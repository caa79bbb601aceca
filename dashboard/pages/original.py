"""The effect that a compensation answers: what is known of it, and on what evidence."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from dashboard import words
from dashboard.pages.review_facts import named
from dashboard.reports.sentences import effect_term
from dashboard.words import Term
from effects.models import Effect, Settlement
from runs.models import Evidence, Run, ScopeKind, StopRequest

GROUND = {
    "decided": "decided by a person, with evidence",
    "reported": "reported by its worker",
    "looked up": "looked up at the provider",
    "webhook": "told by the provider’s webhook",
    "inspected": "inspected",
}
DECLARED = "effect.declared"
TOLD = (DECLARED, "effect.dispatched", *(f"effect.{value.lower()}" for value in Settlement.values))
LINES = 20  # so many of its newest lines are read


class Original:
    """One effect, its proof and its stop: two queries."""

    def __init__(self, effect: Effect, run: Run) -> None:
        self.effect, self.run = effect, run

    @property
    def title(self) -> str:
        return named(self.effect)

    @property
    def term(self) -> Term:
        return effect_term(self.effect.settlement, self.run.status)

    @property
    def proof(self) -> str:
        """Reference, ground and time; why it is in doubt, where it is."""
        effect = self.effect
        if effect.settlement in (Settlement.UNKNOWN, Settlement.ACCEPTED_UNKNOWN, Settlement.DISPATCHED):
            why = words.brief(effect.why_unknown, 200) or "no answer"
            return f"We cannot say whether it happened: {why}."
        parts = [words.brief(effect.provider_ref, 120)] if effect.provider_ref else []
        parts += [GROUND[effect.ground]] if effect.ground in GROUND else []
        parts += [words.moment_utc(effect.settled_at)] if effect.settled_at else []
        return ", ".join(parts) or "nothing was recorded yet"

    @cached_property
    def _lines(self) -> list[Any]:
        mine = Evidence.objects.filter(stream=self.run.pk, effect_key=self.effect.key, kind__in=TOLD)
        found = mine.order_by("-seq").values_list("seq", "kind", "at", "actor", named=True)
        return list(found[:LINES])

    @property
    def lines(self) -> list[int]:
        """The evidence lines to link: dispatch and settlement, oldest first."""
        return sorted(line.seq for line in self._lines if line.kind != DECLARED)[-4:]

    @cached_property
    def _declared(self) -> Any:
        found = [line for line in self._lines if line.kind == DECLARED]
        return found[-1] if found else None

    @property
    def declared_by(self) -> str:
        """The actor id of whoever declared it, and its plan with it."""
        return self._declared.actor if self._declared else ""

    @property
    def declared_at(self) -> Any:
        return self._declared.at if self._declared else self.effect.declared_at

    @cached_property
    def stop(self) -> StopRequest | None:
        """The stop that ended or holds its run, if one does."""
        rows = StopRequest.objects.filter(run=self.run, scope=ScopeKind.RUN, superseded_by__isnull=True)
        return rows.filter(finished_before=False).order_by("-number").first()

    @property
    def stop_says(self) -> str:
        return f"stop #{self.stop.number} ({self.stop.mode})" if self.stop else "no stop was requested"
