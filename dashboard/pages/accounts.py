"""Accounts at providers, for admins: where their credential goes, their secrets, their newest webhooks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.db.models import Count, Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods, require_safe

from dashboard import words
from dashboard.pages.shell import actor_of, address, build_shell, signed_in, workspace_of
from effects import accounts, signing
from effects.models import Account, Compensation, Effect, Inbound, Kind
from runs import access
from runs.models import Workspace

SHOWN = 20
BECAME = {
    "settled": "settled",
    "recorded": "evidence only",
    "waiting": "waiting",
    "unread": "not read",
    "expired": "nobody’s",
}
MEANS = {
    "settled": "It changed what is known of the effect.",
    "recorded": "It is kept as evidence, and changed nothing.",
    "waiting": "Its effect is not there or not ready yet; it waits for a day.",
    "unread": "No effect key, or no word that says what happened, was found in it.",
    "expired": "No effect with this key came within a day.",
}


@dataclass(frozen=True)
class Row:
    """An account in the list: its kinds, its secrets in force and its webhooks that wait."""

    account: Account
    kinds: list[str]
    secrets: int
    waiting: int


@dataclass(frozen=True)
class Told:
    """One webhook: what it said, what it became, and the run of the effect that it met."""

    inbound: Inbound
    became: str
    means: str
    run_id: str


def _allowed(request: HttpRequest) -> Workspace:
    workspace = workspace_of(request)
    access.demand_workspace(actor_of(request), "kinds", workspace.pk)
    return workspace


def rows_of(workspace: Workspace, now: datetime) -> list[Row]:
    """By name; two queries."""
    waiting = Count("inbound", filter=Q(inbound__became="waiting"))
    found = Account.objects.filter(workspace=workspace).annotate(waiting=waiting).order_by("name")
    named = Kind.objects.filter(workspace=workspace).exclude(account="").order_by("name")
    kinds: dict[str, list[str]] = {}
    for account, kind in named.values_list("account", "name"):
        kinds.setdefault(account, []).append(kind)
    return [
        Row(one, kinds.get(one.name, []), len(signing.live(one.secrets, now)), one.waiting) for one in found
    ]


def told_of(account: Account) -> list[Told]:
    """The newest webhooks; three queries."""
    rows = list(Inbound.objects.filter(account=account).defer("body").order_by("-pk")[:SHOWN])
    ids = [row.subject_id for row in rows if row.subject_id]
    runs: dict[str, str] = {}
    for model in (Effect, Compensation):
        runs.update(model.objects.filter(pk__in=ids).values_list("pk", "run_id"))
    return [Told(row, BECAME[row.became], MEANS[row.became], runs.get(row.subject_id, "")) for row in rows]


def ends_of(account: Account, now: datetime) -> list[str | None]:
    """The end of each secret in force, newest first; None for the one without an end."""
    live = [one["until"] for one in signing.live(account.secrets, now)]
    return [until and f"{until[:16].replace('T', ' ')}" for until in reversed(live)]


@never_cache
@require_safe
@signed_in
def accounts_page(request: HttpRequest) -> HttpResponse:
    """GET /accounts : the accounts of the workspace; for admins."""
    workspace = _allowed(request)
    shell = build_shell(request, "notices", workspace)
    told = {"shell": shell, "now": shell.now, "rows": rows_of(workspace, shell.now)}
    return render(request, "accounts/page.html", told)


Done = tuple[dict[str, Any], str]


def _rotate(actor: access.Actor, ids: dict[str, str]) -> Done:
    put = accounts.rotate_secret(actor=actor, workspace_id=ids["workspace_id"], account_id=ids["account_id"])
    return {"secret": put.secret}, ""


def _end_old(actor: access.Actor, ids: dict[str, str]) -> Done:
    accounts.end_old_secrets(actor=actor, **ids)
    return {}, "Only the newest secret is taken from now on."


DO: dict[str, Callable[[access.Actor, dict[str, str]], Done]] = {"rotate": _rotate, "end-old": _end_old}


@never_cache
@require_http_methods(["GET", "POST"])
@signed_in
@sensitive_variables()
def account_page(request: HttpRequest, account_id: str) -> HttpResponse:
    """/accounts/<id> : GET shows it and its newest webhooks; POST does one of DO; for admins."""
    workspace = _allowed(request)
    find(workspace, account_id)
    told: dict[str, Any] = {}
    if request.method == "POST":
        do = DO.get(request.POST.get("do", ""))
        if do is None:
            raise Http404
        told, said = do(actor_of(request), {"workspace_id": workspace.pk, "account_id": account_id})
        if not told:
            messages.info(request, said)
            return redirect(reverse("account", args=[account_id], query={"workspace": workspace.slug}))
    account = find(workspace, account_id)
    shell = build_shell(request, "notices", workspace)
    named = Kind.objects.filter(workspace=workspace, account=account.name).order_by("name")
    told |= {"shell": shell, "now": shell.now, "account": account, "shown": SHOWN}
    told |= {"kinds": list(named.values_list("name", flat=True)), "log": told_of(account)}
    told |= {"ends": ends_of(account, shell.now), "hook": request.build_absolute_uri(f"/hooks/{account.pk}")}
    return render(request, "accounts/account.html", told)


def find(workspace: Workspace, account_id: str) -> Account:
    """The account, if it is of this workspace."""
    account: Account | None = Account.objects.filter(pk=account_id, workspace=workspace).first()
    if account is None:
        raise Http404
    return account


@require_http_methods(["GET", "POST"])
@signed_in
def remove_page(request: HttpRequest, account_id: str) -> HttpResponse:
    """/accounts/<id>/remove : GET says what it would mean, POST removes; for admins."""
    workspace = _allowed(request)
    account = find(workspace, account_id)
    named = {"workspace_id": workspace.pk, "account_id": account_id}
    if request.method == "POST":
        try:
            accounts.remove(actor=actor_of(request), **named)
        except accounts.InUse:
            messages.error(request, "A kind names this account. Give the kind another one first.")
            return redirect(reverse("account", args=[account_id], query={"workspace": workspace.slug}))
        messages.info(request, f"Account “{words.clean(account.name)}” is removed, with its credential.")
        return redirect(address("accounts", workspace))
    shell = build_shell(request, "notices", workspace)
    kinds = list(
        Kind.objects.filter(workspace=workspace, account=account.name).values_list("name", flat=True)
    )
    told = {"shell": shell, "now": shell.now, "account": account, "kinds": kinds}
    return render(request, "accounts/remove.html", told)
