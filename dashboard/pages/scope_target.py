"""A session, workspace or policy that a person may stop: found by the address, named, with its runs."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import cached_property

from django.db.models import QuerySet
from django.urls import reverse

from dashboard import words
from dashboard.pages.facts import name_actors
from runs import access, policies
from runs.access import Actor, NotFound
from runs.models import Gate, Policy, Reach, Run, ScopeKind, Session, StopRequest, Workspace
from runs.policies import Match
from runs.scopes import Target

Row = Session | Workspace | Policy


@dataclass(frozen=True)
class Wide:
    """One scope that can stand, and what a page says of it."""

    kind: str
    row: Row
    workspace: Workspace

    @property
    def target(self) -> Target:
        return Target(self.kind, self.row.pk)

    @property
    def name(self) -> str:
        """Its own name, as somebody types it to be sure."""
        return str(self.row)

    @property
    def said(self) -> str:
        return f"{self.kind} “{words.brief(self.name)}”"

    @property
    def runs(self) -> QuerySet[Run]:
        if isinstance(self.row, Policy):
            return policies.matching_runs(self.row)
        mine = Run.objects.filter(workspace=self.workspace)
        return mine.filter(session=self.row) if isinstance(self.row, Session) else mine

    @cached_property
    def match(self) -> Match | None:
        return policies.match_of(self.row) if isinstance(self.row, Policy) else None

    @property
    def of_effects(self) -> bool:
        return isinstance(self.row, Policy) and self.row.reach == Reach.EFFECTS

    @property
    def curl(self) -> str:
        """How a shell names it; quoted, since a name may hold anything."""
        named = {"scope": self.kind}
        if self.kind != ScopeKind.WORKSPACE:
            named[self.kind] = self.row.key if isinstance(self.row, Session) else self.row.pk
        return " ".join(f"--data-urlencode {shlex.quote(f'{name}={value}')}" for name, value in named.items())

    @property
    def shut(self) -> bool:
        return self.row.gate == Gate.SHUT

    @property
    def guarded(self) -> bool:
        """Whether its name is typed before a press: a slip here reaches far. Never asked by the verb."""
        return self.kind != ScopeKind.SESSION

    @cached_property
    def standing(self) -> StopRequest | None:
        """The stop that stands on it, observing or shut."""
        rows = StopRequest.objects.filter(workspace=self.workspace, scope=self.kind, closed_at__isnull=True)
        if self.kind != ScopeKind.WORKSPACE:
            rows = rows.filter(**{self.kind: self.row})
        return rows.filter(released_at__isnull=True, superseded_by__isnull=True).order_by("-number").first()

    @property
    def who(self) -> str:
        """Who asked for the stop that stands."""
        stop = self.standing
        return words.clean(name_actors([stop.actor])[stop.actor]) if stop else ""

    @property
    def page(self) -> str:
        """Where its stop is told of; the form, while none stands."""
        stop = self.standing
        return reverse("stop-detail", args=[stop.pk]) if stop else self.href

    @property
    def href(self) -> str:
        """The form that stops it."""
        return reverse("stop-scope", query={"scope": self.kind, "id": self.row.pk})


def find(actor: Actor, kind: str, scope_id: str, right: str = "stop") -> Wide:
    """The scope, for those who may do this in its workspace. Raises NotFound, NotAllowed."""
    row: Row | None = None
    if kind == ScopeKind.WORKSPACE:
        row = Workspace.objects.filter(pk=scope_id).first()
    elif kind == ScopeKind.SESSION:
        row = Session.objects.select_related("workspace").filter(pk=scope_id).first()
    elif kind == ScopeKind.POLICY:
        row = Policy.objects.select_related("workspace").filter(pk=scope_id).first()
    if row is None:
        raise NotFound(kind or "scope")
    workspace = row if isinstance(row, Workspace) else row.workspace
    access.demand_workspace(actor, right, workspace.pk)
    return Wide(kind, row, workspace)


def find_stop(actor: Actor, stop_id: str, right: str = "read") -> StopRequest:
    """A stop with its names, for those who may do this in its workspace. Raises NotFound, NotAllowed."""
    related = ("workspace", "session", "policy", "run", "step", "step__run", "superseded_by", "scope_stop")
    stop: StopRequest | None = StopRequest.objects.select_related(*related).filter(pk=stop_id).first()
    if stop is None:
        raise NotFound("stop")
    access.demand_workspace(actor, right, stop.workspace_id)
    return stop


def scope_of(stop: StopRequest) -> Wide | None:
    """What a standing stop stands on; None for the others."""
    rows: dict[str, Row | None] = {
        ScopeKind.SESSION: stop.session,
        ScopeKind.POLICY: stop.policy,
        ScopeKind.WORKSPACE: stop.workspace,
    }
    row = rows.get(stop.scope)
    return Wide(stop.scope, row, stop.workspace) if row is not None else None
