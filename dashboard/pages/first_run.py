"""The first run: from the sign-in to a first honest report, and then a run of your own."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from dashboard import repair_words, words
from dashboard.pages.propose import review_of
from dashboard.pages.shell import actor_of, build_shell, is_region, signed_in, workspace_of
from effects.models import Compensation, CompensationState, Effect, Report
from runs import access
from runs.models import Run, RunStatus, StopRequest, Worker, Workspace

SNIPPET = """from allstop import Client

with Client() as client:                    # reads ALLSTOP_URL and ALLSTOP_TOKEN
    with client.run("invoice-batch-0142") as run:
        for order in orders:
            charge = run.effect(
                key=f"charge:{order.id}",     # the same on every attempt
                kind="card.charge",
                target=order.customer,
                compensation="card.refund",   # or none_because="…"
            )
            charge.send(cards.charge, order, idempotency_key=charge.key)
"""
DEMO = "demo"
AT_REST = (RunStatus.CANCELLED, RunStatus.UNKNOWN, RunStatus.PAUSED)


@dataclass(frozen=True)
class Item:
    """One item of the list: `done`, or what to do; `current`: the first that is not done."""

    head: str
    done: bool
    note: str = ""
    template: str = ""


class FirstRun:
    """What has happened in a workspace so far; a dash stands where nothing has come yet."""

    def __init__(self, workspace: Workspace, who: str, now: datetime) -> None:
        self.workspace, self.who, self.now = workspace, who, now
        mine = Run.objects.filter(workspace=workspace)
        demos = mine.filter(session__key=DEMO).order_by("-pk")
        self.demo = demos.filter(status=RunStatus.ACTIVE).first() or demos.first()
        stops = StopRequest.objects.filter(run__in=demos, scope="run", finished_before=False)
        self.stopped = stops.select_related("run").order_by("-pk").first()
        mending = Compensation.objects.filter(run__in=demos).select_related("permit__step")
        self.refund = mending.order_by("-pk").first()
        self.report = Report.objects.filter(run__in=demos).order_by("-issued_at").first()
        own = mine.exclude(session__key=DEMO)
        self.runs = own.count()
        self.workers = Worker.objects.filter(run__in=own).values("name").distinct().count()
        self.effects = Effect.objects.filter(run=self.demo).count() if self.demo else 0

    @property
    def items(self) -> list[Item]:
        own = f"{self.runs} registered" if self.runs else ""
        return [
            Item("Signed in", True, words.clean(self.who)),
            Item(f"Workspace “{words.clean(self.workspace.name)}”", True),
            Item("Start the demo run", self.demo is not None, self._begun(), "first/_demo.html"),
            Item(
                "Press Stop while “charge” is in flight",
                bool(self.stopped),
                self._said(),
                "first/_press.html",
            ),
            Item("Read the report", self.report is not None, "", "first/_report.html"),
            Item("Refund one charge, as two people", self.refunded, self._asked(), "first/_refund.html"),
            Item("Connect yours", self.runs > 0, own, "first/_yours.html"),
        ]

    @property
    def refunded(self) -> bool:
        """Whether the newest compensation of the demo was seen at the bank."""
        return bool(self.refund and self.refund.state == CompensationState.VERIFIED)

    @cached_property
    def charge(self) -> Effect | None:
        """A charge of the stopped run that happened and could be refunded, once that run is at rest."""
        run = self.stopped.run if self.stopped else None
        if self.refund is not None or run is None or run.status not in AT_REST:
            return None
        return Effect.objects.filter(run=run, kind_name="bank.charge", settlement="CONFIRMED").first()

    @cached_property
    def refund_href(self) -> str:
        return review_of(self.refund) if self.refund else ""

    def _asked(self) -> str:
        if self.refund is None:
            return ""
        permit = self.refund.permit.state if self.refund.permit else ""
        return f"{words.clean(self.refund.title)}: {repair_words.term_of(self.refund, permit).word.lower()}"

    def _begun(self) -> str:
        if self.demo is None:
            return ""
        effects = words.count(self.effects, "effect")
        return f"{words.clean(self.demo.name)}, v{self.demo.cancel_version}, {effects} so far"

    def _said(self) -> str:
        if self.stopped is None or self.stopped.run is None:
            return ""
        return f"Stop #{self.stopped.number} of {words.clean(self.stopped.run.name)}"

    @property
    def done(self) -> int:
        return sum(item.done for item in self.items)

    @property
    def current(self) -> int:
        """The place of the first item that is not done, from 1."""
        return next((n for n, item in enumerate(self.items, 1) if not item.done), 0)

    @property
    def has_demo(self) -> bool:
        """Whether this server can start a demo run here."""
        worlds: dict[str, Any] = importlib.import_module("dashboard.demo.start").WORLDS
        return self.workspace.pk in worlds

    @property
    def running(self) -> bool:
        return bool(self.demo and self.demo.status == RunStatus.ACTIVE)


@require_GET
@signed_in
def first_run(request: HttpRequest) -> HttpResponse:
    """GET /first-run : the list, or its live region."""
    workspace = workspace_of(request)
    shell = build_shell(request, "first-run", workspace)
    told: dict[str, Any] = {"shell": shell, "now": shell.now, "snippet": SNIPPET}
    told |= {"first": FirstRun(workspace, shell.who, shell.now), "topic": f"workspace:{workspace.pk}:runs"}
    if is_region(request):
        return render(request, "first/_fragment.html", told | {"region": True})
    return render(request, "first/page.html", told)


@require_POST
@signed_in
def start_demo(request: HttpRequest) -> HttpResponse:
    """POST /first-run/start : one more run of the demo's agent."""
    workspace = workspace_of(request)
    access.demand_workspace(actor_of(request), "demo", workspace.pk)
    start = importlib.import_module("dashboard.demo.start")
    try:
        start.start_run(workspace.pk)
    except start.DemoBusy:
        messages.warning(
            request, "Enough demo agents are at work. Stop one of their runs, or wait for one to end."
        )
    except start.NoDemo:
        messages.warning(request, "This server runs no demo for this workspace. Nothing was started.")
    return redirect(f"{reverse('first-run')}?workspace={workspace.slug}")
