"""Proposing a compensation: a page that says what would be proposed, or why nothing can be."""

from __future__ import annotations

from functools import cached_property
from types import SimpleNamespace
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from dashboard import repair_words, words
from dashboard.pages import call_diff
from dashboard.pages.halts import Told, told
from dashboard.pages.original import Original
from dashboard.pages.repair_review import difference, verified_by
from dashboard.pages.review_facts import named
from dashboard.pages.shell import Shell, actor_of, build_shell, signed_in
from effects import compensate
from effects.compensate import NotProposed, Possible
from effects.models import Compensation, Effect, Review
from runs import access, halts
from runs.access import Actor

PROPOSED = "Proposed. Nothing was sent: people other than you decide about it first."
BY_RULE = "Proposed, and queued by the rules: it puts back local files, and no stop of this run was recorded."
NOBODY = (
    "Nobody else in this workspace could approve it: compensations that need approval can’t be approved"
    " here until another reviewer belongs to it."
)
WISH_MAX = 1000


class ProposePage:
    """What would be proposed for one effect, as its rows are now."""

    def __init__(self, effect: Effect, shell: Shell, actor: Actor) -> None:
        self.effect, self.run, self.actor = effect, effect.run, actor
        self.may = bool({"resolve", "approve"} & shell.may)
        self.original = Original(effect, effect.run)

    @cached_property
    def preview(self) -> Possible | NotProposed:
        return compensate.preview(self.effect)

    @property
    def possible(self) -> Possible | None:
        return self.preview if isinstance(self.preview, Possible) else None

    @property
    def why_not(self) -> str:
        """Why nothing can be proposed, in a sentence; the report tells of what can't."""
        return self.preview.sentence if isinstance(self.preview, NotProposed) else ""

    @cached_property
    def open_review(self) -> str:
        """Where the one is decided that is proposed already."""
        there = self.preview.open if isinstance(self.preview, NotProposed) else None
        return review_of(there) if there else ""

    @property
    def title(self) -> str:
        """What would be done, or of what effect nothing is."""
        return named(self._as_row) if self.possible else named(self.effect)

    @cached_property
    def _as_row(self) -> Any:
        """The call that would be written down, with its kind."""
        assert self.possible is not None
        call, kind = self.possible.call, self.possible.kind
        told = {"title": call.title, "target": call.target, "amount": call.amount, "body": call.body}
        return SimpleNamespace(**told, kind=kind, kind_name=call.kind)

    @cached_property
    def lines(self) -> list[call_diff.Line]:
        if self.possible is None:
            return []
        return difference(self.possible.plan, self.possible.kind, self._as_row)

    @property
    def diff_says(self) -> str:
        return call_diff.says(self.lines)

    @property
    def rule(self) -> str:
        return repair_words.rule_says(self.possible.rule) if self.possible else ""

    @property
    def expected(self) -> str:
        call = self.possible.call if self.possible else None
        return words.brief(call.expected, 600) if call and call.expected else "It was not declared."

    @property
    def risks(self) -> str:
        call = self.possible.call if self.possible else None
        return (
            words.brief(call.risks, 600)
            if call and call.risks
            else "None was declared; that is no proof of none."
        )

    @property
    def verified_by(self) -> str:
        return verified_by(self.possible.kind, self._as_row.kind_name) if self.possible else ""

    @cached_property
    def nobody(self) -> str:
        """That nobody could approve it, if this person proposes it; "" otherwise."""
        if self.possible is None or self.possible.automatic:
            return ""
        alone = compensate.nobody_else(self.run, self.possible.rule.approvals, self.actor)
        return NOBODY if alone else ""

    @cached_property
    def halt(self) -> Told | None:
        if self.possible is None:
            return None
        kinds = [
            (self._as_row.kind_name, self.possible.op_class),
            (self.effect.kind_name, self.effect.op_class),
        ]
        halt = halts.over(self.run, kinds)
        return told(halt) if halt else None


def review_of(compensation: Compensation) -> str:
    """The address of the newest review of a compensation; of its run where it has none."""
    rows = Review.objects.filter(subject="compensation", subject_id=compensation.pk).order_by("-pk")
    found = rows.values_list("pk", flat=True).first()
    if found is None:
        return f"{reverse('run', args=[compensation.run_id])}#compensations"
    return reverse("review", args=[found])


def find_effect(actor: Actor, effect_id: str) -> Effect:
    """The effect with its run, for members of its workspace; NotFound for everybody else."""
    rows = Effect.objects.select_related("kind", "run__workspace", "run__session", "run__owner")
    effect: Effect | None = rows.filter(pk=effect_id).first()
    if effect is None:
        raise access.NotFound("effect")
    access.demand(actor, "read", effect.run)
    return effect


@require_http_methods(["GET", "POST"])
@signed_in
def propose_page(request: HttpRequest, effect_id: str) -> HttpResponse:
    """/effects/<id>/compensate : GET says what would be proposed, POST proposes it. Nothing is sent by it."""
    actor = actor_of(request)
    effect = find_effect(actor, effect_id)
    if request.method != "POST":
        return _show(request, effect)
    wish = request.POST.get("wish", "").replace("\0", "")
    made = compensate.propose(actor=actor, effect_id=effect_id, wish=wish)
    if isinstance(made, NotProposed):
        return _show(request, find_effect(actor, effect_id), 409, f"Nothing was proposed. {made.sentence}")
    messages.info(request, BY_RULE if made.state == "APPROVED" else PROPOSED)
    return redirect(review_of(made))


def _show(request: HttpRequest, effect: Effect, status: int = 200, said: str = "") -> HttpResponse:
    shell = build_shell(request, "reviews", effect.run.workspace)
    page = ProposePage(effect, shell, actor_of(request))
    told = {"shell": shell, "now": shell.now, "page": page, "said": said, "max": WISH_MAX}
    told["new_action"] = repair_words.NEW_ACTION
    return render(request, "reviews/propose.html", told, status=status)
