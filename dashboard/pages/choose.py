"""Which run should stop? The road to Stop from every page that is not about one run."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_GET

from dashboard import words
from dashboard.pages.scope_target import Wide
from dashboard.pages.shell import Shell, actor_of, build_shell, person_of, signed_in, workspace_of
from runs import everywhere
from runs.models import FINAL, Gate, Permit, PermitState, Policy, Run, RunStatus, Session, Workspace
from runs.scopes import kind_of

SHOWN, COUNTED, SESSIONS, POLICIES = 25, 1000, 8, 8


@dataclass(frozen=True)
class Choice:
    """One run that may start new work; `in_flight`: actions that a stop could not call back."""

    run: Run
    in_flight: int


class Choices:
    """One page of the running runs that this person may stop, newest first."""

    def __init__(self, request: HttpRequest, workspace: Workspace, shell: Shell) -> None:
        self.workspace = workspace
        self.q = request.GET.get("q", "").replace("\0", "")[:200]
        runs = Run.objects.filter(workspace=workspace, status=RunStatus.ACTIVE).order_by("-pk")
        if not shell.may_stop:
            runs = runs.filter(owner=person_of(request))
        found = self._matching(runs)
        self.total = found[: COUNTED + 1].count()
        before = request.GET.get("before", "").replace("\0", "")[:40]
        shown = list(
            (found.filter(pk__lt=before) if before else found).select_related("session")[: SHOWN + 1]
        )
        self.rows = list(self._rows(shown[:SHOWN]))
        self.older = self._address(before=shown[SHOWN - 1].pk) if len(shown) > SHOWN else ""

    def _matching(self, runs: QuerySet[Run]) -> QuerySet[Run]:
        if not self.q:
            return runs
        return runs.filter(Q(name__icontains=self.q) | Q(key__icontains=self.q) | Q(pk=self.q))

    def _rows(self, runs: list[Run]) -> list[Choice]:
        flying = Permit.objects.filter(run__in=[run.pk for run in runs], state=PermitState.OPEN)
        counts = dict(flying.order_by().values_list("run").annotate(n=Count("pk")))
        return [Choice(run, counts.get(run.pk, 0)) for run in runs]

    def _address(self, **more: str) -> str:
        asked = {"workspace": self.workspace.slug, "q": self.q} | more
        return reverse("choose-run", query={name: value for name, value in asked.items() if value})

    @property
    def elsewhere(self) -> str:
        """The same search among all runs."""
        return reverse("runs", query={"workspace": self.workspace.slug, "q": self.q})

    @property
    def counted(self) -> str:
        return f"more than {COUNTED}" if self.total > COUNTED else str(self.total)


@dataclass(frozen=True)
class Wider:
    """A stop that reaches further than one run, and its form."""

    word: str
    name: str
    href: str
    says: str = ""


def wider(request: HttpRequest, workspace: Workspace) -> list[Wider]:
    """The workspace, its sessions with runs that have not ended, its policies: four queries at most."""
    live = Run.objects.filter(workspace=workspace).exclude(status__in=FINAL)
    busy = live.filter(session__isnull=False).order_by().values("session").annotate(n=Count("pk"))
    counts = {row["session"]: row["n"] for row in busy.order_by("-n", "session")[:SESSIONS]}
    sessions = Session.objects.filter(pk__in=counts).order_by("key")
    above: list[Session | Workspace | Policy] = [workspace, *sessions]
    above += Policy.objects.filter(workspace=workspace).order_by("name")[:POLICIES]
    rows = [_wider(row, workspace, counts) for row in above]
    if everywhere.runs_it_all(actor_of(request)):
        rows.append(Wider("All workspaces", "", reverse("stop-everywhere")))
    return rows


def _wider(row: Session | Workspace | Policy, workspace: Workspace, counts: dict[str, int]) -> Wider:
    kind = kind_of(row)
    says = words.count(counts[row.pk], "run") if row.pk in counts else ""
    says = "shut" if row.gate == Gate.SHUT else says
    return Wider(kind.capitalize(), words.brief(row, 40), Wide(kind, row, workspace).href, says)


@require_GET
@signed_in
def choose_run(request: HttpRequest) -> HttpResponse:
    """GET /stop : the running runs, each with the way to its Stop. Nothing is stopped here."""
    workspace = workspace_of(request)
    shell = build_shell(request, "stop", workspace)
    told = {"shell": shell, "now": shell.now, "list": Choices(request, workspace, shell)}
    told |= {"wider": wider(request, workspace) if shell.may_stop else []}
    return render(request, "stop/choose.html", told)
