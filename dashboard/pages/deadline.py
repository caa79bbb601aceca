"""Force the deadline of a stop now: a page that says what that decides, and the press."""

from __future__ import annotations

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from dashboard import words
from dashboard.pages.dock import may_force
from dashboard.pages.facts import Facts
from dashboard.pages.shell import actor_of, build_shell, signed_in
from runs import access, stops
from runs.models import Run, StopRequest


@signed_in
def deadline_page(request: HttpRequest, run_id: str) -> HttpResponse:
    """/runs/<id>/stop/deadline : GET says what it would decide, POST lets the deadline pass now."""
    actor = actor_of(request)
    run = access.find_run(actor, run_id)
    if not access.may(actor, "stop", run):
        raise PermissionDenied
    if request.method != "POST":
        return _ask(request, run)
    named = {"scope": "run", "pk": request.POST.get("stop", "").replace("\0", "")}
    stop = StopRequest.objects.filter(run=run, **named).first()
    if stop is None:
        raise Http404
    done = stops.force_deadline(actor=actor, stop_id=stop.pk)
    said = words.DEADLINE_FORCED if done.forced else words.DEADLINE_NOT_FORCED
    messages.info(request, said.format(number=stop.number))
    return redirect("run", run_id)


def _ask(request: HttpRequest, run: Run) -> HttpResponse:
    shell = build_shell(request, "runs", run.workspace)
    facts = Facts(run, shell.now)
    stop = facts.stop
    told = {"shell": shell, "now": shell.now, "run": run, "stop": stop}
    told |= {"open": stop is not None and may_force(facts, stop), "flying": facts.open_permits}
    told |= {"held": facts.step_counts["DISPATCHED"] + facts.step_counts["CLAIMED"]}
    return render(request, "run/deadline.html", told)
