"""“What” in the dialog of a run: a step of it, the run, or the session, workspace and policies above it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Count, Q

from dashboard import words
from dashboard.pages.facts import Facts
from dashboard.pages.preview import Preview, Told, preview_of
from dashboard.pages.scope_preview import Met, preview_of_scope
from dashboard.pages.scope_target import Wide, find
from dashboard.pages.stages import clock
from dashboard.pages.stop_form import RUN, STEP, StopForm
from runs import policies
from runs.access import Actor
from runs.models import FINAL, NOT_DISPATCHED, STANDING, PermitState, Run, ScopeKind, Step, StepStatus

POLICIES = 10
STOPPABLE = (*NOT_DISPATCHED, StepStatus.DISPATCHED)


@dataclass(frozen=True)
class What:
    """One radio. `guard`: its name as a pattern, typed before a press that reaches far; no verb asks it."""

    value: str
    word: str
    name: str
    sentence: str
    button: str
    chosen: bool = False
    guard: str = ""
    href: str = ""

    @property
    def stands(self) -> bool:
        return self.value not in (RUN, STEP)


@dataclass(frozen=True)
class Whats:
    """The radios, and the steps that “This step” may mean."""

    choices: list[What]
    steps: list[Step]
    step: str

    @property
    def chosen(self) -> str:
        return next((choice.value for choice in self.choices if choice.chosen), RUN)

    @property
    def several(self) -> bool:
        return len(self.choices) > 1

    @property
    def wide(self) -> list[What]:
        """Those with a form of their own, for a page without scripts."""
        return [choice for choice in self.choices if choice.guard]


def what_to_stop(facts: Facts, form: StopForm, may: frozenset[str]) -> Whats:
    """What this person may stop from here: two queries, whatever there is."""
    run = facts.run
    steps = [step for step in facts.steps if step.status in STOPPABLE and not step.stopped_at]
    steps = [] if run.status in FINAL else steps
    found = [*_narrow(run, steps), *(_wide(run) if "stop" in may else [])]
    chosen = form.what if form.what in {choice.value for choice in found} else RUN
    told = [What(**{**vars(choice), "chosen": choice.value == chosen}) for choice in found]
    return Whats(told, steps, form.step)


def _narrow(run: Run, steps: list[Step]) -> Iterable[What]:
    if steps:
        yield What(STEP, "One step", "", "The run goes on without it.", "Request stop of this step")
    yield What(RUN, "This run", "", run.pk, "Request stop of this run")


def _wide(run: Run) -> Iterable[What]:
    rows = Run.objects.filter(workspace=run.workspace).exclude(status__in=FINAL)
    counted = rows.aggregate(all=Count("pk"), session=Count("pk", filter=Q(session=run.session_id)))
    above = [Wide(ScopeKind.SESSION, run.session, run.workspace)] if run.session else []
    for wide in (*above, Wide(ScopeKind.WORKSPACE, run.workspace, run.workspace)):
        number = counted["session" if wide.kind == ScopeKind.SESSION else "all"]
        yield what_of(wide, f"{words.count(number, 'run')} now, and every new one")
    for policy in policies.over(run.workspace_id, run.labels)[:POLICIES]:
        wide = Wide(ScopeKind.POLICY, policy, run.workspace)
        yield what_of(
            wide, "Its effects only; the runs go on" if wide.of_effects else "Its runs, and every new one"
        )


def what_of(wide: Wide, sentence: str) -> What:
    """A scope that stands, as a choice."""
    return What(
        f"{wide.kind}:{wide.row.pk}",
        wide.kind.capitalize(),
        words.brief(wide.name),
        sentence,
        f"Request stop of this {wide.kind}",
        guard=slip_guard(wide.name) if wide.guarded else "",
        href=wide.href,
    )


def slip_guard(name: str) -> str:
    """The name as a pattern of an input: browsers check it, the verb never does."""
    return "".join(f"\\{sign}" if sign in SPECIAL else sign for sign in words.clean(name))


SPECIAL = set("^$\\.*+?()[]{}|/")  # escaping any other would make no pattern at all, under flag v


def preview_for(facts: Facts, form: StopForm, actor: Actor | None = None) -> Preview:
    """What a stop of what is chosen would meet. What can't be read is the run that was looked at.

    `actor`: asked for the right to a scope above the run; without one, only the run is told of.
    """
    kind, _, scope_id = form.what.partition(":")
    if kind == STEP:
        step = Step.objects.filter(run=facts.run, pk=form.step).first()
        return _of_step(facts, step) if step else preview_of(facts)
    if kind not in STANDING or actor is None:
        return preview_of(facts)
    return preview_of_wide(find(actor, kind, scope_id), facts)


def preview_of_wide(wide: Wide, facts: Facts) -> Preview:
    """Of a whole scope, as of the same moment."""
    met = Met(wide.runs, facts.now, wide.match)
    return preview_of_scope(met, gated=wide.said, stop=wide.standing, who=wide.who)


def _of_step(facts: Facts, step: Step) -> Preview:
    """One step: its permits in flight, and what is refused."""
    flying = step.permits.filter(state=PermitState.OPEN).order_by("opened_at")
    since = [clock(permit.opened_at) for permit in flying[:3]]
    named = f"“{words.brief(step.name)}”"
    lines = [Told("st-flight", f"{named} is not in flight at this moment.")]
    if since:
        text = f"{named} is in flight, since {words.listed(since)}. It may still complete."
        lines = [Told("st-flight", text, bold=True, tone="c-flight")]
    refuse = [Told("st-refused", f"Nothing more of {named} is let through. The run goes on.")]
    milder = [Told("st-refused", "A stop of a step knows only cancel: it is recorded as that.")]
    modes = [("pause", refuse + milder), ("cancel", refuse), ("abandon", refuse + milder)]
    return Preview(modes, lines, 0, facts.now)
