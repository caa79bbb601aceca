"""Coverage: which workers were seen at a gate, what they confirmed, and what no gate of ours can see."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from dashboard import words
from dashboard.pages.gate_health import GateHealth, health_of
from dashboard.pages.shell import build_shell, is_region, signed_in, workspace_of
from effects import coverage
from effects.coverage import Coverage, KindUse
from runs.coverage import DAYS, Runtime


@dataclass(frozen=True)
class RuntimeRow:
    """One runtime with one agent; `seen` of its workers came to a gate, `told` are those of open runs."""

    of: Runtime

    @property
    def seen(self) -> int:
        return self.of.workers - self.of.never

    @property
    def told(self) -> int:
        return self.of.confirmed + self.of.behind


@dataclass(frozen=True)
class KindRow:
    """One kind in use, and its class in words."""

    of: KindUse

    @property
    def class_word(self) -> str:
        return words.CLASS.get(self.of.op_class, "")


@dataclass(frozen=True)
class CoveragePage:
    """What is seen of a workspace, and what a reader may conclude from it."""

    found: Coverage
    health: GateHealth

    @property
    def says(self) -> str:
        """How much of it is behind our gates, in one sentence."""
        never = sum(row.never for row in self.found.seen.runtimes)
        unnamed = sum(row.unnamed for row in self.found.seen.runtimes)
        gaps = [words.count(never, "worker came to no gate", "workers came to no gate")] if never else []
        gaps += [words.count(unnamed, "run names no worker", "runs name no worker")] if unnamed else []
        tools = len(self.found.seen.tools)
        gaps += [words.count(tools, "tool runs at a provider", "tools run at a provider")] if tools else []
        opaque = len(self.found.opaque)
        gaps += [words.count(opaque, "kind is not registered", "kinds are not registered")] if opaque else []
        return f"{words.listed(gaps)}.".capitalize() if gaps else "No gap is known here."

    @property
    def runtimes(self) -> list[RuntimeRow]:
        return [RuntimeRow(row) for row in self.found.seen.runtimes]

    @property
    def kinds(self) -> list[KindRow]:
        """Opaque ones first: those are the gap."""
        return [KindRow(row) for row in (*self.found.opaque, *self.found.registered)]

    @property
    def effects(self) -> int:
        return self.found.effects

    @property
    def registered_effects(self) -> int:
        return self.found.effects - self.found.opaque_effects


@require_GET
@signed_in
def coverage_page(request: HttpRequest) -> HttpResponse:
    """GET /coverage : the whole of a workspace, or its live region."""
    workspace = workspace_of(request)
    shell = build_shell(request, "stops", workspace)
    page = CoveragePage(coverage.of_workspace(workspace.pk), health_of(workspace, shell.now))
    told = {"shell": shell, "now": shell.now, "page": page, "days": DAYS}
    told |= {"topic": f"workspace:{workspace.pk}:runs", "region": is_region(request)}
    return render(request, "coverage/_fragment.html" if is_region(request) else "coverage/page.html", told)
