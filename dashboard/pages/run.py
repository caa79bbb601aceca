"""The run page: what is true of one run now, and the control that stops it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from dashboard import effect_words, words
from dashboard.event_words import event
from dashboard.pages.above import Above, above
from dashboard.pages.children import Children
from dashboard.pages.deliveries import Deliveries
from dashboard.pages.dock import Dock, dock
from dashboard.pages.facts import Facts
from dashboard.pages.repairs import Repairs, proposal_of
from dashboard.pages.retries import Retries
from dashboard.pages.shell import Shell, actor_of, build_shell, is_region, signed_in
from dashboard.pages.stages import Stage, clock, stages
from dashboard.pages.stop import StopForm, form_of
from dashboard.pages.timeline import Timeline, timeline
from dashboard.pages.turns import Turns
from dashboard.pages.workers import Workers, late
from dashboard.repair_rows import needs
from dashboard.reports.sentences import effect_term
from dashboard.restored import missing_for
from dashboard.words import Term
from effects.models import Compensation, Effect, Settlement
from runs import access, gates, receipts
from runs.evidence import topics_of
from runs.models import Evidence, Refusal, Run, RunStatus

NAMED = 3  # so many by name, the rest by number
ROOM = 120  # signs of a stranger's text in a cell


@dataclass(frozen=True)
class EffectRow:
    """One effect of the manifest, as a person reads it. `line` is its newest evidence."""

    effect: Effect
    term: Term
    evidence: str
    plan: str
    line: int | None
    offer: tuple[str, str] = ("", "")  # what may be done about it: a word and an address

    @property
    def job(self) -> str:
        """How far it is at its provider, or how far a request to cancel came."""
        return effect_words.job_says(self.effect) or effect_words.asked_says(self.effect)

    @property
    def afterwards(self) -> str:
        """What its kind says of lessening it."""
        return effect_words.afterwards(self.effect)

    @property
    def no_check(self) -> str:
        """That its provider is not asked any more, although something is left to ask."""
        return effect_words.NO_CHECK if effect_words.is_asked_about(self.effect) else ""


class RunPage:
    """The read model of the run page; every derived number is as of `now`."""

    def __init__(self, run: Run, shell: Shell, actor: access.Actor) -> None:
        self.run, self.now = run, shell.now
        self.facts = facts = Facts(run, shell.now)
        owns = actor.user is not None and run.owner_id == actor.user.pk
        self.may_stop = shell.may_stop or owns
        self.may = shell.may | ({"stop"} if owns else set())
        quiet = bool(facts.stop and facts.stop.quiet_at)
        self.held_back = gates.holds_back(run.workspace, run)
        self.chip = words.run_chip(run.status, facts.outcome, quiet=quiet, held_back=self.held_back)
        self.missing = missing_for(run.admitted_at)
        self.sentence = sentence(facts, self.chip)
        self.topic = topics_of(run)[0]

    @property
    def can_start_work(self) -> bool:
        return bool(self.run.status == RunStatus.ACTIVE)

    @property
    def shows_dialog(self) -> bool:
        """Whether there is a Stop for this person to open."""
        return self.may_stop and self.can_start_work

    @property
    def title(self) -> str:
        """`(2?) Stopping · name`: what is open comes first, a tab is narrow."""
        unknown = self.facts.unknown + self.facts.messages["UNKNOWN"]
        open_ones = f"({unknown}?) " if unknown else ""
        return f"{open_ones}{self.chip.word} · {words.clean(self.run.name)}"

    @property
    def favicon(self) -> str:
        if self.facts.unknown + self.facts.messages["UNKNOWN"]:
            return "unknown"
        return "needs" if self.run.status == RunStatus.CANCELLING_TIMEOUT else "normal"

    @property
    def summary(self) -> str:
        """One line for those who listen: said when it changes, at most each five seconds."""
        parts = [self.chip.word, f"{self.facts.known} of {self.facts.dispatched} effects known"]
        parts += [f"{self.facts.unknown} unknown"] if self.facts.unknown else []
        return ", ".join(parts)

    @property
    def runtime_said(self) -> str:
        """How the runtime says that it ended; the chip tells what is known of the outcome."""
        said = {RunStatus.COMPLETED: "completed", RunStatus.FAILED: "failed"}.get(RunStatus(self.run.status))
        if said is None or self.run.ended_at is None:
            return ""
        why = words.brief(self.run.summary, ROOM)
        return f"{said} {clock(self.run.ended_at)}{f', “{why}”' if why else ''}"

    @property
    def ungateable(self) -> list[str]:
        tools = [words.brief(tool) for tool in self.run.ungateable]
        rest = len(tools) - NAMED
        return tools if rest < 1 else [*tools[:NAMED], f"{rest} more"]

    @property
    def silence(self) -> str:
        """That nothing is heard of a run that should be at work; "" otherwise."""
        run, last = self.run, self.run.last_heard_at or self.run.admitted_at
        seconds = (self.now - last).total_seconds()
        if run.status not in receipts.IN_MOTION or seconds < run.silent_after_s:
            return ""
        return words.SILENT_RUN.format(ago=words.span(int(seconds)))

    @cached_property
    def above(self) -> list[Above]:
        """The stops of scopes that it is under."""
        return above(self.run, self.facts.stop.scope_stop_id if self.facts.stop else None)

    @property
    def stages(self) -> list[Stage]:
        return stages(self.facts)

    @property
    def timeline(self) -> Timeline:
        return timeline(self.facts)

    @property
    def dock(self) -> Dock:
        return dock(self.facts, self.may)

    @property
    def effects(self) -> list[EffectRow]:
        newest = {one.effect_id: one for one in self.facts.compensations}
        return [effect_row(effect, self.run.status, newest) for effect in self.facts.effects]

    @property
    def effects_total(self) -> int:
        return self.facts.settlements.total()

    @property
    def effects_left_out(self) -> int:
        return self.effects_total - len(self.facts.effects)

    @cached_property
    def retries(self) -> Retries:
        return Retries(self.facts, "resume" in self.may)

    @cached_property
    def repairs(self) -> Repairs:
        return Repairs(self.facts)

    @cached_property
    def deliveries(self) -> Deliveries:
        return Deliveries(self.facts)

    @cached_property
    def turns(self) -> Turns:
        return Turns(self.facts)

    @property
    def refusals(self) -> list[Refusal]:
        return self.facts.refusals

    @cached_property
    def workers(self) -> Workers:
        return Workers(self.facts)

    @cached_property
    def children(self) -> Children:
        return Children(self.facts)

    @property
    def lines(self) -> list[tuple[Evidence, str]]:
        return [(line, event(line.kind)) for line in self.facts.lines]


def sentence(facts: Facts, chip: Term) -> str:
    """The lexicon's sentence for this run, with its facts."""
    stop = facts.stop
    return chip.say(
        at=clock(stop.recorded_at) + " UTC" if stop else "",
        version=stop.version_after if stop else "",
        open=words.count(facts.open_questions, "effect"),
        late=late(facts),
        effects=_named_unknowns(facts),
        effects_are=words.count(facts.unknown, "effect is", "effects are"),
        who=facts.who(stop) if stop else "a stop above it",
        need=words.listed(needs(facts.repairs)) or "people",
        done=words.count(facts.settlements["CONFIRMED"] + facts.settlements["PARTIAL"], "effect"),
        not_done=facts.settlements["NOT_APPLIED"] + facts.settlements["NOT_STARTED"],
    )


def _named_unknowns(facts: Facts) -> str:
    """One unknown by name, more by number."""
    doubtful = (Settlement.UNKNOWN, Settlement.DISPATCHED, Settlement.ACCEPTED_UNKNOWN)
    open_ones = [effect for effect in facts.effects if effect.settlement in doubtful]
    if len(open_ones) == 1:
        named = f"“{words.brief(open_ones[0].title)}”"
    else:
        named = words.count(sum(facts.settlements[state] for state in doubtful), "effect")
    return words.doubtful(named, len(open_ones), facts.messages_open + facts.messages["ACCEPTED_UNKNOWN"])


def effect_row(effect: Effect, run_status: str, newest: dict[str, Compensation]) -> EffectRow:
    """An effect with its ground and its declared plan in words, and what may be proposed for it.

    `newest`: the newest compensation of each effect, by its id.
    """
    line = getattr(effect, "line", None)
    term = effect_term(effect.settlement, run_status)
    offer = proposal_of(effect, run_status, newest)
    return EffectRow(effect, term, evidence_of(effect), plan_of(effect), line, offer)


def evidence_of(effect: Effect) -> str:
    """On what ground we say so, in a few words."""
    match effect.settlement:
        case Settlement.DECLARED:
            return f"Intent recorded {clock(effect.declared_at)}"
        case Settlement.DISPATCHED:
            return f"Permit given {clock(effect.dispatched_at or effect.declared_at)}"
        case Settlement.NOT_STARTED:
            return "Never sent"
        case Settlement.UNKNOWN | Settlement.ACCEPTED_UNKNOWN:
            looked = f"; looked up {words.count(effect.checks, 'time')}" if effect.checks else ""
            why = words.brief(effect.why_unknown, ROOM).rstrip(".") or "no answer"
            return f"{why[0].upper()}{why[1:]}{looked}"
    when = f", {clock(effect.settled_at)}" if effect.settled_at else ""
    reference = f": {words.brief(effect.provider_ref, ROOM)}" if effect.provider_ref else ""
    return f"{effect.ground.capitalize()}{reference}{when}"


def plan_of(effect: Effect) -> str:
    """The compensation that was declared before the effect, or the declared none.

    Of what did not happen there is nothing to lessen.
    """
    if effect.settlement in (Settlement.NOT_APPLIED, Settlement.NOT_STARTED):
        return "not needed: it did not happen"
    try:
        plan: dict[str, Any] = json.loads(bytes(effect.plan) or b"{}")
    except ValueError:
        return "declared"
    if plan.get("none_because"):
        return f"none: {words.brief(plan['none_because'], ROOM)}"
    return words.brief(plan.get("title") or plan.get("kind") or "", ROOM)


def load(request: HttpRequest, run_id: str) -> tuple[RunPage, Shell]:
    """The page's read model; NotFound for those who may not know of the run."""
    actor = actor_of(request)
    run = access.find_run(actor, run_id)
    shell = build_shell(request, "runs", run.workspace)
    return RunPage(run, shell, actor), shell


@signed_in
def run_page(request: HttpRequest, run_id: str) -> HttpResponse:
    """GET /runs/<id>/ : the page, or its live region.

    With the form of a stop in the address (somebody had to sign in) the dialog is open, with that form.
    """
    page, shell = load(request, run_id)
    told = {"shell": shell, "now": shell.now, "page": page, "late": words.LATE}
    if is_region(request):
        return render(request, "run/_fragment.html", told | {"region": True})
    form = StopForm.returned(request.GET.dict())
    if form.came_back and page.may_stop and not page.shows_dialog:
        return redirect(f"{reverse('stop', args=[run_id])}?{urlencode(form.fields)}")
    if form.was_pressed(page.run, actor_of(request)):
        return redirect("run", run_id)
    if page.shows_dialog:
        origin = request.build_absolute_uri("/").rstrip("/")
        told |= {"form": form, "origin": origin, **form_of(page.facts, form, shell.may, actor_of(request))}
    return render(request, "run/page.html", told)
