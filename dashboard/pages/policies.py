"""Policies: what each is about in words, its stops, and the runs that fall under it now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods

from dashboard import scope_words, words
from dashboard.pages.facts import name_actors
from dashboard.pages.match_form import NoMatch, offered, read_match, read_name
from dashboard.pages.needs import COUNTED, at_most
from dashboard.pages.run_filter import Filter
from dashboard.pages.shell import actor_of, build_shell, signed_in, workspace_of
from dashboard.pages.stop_rows import StopRow, rows_of
from runs import access, policies
from runs.models import FINAL, Gate, Policy, Reach, ScopeKind, StopRequest, Workspace
from runs.policies import PolicyTaken

SHOWN, STOPS, RUNS = 100, 20, 10
REACH = {
    Reach.RUNS: "A stop of it withholds the whole runs, and refuses new ones.",
    Reach.EFFECTS: "A stop of it withholds those effects; the runs go on.",
}


@dataclass(frozen=True)
class PolicyRow:
    """One policy of the list; `stop`: the number of the stop that stands on it, None without one."""

    policy: Policy
    match: str
    stop: StopRequest | None
    who: str

    @property
    def reach(self) -> str:
        return REACH[Reach(self.policy.reach)]

    @property
    def state(self) -> str:
        if self.policy.gate == Gate.SHUT:
            return "shut"
        return "observed" if self.stop else "open"


def policy_rows(found: list[Policy]) -> list[PolicyRow]:
    """Each with the stop that stands on it: three queries, whatever their number."""
    standing = StopRequest.objects.filter(
        policy__in=found, scope=ScopeKind.POLICY, closed_at__isnull=True, released_at__isnull=True
    ).filter(superseded_by__isnull=True)
    of = {stop.policy_id: stop for stop in standing.order_by("number")}
    named = name_actors(policy.created_by for policy in found)
    return [
        PolicyRow(
            policy,
            scope_words.described(policies.match_of(policy)),
            of.get(policy.pk),
            words.clean(named.get(policy.created_by, "")),
        )
        for policy in found
    ]


@require_http_methods(["GET", "POST"])
@signed_in
def policies_page(request: HttpRequest) -> HttpResponse:
    """GET /policies/ : the list, and a form for a new one. POST: create it; that withholds nothing yet."""
    workspace = workspace_of(request)
    said = ""
    if request.method == "POST":
        made = create(request, workspace)
        if isinstance(made, Policy):
            messages.info(request, CREATED)
            return redirect("policy", made.pk)
        said = made
    shell = build_shell(request, "stops", workspace)
    found = list(Policy.objects.filter(workspace=workspace).order_by("name", "pk")[: SHOWN + 1])
    told: dict[str, Any] = {"shell": shell, "now": shell.now, "said": said} | offered(workspace, request.POST)
    told |= {"rows": policy_rows(found[:SHOWN]), "shown": SHOWN, "cut": len(found) > SHOWN}
    return render(request, "policies/page.html", told, status=422 if said else 200)


CREATED = "The policy is there. It withholds nothing until it is stopped."


def create(request: HttpRequest, workspace: Workspace) -> Policy | str:
    """The new policy; or why there is none."""
    actor, sent = actor_of(request), request.POST
    access.demand_workspace(actor, "stop", workspace.pk)
    try:
        name, match = read_name(sent), read_match(sent)
        return policies.create_policy(actor=actor, workspace_id=workspace.pk, name=name, match=match)
    except NoMatch as error:
        return str(error)
    except PolicyTaken:
        return "A policy of this name is there, with another match. A policy never changes: give a new name."


class PolicyPage:
    """One policy: its match, the runs under it that have not ended, and its stops. Bounded queries."""

    def __init__(self, policy: Policy, now: Any) -> None:
        self.policy = policy
        (self.row,) = policy_rows([policy])
        live = policies.matching_runs(policy).exclude(status__in=FINAL)
        self.total = live[: COUNTED + 1].count()
        self.runs = [(run, words.RUN[run.status]) for run in live.order_by("-pk")[:RUNS]]
        stops = StopRequest.objects.filter(policy=policy, scope=ScopeKind.POLICY).order_by("-number")
        self.stops: list[StopRow] = rows_of(stops[:STOPS], now)

    @property
    def counted(self) -> str:
        return at_most(self.total)

    @property
    def later(self) -> str:
        """Which runs to come it is about."""
        with_these = " with these labels" if policies.match_of(self.policy).labels else ""
        return f"Every run{with_these} that is admitted later"

    @property
    def everything(self) -> str:
        return Filter(self.policy.workspace, policy=self.policy.pk).address()


def find_policy(request: HttpRequest, policy_id: str) -> Policy:
    """The policy, for members of its workspace; NotFound for everybody else."""
    policy = Policy.objects.select_related("workspace").filter(pk=policy_id).first()
    if policy is None:
        raise access.NotFound("policy")
    access.demand_workspace(actor_of(request), "read", policy.workspace_id)
    return policy


@require_GET
@signed_in
def policy_page(request: HttpRequest, policy_id: str) -> HttpResponse:
    """GET /policies/<id> : its match in words, the runs that fall under it now, its stops."""
    policy = find_policy(request, policy_id)
    shell = build_shell(request, "stops", policy.workspace)
    told = {"shell": shell, "now": shell.now, "page": PolicyPage(policy, shell.now), "policy": policy}
    return render(request, "policies/policy.html", told)
