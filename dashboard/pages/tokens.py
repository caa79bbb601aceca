"""Tokens of agents: their list; for admins a new one, whose text is shown once, and the end of one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.db.models import Case, IntegerField, Q, Value, When
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods

from dashboard import words
from dashboard.pages.shell import actor_of, address, build_shell, signed_in, workspace_of
from runs import access, people
from runs.models import Token, Workspace

SHOWN = 100
DAYS = ((30, "30 days"), (90, "90 days"), (365, "one year"))
SCOPES = {
    "runs:write": "register runs, steps and effects, and report on them",
    "runs:read": "read runs, evidence and reports",
    "stop:write": "stop any run of this workspace",
    "resume:write": "resume a paused run, and decide that a failed step is tried again",
    "kinds:write": "register effect kinds",
    "notices:write": "manage the endpoints of notices",
    "rules:write": "change the rules of this workspace",
    "gate:write": "shut this workspace’s gate, and release it",
}
PRESET = {"runs:write", "runs:read", "stop:write"}


@dataclass(frozen=True)
class TokenRow:
    """A token as a page shows it: never its text."""

    token: Token
    state: str

    @property
    def in_force(self) -> bool:
        return self.state == "in force"


@dataclass(frozen=True)
class Wanted:
    """The form's content; `errors` are sentences, empty when a token may be made of it."""

    name: str
    scopes: list[str]
    days: int
    errors: list[str]


def read(sent: QueryDict) -> Wanted:
    """What was asked for, with a sentence for each thing that can't be."""
    name = words.clean(sent.get("name", ""))[:120]
    scopes = [scope for scope in sent.getlist("scopes") if scope in SCOPES]
    days = next((days for days, _ in DAYS if str(days) == sent.get("days")), 90)
    errors = [] if name else ["Give the token a name: it is how you will know it again."]
    errors += [] if scopes else ["Choose at least one thing that the token may do."]
    return Wanted(name, scopes, days, errors)


TAKEN = "A token of this name is in force; its text is not shown again. Choose another name, or revoke it."


class TokenList:
    """The tokens of a workspace that match `q`: those in force, then the rest, newest first."""

    def __init__(self, workspace: Workspace, now: datetime, q: str) -> None:
        self.q = q.replace("\0", "")[:200]
        tokens = Token.objects.filter(workspace=workspace).select_related("created_by")
        if self.q:
            tokens = tokens.filter(Q(name__icontains=self.q) | Q(lookup=self.q.removeprefix("als_")[:8]))
        over = When(Q(revoked_at__isnull=False) | Q(expires_at__lte=now), then=Value(1))
        found = tokens.order_by(Case(over, default=Value(0), output_field=IntegerField()), "-pk")
        self.rows = [TokenRow(token, state_of(token, now)) for token in found[:SHOWN]]
        self.total = tokens.count()


def state_of(token: Token, now: datetime) -> str:
    """`in force`, `revoked` or `expired`."""
    if token.revoked_at:
        return "revoked"
    return "expired" if token.expires_at and token.expires_at <= now else "in force"


@never_cache
@require_http_methods(["GET", "POST"])
@signed_in
@sensitive_variables()
def tokens_page(request: HttpRequest) -> HttpResponse:
    """GET /tokens : the list. POST: a new token, by an admin; its text stands in this answer only."""
    workspace = workspace_of(request)
    told: dict[str, Any] = {}
    status = 200
    if request.method == "POST":
        access.demand_workspace(actor_of(request), "admin", workspace.pk)
        told["wanted"] = wanted = read(request.POST)
        if access.live_tokens().filter(workspace=workspace, name=wanted.name).exists():
            wanted.errors.append(TAKEN)  # also what a reloaded answer gets: one press, one token
        told["text"] = "" if wanted.errors else issue(workspace, wanted, request)
        status = 422 if wanted.errors else 201
    shell = build_shell(request, "tokens", workspace)
    told |= {"shell": shell, "now": shell.now, "scopes": SCOPES, "days": DAYS, "preset": PRESET}
    told["list"] = TokenList(workspace, shell.now, request.GET.get("q", ""))
    told["origin"] = request.build_absolute_uri("/").rstrip("/")
    return render(request, "tokens/page.html", told, status=status)


def issue(workspace: Workspace, wanted: Wanted, request: HttpRequest) -> str:
    """The text of a new token."""
    _, text = people.issue_token(
        actor=actor_of(request),
        workspace_id=workspace.pk,
        name=wanted.name,
        scopes=wanted.scopes,
        days=wanted.days,
    )
    return text


@never_cache
@require_http_methods(["GET", "POST"])
@signed_in
def revoke_page(request: HttpRequest, token_id: str) -> HttpResponse:
    """/tokens/<id>/revoke : GET says what it would mean, POST revokes; for admins."""
    workspace = workspace_of(request)
    access.demand_workspace(actor_of(request), "admin", workspace.pk)
    token = Token.objects.filter(pk=token_id, workspace=workspace).first()
    if token is None:
        raise Http404
    if request.method == "POST":
        people.revoke_token(actor=actor_of(request), workspace_id=workspace.pk, token_id=token_id)
        name = words.clean(token.name)
        messages.info(request, f"Token “{name}” is revoked. Whoever shows it is refused from now on.")
        return redirect(address("tokens", workspace))
    shell = build_shell(request, "tokens", workspace)
    row = TokenRow(token, state_of(token, shell.now))
    return render(request, "tokens/revoke.html", {"shell": shell, "now": shell.now, "row": row})
