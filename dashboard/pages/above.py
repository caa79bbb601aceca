"""The stops that a run is under, and those of its steps, each with its page: one query."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import F, Q

from dashboard import scope_words
from dashboard.pages.scope_preview import withheld
from dashboard.pages.stop_rows import of_effects
from runs import policies, scopes
from runs.models import FINAL, Policy, Run, RunStatus, ScopeKind, StopRequest

MOST = 12


@dataclass(frozen=True)
class Above:
    """A stop that stands over a run, or over a step of it, and what that means for it."""

    stop: StopRequest
    subject: str
    says: str


def above(run: Run, part_of: str | None) -> list[Above]:
    """Those in force, and the one that the run's own stop is a part of; none over a run that has ended."""
    if run.status in FINAL and part_of is None:
        return []
    kinds = Q(scope=ScopeKind.WORKSPACE) | Q(scope=ScopeKind.POLICY) | Q(session=run.session_id or "")
    held = scopes.in_force() & kinds & ~Q(observes=True) if run.status not in FINAL else Q(pk__in=[])
    of_steps = Q(scope=ScopeKind.STEP, run=run, closed_at__isnull=True)
    rows = StopRequest.objects.filter(held | of_steps | Q(pk=part_of or ""), workspace=run.workspace_id)
    rows = rows.select_related("workspace", "session", "policy", "step")
    found = rows.order_by(F("step").asc(nulls_first=True), "number")
    mine = [stop for stop in found if _concerns(run, stop) or stop.pk == part_of]
    return [_told(run, stop, part_of) for stop in mine[:MOST]]


def _concerns(run: Run, stop: StopRequest) -> bool:
    policy: Policy | None = stop.policy
    return policy is None or policies.matches(policies.match_of(policy), run.labels)


def _told(run: Run, stop: StopRequest, part_of: str | None) -> Above:
    if stop.scope == ScopeKind.STEP:
        on = "; the run goes on" if run.status == RunStatus.ACTIVE else ""
        return Above(stop, scope_words.subject(stop), f"Nothing more of it is let through{on}.")
    said = "Its own stop is a part of it." if stop.pk == part_of else "It may start no new work under it."
    if stop.policy is not None and of_effects(stop):
        said = f"{withheld(policies.match_of(stop.policy))} is refused; the run goes on."
    if stop.released_at:
        said += " It was released since."
    return Above(stop, scope_words.subject(stop), said)
