"""Tokens of agents: their list, and a new one whose text is shown once and kept nowhere."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from dashboard import words
from dashboard.pages.shell import build_shell, person_of, signed_in, workspace_of
from runs import access
from runs.models import Token, Workspace

SHOWN = 100
DAYS = ((30, "30 days"), (90, "90 days"), (365, "one year"))
SCOPES = {
    "runs:write": "register runs, steps and effects, and report on them",
    "runs:read": "read runs, evidence and reports",
    "stop:write": "stop any run of this workspace",
    "kinds:write": "register effect kinds",
}
PRESET = {"runs:write", "runs:read", "stop:write"}


@dataclass(frozen=True)
class TokenRow:
    """A token as a page shows it: never its text."""

    token: Token
    state: str


@dataclass(frozen=True)
class Wanted:
    """The form's content; `errors` are sentences, empty when a token may be made of it."""

    name: str
    scopes: list[str]
    days: int
    errors: list[str]


def scopes_for(may: frozenset[str]) -> dict[str, str]:
    """The scopes that this person may give away: never more than a token of the role needs."""
    if "stop" not in may:
        return {}
    return {scope: told for scope, told in SCOPES.items() if scope != "kinds:write" or "kinds" in may}


def read(sent: QueryDict, allowed: dict[str, str]) -> Wanted:
    """What was asked for, with a sentence for each thing that can't be."""
    name = words.clean(sent.get("name", ""))[:120]
    scopes = [scope for scope in sent.getlist("scopes") if scope in allowed]
    days = next((days for days, _ in DAYS if str(days) == sent.get("days")), 90)
    errors = [] if name else ["Give the token a name: it is how you will know it again."]
    errors += [] if scopes else ["Choose at least one thing that the token may do."]
    return Wanted(name, scopes, days, errors)


def rows(workspace: Workspace, now: datetime) -> list[TokenRow]:
    """The newest tokens of a workspace."""
    tokens = Token.objects.filter(workspace=workspace).select_related("created_by").order_by("-pk")
    return [TokenRow(token, state_of(token, now)) for token in tokens[:SHOWN]]


def state_of(token: Token, now: datetime) -> str:
    """`in force`, `revoked` or `expired`."""
    if token.revoked_at:
        return "revoked"
    return "expired" if token.expires_at and token.expires_at <= now else "in force"


@never_cache
@require_http_methods(["GET", "POST"])
@signed_in
def tokens_page(request: HttpRequest) -> HttpResponse:
    """GET /tokens : the list and the form. POST: a new token; its text stands in this answer only."""
    workspace = workspace_of(request)
    shell = build_shell(request, "tokens", workspace)
    allowed = scopes_for(shell.may)
    told: dict[str, Any] = {
        "shell": shell,
        "now": shell.now,
        "allowed": allowed,
        "days": DAYS,
        "preset": PRESET,
    }
    status = 200
    if request.method == "POST":
        if not allowed:
            raise PermissionDenied
        told["wanted"] = wanted = read(request.POST, allowed)
        told["text"] = "" if wanted.errors else issue(workspace, wanted, request)
        status = 422 if wanted.errors else 201
    told["rows"] = rows(workspace, shell.now)
    told["origin"] = request.build_absolute_uri("/").rstrip("/")
    return render(request, "tokens.html", told, status=status)


def issue(workspace: Workspace, wanted: Wanted, request: HttpRequest) -> str:
    """The text of a new token."""
    _, text = access.issue_token(
        workspace=workspace,
        name=wanted.name,
        scopes=wanted.scopes,
        created_by=person_of(request),
        days=wanted.days,
    )
    return text
