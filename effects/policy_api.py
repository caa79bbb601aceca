"""The API of policies: standing rules over runs by label, and over effects by kind and class."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Router

from runs import access, cursors, policies, scopes
from runs.access import NotFound
from runs.api import MAY_KEY, READ, WRITE, Cursor, Limit
from runs.fields import In, Out, ShortKey
from runs.idempotency import Reply, once, reply, send
from runs.models import Policy, ScopeKind, StopRequest
from runs.policies import Match, PolicyTaken
from runs.problems import NAMES
from runs.schemas import Page, ProblemOut, StopBrief, stop_brief
from runs.tokens import actor_of, home_of, spaces_of

router = Router(by_alias=True)
NAMES[PolicyTaken] = "policy-name-taken"


class NewPolicyIn(In):
    """A policy: its name, and what it is about. It never changes; a stop of it, and a release, do."""

    name: ShortKey
    match: Match


class PolicyOut(Out):
    """A policy as it stands. `reach`: runs, or effects of its kinds and classes. `stop` holds its gate."""

    id: str
    workspace_id: str
    name: str
    match: dict[str, Any]
    reach: str
    gate: str
    epoch: int
    gate_at: datetime | None
    created_by: str
    created_at: datetime
    stop: StopBrief | None


class PoliciesOut(Page):
    """A page of policies."""

    items: list[PolicyOut]


def policy_out(policy: Policy, stop: StopRequest | None) -> dict[str, Any]:
    """A policy on the wire."""
    told = {name: getattr(policy, name) for name in PolicyOut.model_fields if name != "stop"}
    return PolicyOut(**told, stop=stop_brief(stop)).wire()


@router.post("/policies", response={200: PolicyOut, 201: PolicyOut, WRITE: ProblemOut}, openapi_extra=MAY_KEY)
def add_policy(request: HttpRequest, body: NewPolicyIn) -> HttpResponse:
    """Make a policy; its gate is open. The same name and match again is the one that is there (200)."""
    actor, home = actor_of(request), home_of(actor_of(request))
    known = Policy.objects.filter(workspace_id=home, name=body.name).exists()

    def create() -> Policy:
        return policies.create_policy(actor=actor, workspace_id=home, name=body.name, match=body.match)

    def answer(policy: Policy) -> Reply:
        return reply(200 if known else 201, policy_out(policy, scopes.standing_stop(policy)))

    return once(request, create, answer, required=False)


@router.get("/policies", response={200: PoliciesOut, READ: ProblemOut})
def list_policies(request: HttpRequest, cursor: Cursor = "", limit: Limit = 50) -> HttpResponse:
    """The policies that you may see, newest first."""
    rows = Policy.objects.filter(workspace_id__in=spaces_of(actor_of(request)))
    found, after = cursors.page(rows, cursor, limit)
    held = StopRequest.objects.filter(scopes.in_force(), scope=ScopeKind.POLICY, policy__in=found)
    stops = {stop.policy_id: stop for stop in held.exclude(observes=True).order_by("number")}
    items = [policy_out(policy, stops.get(policy.pk)) for policy in found]
    return send(reply(200, cursors.listed(items, after)))


@router.get("/policies/{id:policy_id}", response={200: PolicyOut, READ: ProblemOut})
def read_policy(request: HttpRequest, policy_id: str) -> HttpResponse:
    """One policy as it stands now."""
    policy = Policy.objects.filter(pk=policy_id).first()
    if policy is None:
        raise NotFound("policy")
    access.demand_workspace(actor_of(request), "read", policy.workspace_id)
    return send(reply(200, policy_out(policy, scopes.standing_stop(policy))))
