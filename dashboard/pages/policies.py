"""Policies: what each is about in words, its stops, and the runs that fall under it now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods
from pydantic import ValidationError

from dashboard import scope_words, words
from dashboard.pages.facts import name_actors
from dashboard.pages.needs import COUNTED, at_most
from dashboard.pages.run_filter import Filter
from dashboard.pages.shell import actor_of, build_shell, signed_in, workspace_of
from dashboard.pages.stop_rows import StopRow, rows_of
from runs import access, policies
from runs.models import FINAL, Gate, Policy, Reach, Run, ScopeKind, StopRequest, Workspace
from runs.policies import Match, PolicyTaken

SHOWN, STOPS, RUNS = 100, 20, 10
LINES = 20  # labels that the form reads
CLASSES = {name: word for name, word in words.CLASS.items() if name != "approval_wait"}
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
    told: dict[str, Any] = {}
    if request.method == "POST":
        made = create(request, workspace)
        if isinstance(made, Policy):
            messages.info(request, CREATED)
            return redirect("policy", made.pk)
        told = made
    shell = build_shell(request, "stops", workspace)
    found = list(Policy.objects.filter(workspace=workspace).order_by("name", "pk")[: SHOWN + 1])
    told |= {"shell": shell, "now": shell.now, "rows": policy_rows(found[:SHOWN]), "shown": SHOWN}
    told |= {"cut": len(found) > SHOWN, "classes": CLASSES, "kinds": kinds_of(workspace)}
    return render(request, "policies/page.html", told, status=422 if "said" in told else 200)


CREATED = "The policy is there. It withholds nothing until it is stopped."


def kinds_of(workspace: Workspace) -> QuerySet[Any, Any]:
    """The kinds that are registered, for the form to offer."""
    kinds: QuerySet[Any, Any] = workspace.kinds.order_by("name").values_list("name", flat=True)[:SHOWN]
    return kinds


def create(request: HttpRequest, workspace: Workspace) -> Policy | dict[str, Any]:
    """The new policy; or what the form held, and why there is none."""
    sent = request.POST
    name = words.clean(sent.get("name", ""))[:120]
    access.demand_workspace(actor_of(request), "stop", workspace.pk)
    try:
        match = read_match(sent)
        if not name:
            raise ValueError("Give it a name.")
        return policies.create_policy(
            actor=actor_of(request), workspace_id=workspace.pk, name=name, match=match
        )
    except ValidationError as error:
        said = [str(one["msg"]).removeprefix("Value error, ") for one in error.errors()[:5]]
    except PolicyTaken:
        said = [
            "A policy of this name is there, with another match. A policy never changes: give a new name."
        ]
    except ValueError as error:
        said = [str(error)]
    typed = {name: sent.get(name, "") for name in ("name", "labels", "kinds")}
    return {"said": said, "typed": typed | {"classes": sent.getlist("classes")}}


def read_match(sent: QueryDict) -> Match:
    """Labels a line each (`tag = payments`), kinds a line each, classes as ticked. Raises ValueError."""
    labels = {}
    for line in [text for text in sent.get("labels", "").splitlines() if text.strip()][:LINES]:
        name, equals, value = line.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise ValueError(f"Write a label as name = value, not “{words.brief(line)}”.")
        labels[name.strip()] = value.strip()
    kinds = [line.strip() for line in sent.get("kinds", "").splitlines() if line.strip()]
    return Match(labels=labels, kinds=tuple(kinds), classes=tuple(sent.getlist("classes")))  # type: ignore[arg-type]


class PolicyPage:
    """One policy: its match, the runs under it that have not ended, and its stops. Bounded queries."""

    def __init__(self, policy: Policy, now: Any) -> None:
        self.policy = policy
        (self.row,) = policy_rows([policy])
        live = policies.matching_runs(policy).exclude(status__in=FINAL)
        self.live: QuerySet[Run] = live
        self.total = live[: COUNTED + 1].count()
        self.runs = list(live.select_related("session").order_by("-pk")[:RUNS])
        stops = StopRequest.objects.filter(policy=policy, scope=ScopeKind.POLICY).order_by("-number")
        self.stops: list[StopRow] = rows_of(stops[:STOPS], now)

    @property
    def counted(self) -> str:
        return at_most(self.total)

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
