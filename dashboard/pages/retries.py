"""Retries: those that are scheduled, what a person may decide to try again, and the page of that decision."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from django.contrib import messages
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from dashboard import words
from dashboard.pages.facts import Facts
from dashboard.pages.shell import actor_of, build_shell, signed_in
from dashboard.pages.stages import clock
from effects import retries
from effects.intents import may_retry
from effects.models import Effect, Ground, Settlement
from runs import access
from runs.guard import WHAT_TO_DO, Refusal
from runs.models import Run, RunStatus, Step, StepStatus
from runs.saying import words_in
from runs.wishes import storable

SHOWN, REASON_MAX = 20, 2000
DELAYS = ((0, "now"), (300, "in 5 minutes"), (3600, "in one hour"))
GROUND: dict[str, str] = {
    "": "only its worker says so",
    Ground.REPORTED: "only its worker says so",
    Ground.LOOKED_UP: "looked up",
    Ground.WEBHOOK: "by the provider’s webhook",
    Ground.INSPECTED: "inspected",
}


@dataclass
class Row:
    """A step that waits for its retry, or one that could be tried again."""

    step: Step
    effects: list[Effect] = field(default_factory=list)

    @property
    def waits(self) -> bool:
        return bool(self.step.status == StepStatus.RETRY_WAIT)

    @property
    def term(self) -> words.Term:
        return words.STEP[self.step.status]

    @property
    def known(self) -> list[tuple[Effect, words.Term, str]]:
        """Each effect, what is known of it, and on what ground."""
        return [
            (one, words.SETTLEMENT[one.settlement], GROUND[one.ground] if one.settled_at else "")
            for one in self.effects
        ]

    @property
    def tried(self) -> str:
        return words.count(max((effect.attempt for effect in self.effects), default=0), "attempt")

    @property
    def ground(self) -> str:
        """On what it is known that nothing of it happened: the weakest of its grounds."""
        denied = [effect for effect in self.effects if effect.settlement == Settlement.NOT_APPLIED]
        weakest = min(denied, key=lambda effect: list(GROUND).index(effect.ground), default=None)
        return GROUND[weakest.ground] if weakest else "never sent"


class Retries:
    """What the run page says of retries: two queries, none where no step failed or waits."""

    def __init__(self, facts: Facts, may_decide: bool) -> None:
        self.facts = facts
        self.may_decide = may_decide and facts.run.status == RunStatus.ACTIVE
        self.refused = facts.refused["retry"]

    @cached_property
    def rows(self) -> list[Row]:
        """Those that wait, the next to fall due first; then those that failed, the newest first."""
        counts = self.facts.step_counts
        if not counts[StepStatus.RETRY_WAIT] + counts[StepStatus.FAILED]:
            return []
        failed = Q(may_retry(), status=StepStatus.FAILED)
        steps = Step.objects.filter(Q(status=StepStatus.RETRY_WAIT) | failed, run=self.facts.run)
        return rows_of(steps.order_by("due_at", "-pk")[:SHOWN])

    @property
    def waiting(self) -> int:
        return self.facts.step_counts[StepStatus.RETRY_WAIT]

    @property
    def shown(self) -> bool:
        return bool(self.rows or self.refused)

    @property
    def when(self) -> str:
        """What has to come before the gate is asked again."""
        if self.facts.run.status in (RunStatus.PAUSING, RunStatus.PAUSED):
            return "The run is held: a retry goes on at its time only after a resume."
        return "Each asks the gate again when it is due, and has the same effect key."


def rows_of(steps: Iterable[Step]) -> list[Row]:
    """The steps with their effects; those without a due time come last."""
    rows = {step.pk: Row(step) for step in steps}
    for effect in Effect.objects.filter(step__in=list(rows)).defer("body").order_by("pk"):
        rows[effect.step_id].effects.append(effect)
    return sorted(rows.values(), key=lambda row: (row.step.due_at is None, row.step.due_at or row.step.pk))


@signed_in
def retry_page(request: HttpRequest, run_id: str) -> HttpResponse:
    """/runs/<id>/retry?step= : GET shows what is known of the step, POST is the decision."""
    run = access.find_run(actor_of(request), run_id, "resume")
    step = Step.objects.filter(run=run, pk=_sent(request, "step")).first()
    if step is None:
        raise Http404
    if request.method != "POST":
        return _show(request, run, step)
    reason = storable(request.POST.get("reason", ""), REASON_MAX)
    if not words_in(reason):
        return _show(request, run, step, ["Nothing was scheduled. Say why it may be tried again."], 422)
    return _decide(request, run, step, reason)


def _sent(request: HttpRequest, name: str) -> str:
    return (request.POST if request.method == "POST" else request.GET).get(name, "").replace("\0", "")


def _decide(request: HttpRequest, run: Run, step: Step, reason: str) -> HttpResponse:
    delay_s = next((s for s, _ in DELAYS if str(s) == request.POST.get("delay")), 0)
    seen = request.POST.get("version", "")
    version = int(seen) if seen.isascii() and seen.isdigit() and len(seen) < 19 else 0
    done = retries.decide(
        actor=actor_of(request), step=step, seen=version, reason=reason, delay_s=float(delay_s)
    )
    if isinstance(done, Refusal):
        said = [f"Nothing was scheduled: {words.REFUSAL_REASON[done.reason]}.", WHAT_TO_DO[done.reason]]
        return _show(request, run, step, said, 409)
    due = f" at {clock(done.due_at)}" if done.due_at else ""
    messages.info(request, f"Retry scheduled. The gate is asked again{due} UTC.")
    return redirect("run", run.pk)


def _show(
    request: HttpRequest, run: Run, step: Step, said: Iterable[str] = (), status: int = 200
) -> HttpResponse:
    run = access.find_run(actor_of(request), run.pk, "resume")
    shell = build_shell(request, "runs", run.workspace)
    step = Step.objects.get(pk=step.pk)
    told = {"shell": shell, "now": shell.now, "run": run, "row": rows_of([step])[0], "said": list(said)}
    told |= {"why_not": _why_not(run, step), "delays": DELAYS, "reason_max": REASON_MAX}
    return render(request, "run/retry.html", told, status=status)


def _why_not(run: Run, step: Step) -> str:
    """Why it can't be tried again; empty when it can."""
    if run.status != RunStatus.ACTIVE:
        return "The run may not start new work: a retry would be refused, and recorded."
    if step.status in (StepStatus.RETRY_WAIT, StepStatus.PENDING):
        return "It waits for another try already."
    if not Step.objects.filter(may_retry(), pk=step.pk, status=StepStatus.FAILED).exists():
        return "It is not known that nothing of it happened. What may have happened is not sent again."
    return ""
