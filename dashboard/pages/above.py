"""The stops of scopes that a run is under, each with its page: one query."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Q

from dashboard import scope_words
from dashboard.pages.scope_preview import withheld
from dashboard.pages.stop_rows import of_effects
from runs import policies, scopes
from runs.models import FINAL, Policy, Run, ScopeKind, StopRequest


@dataclass(frozen=True)
class Above:
    """A stop that stands over a run, and what that means for it."""

    stop: StopRequest
    subject: str
    says: str


def above(run: Run, part_of: str | None) -> list[Above]:
    """Those in force, and the one that the run's own stop is a part of; none over a run that has ended."""
    if run.status in FINAL and part_of is None:
        return []
    kinds = Q(scope=ScopeKind.WORKSPACE) | Q(scope=ScopeKind.POLICY) | Q(session=run.session_id or "")
    held = scopes.in_force() & kinds & ~Q(observes=True) if run.status not in FINAL else Q(pk__in=[])
    rows = StopRequest.objects.filter(held | Q(pk=part_of or ""), workspace=run.workspace_id)
    found = rows.select_related("workspace", "session", "policy").order_by("number")
    return [_told(run, stop, part_of) for stop in found if _concerns(run, stop) or stop.pk == part_of]


def _concerns(run: Run, stop: StopRequest) -> bool:
    policy: Policy | None = stop.policy
    return policy is None or policies.matches(policies.match_of(policy), run.labels)


def _told(run: Run, stop: StopRequest, part_of: str | None) -> Above:
    said = "Its own stop is a part of it." if stop.pk == part_of else "It may start no new work under it."
    if stop.policy is not None and of_effects(stop):
        said = f"{withheld(policies.match_of(stop.policy))} is refused; the run goes on."
    if stop.released_at:
        said += " It was released since."
    return Above(stop, scope_words.subject(stop), said)
