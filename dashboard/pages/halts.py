"""Halts of compensations: said where they matter; lifted by a reviewer, a decision with a form of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from dashboard import scope_words, words
from dashboard.pages.facts import name_actors
from dashboard.pages.shell import Shell, actor_of, address, build_shell, signed_in
from effects.models import Compensation, CompensationState
from runs import halts
from runs.models import Halt, StopRequest
from runs.wishes import storable

REASON_MAX, NAMED = 2000, 10
LIFTED = "Compensations may start again here. What was approved meanwhile goes on once the gate has looked."


@dataclass(frozen=True)
class Told:
    """One halt as pages tell of it: `says` is a whole sentence, `href` leads to lifting it."""

    halt: Halt
    says: str
    href: str
    stop_href: str


def told(halt: Halt) -> Told:
    """A halt that stands; its stop, session and policy come with it."""
    stop, since = halt.stop, words.moment_utc(halt.set_at)
    says = (
        f"Compensations are halted here since {since} by stop #{stop.number}"
        f" ({scope_words.subject(stop)}) until a reviewer lifts that."
    )
    return Told(halt, says, reverse("lift-halt", args=[halt.pk]), reverse("stop-detail", args=[stop.pk]))


def in_force(workspace_id: str) -> list[Told]:
    """The halts of a workspace that stand: one query."""
    return [told(halt) for halt in halts.in_force(workspace_id)]


def of_stop(stop: StopRequest) -> list[Told]:
    """Those that this stop set and that nobody lifted."""
    return [told(one) for one in halts.of_stops([stop.pk]) if one.lifted_at is None]


class LiftPage:
    """What lifting a halt means, as of now."""

    def __init__(self, halt: Halt, shell: Shell) -> None:
        self.halt, self.stop, self.shell = halt, halt.stop, shell
        self.subject = scope_words.subject(halt.stop)
        self.may = "release" in shell.may
        self.told = told(halt)
        waiting = Compensation.objects.filter(
            run__workspace=halt.workspace_id, state=CompensationState.APPROVED
        ).select_related("run")
        found = list(waiting.order_by("pk")[: NAMED + 1])
        self.waiting, self.more = found[:NAMED], len(found) > NAMED
        self.by = words.clean(name_actors([halt.lifted_by]).get(halt.lifted_by, ""))

    @property
    def says(self) -> str:
        """What goes on by itself, and what does not."""
        if not self.waiting:
            return "Lifting starts nothing now: no approved compensation waits."
        number = "More than 10" if self.more else f"{len(self.waiting)}"
        one = number == "1"
        return (
            f"{number} approved compensation{'' if one else 's'} of this workspace"
            f" wait{'s' if one else ''}; what this halt alone keeps goes on once it is lifted."
        )


@require_http_methods(["GET", "POST"])
@signed_in
def lift_page(request: HttpRequest, halt_id: str) -> HttpResponse:
    """/halts/<id>/lift : GET says what it means, POST is the decision, with its reason."""
    actor = actor_of(request)
    halt = halts.find(halt_id, actor)
    if request.method != "POST":
        return _show(request, halt)
    try:
        halts.lift(actor=actor, halt_id=halt_id, reason=storable(request.POST.get("reason", ""), REASON_MAX))
    except halts.NoReason:
        return _show(request, halt, 422, no_reason=True)
    messages.info(request, LIFTED)
    return redirect(address("reviews", halt.workspace))


def _show(request: HttpRequest, halt: Halt, status: int = 200, **more: Any) -> HttpResponse:
    shell = build_shell(request, "stops", halt.workspace)
    page = {"shell": shell, "now": shell.now, "max": REASON_MAX, "page": LiftPage(halt, shell)}
    return render(request, "halts/lift.html", page | more, status=status)
