"""The API of accounts at providers. All of it needs the scope kinds:write, reading too.

An account is put by its name, so a call whose answer was lost can be repeated. A secret stands in the answer
that made it and is kept nowhere else; a credential is in no answer at all.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from ninja import Router
from pydantic import AfterValidator, Field, StringConstraints

from runs import cursors, problems
from runs.access import Actor, NotFound, demand_workspace
from runs.api import READ, WRITE, Cursor, Limit
from runs.fields import In, Out, ShortKey, known, sized, visible
from runs.idempotency import reply, send
from runs.problems import invalid
from runs.schemas import Nothing, Page, ProblemOut
from runs.tokens import actor_of, home_of, spaces_of

from . import accounts
from .accounts import BadAccount, New
from .models import Account, Inbound
from .schemas import storable

problems.NAMES.update({accounts.TooMany: "too-many-accounts", accounts.InUse: "account-in-use"})
router = Router(by_alias=True)


class AccountIn(In):
    """An account: the one origin that its credential goes to, and how its webhooks are read.

    `credential` left out stays as it is, "" takes it away; another origin takes it away too, unless one comes
    with it. `reads`: {key_path, verdict_path, happened, did_not, partly, ref_path, items_path, count_path,
    job_path, jobs}.
    """

    origin: Annotated[str, sized(300), AfterValidator(visible), known] = ""
    header: Annotated[str, sized(60, 1), AfterValidator(visible), known] = accounts.HEADER
    credential: Annotated[str, StringConstraints(strict=True, max_length=accounts.LONGEST)] | None = None
    reads: Annotated[dict[str, Any], AfterValidator(storable)] | None = Field(default=None)


class AccountOut(Out):
    """An account. `webhook`: where its provider sends to. Neither credential nor secrets are told."""

    id: str
    name: str
    origin: str
    header: str
    has_credential: bool
    reads: dict[str, Any]
    secrets_in_force: int
    webhook: str
    created_at: datetime
    updated_at: datetime


class AccountAnswer(Out):
    """The account; `secret` only where this very call made one."""

    account: AccountOut
    secret: str | None


class AccountsOut(Page):
    """A page of accounts."""

    items: list[AccountOut]


class WebhookOut(Out):
    """A webhook that was genuine, and what it became: settled · recorded · waiting · unread · expired."""

    id: str
    message_id: str
    effect_key: str
    verdict: str
    became: str
    subject_id: str
    digest: str
    sent_at: datetime
    received_at: datetime
    applied_at: datetime | None


class WebhooksOut(Page):
    """A page of webhooks."""

    items: list[WebhookOut]


def account_out(account: Account) -> dict[str, Any]:
    """An account on the wire."""
    derived = {
        "has_credential": bool(account.credential),
        "secrets_in_force": accounts.live(account),
        "webhook": f"/hooks/{account.pk}",
    }
    told = {name: getattr(account, name) for name in AccountOut.model_fields if name not in derived}
    return AccountOut.model_validate(told | derived).wire()


def _workspace(actor: Actor) -> str:
    """The workspace whose accounts the caller may manage: a token's own, a person's first such one."""
    for workspace_id in [home_of(actor)] if actor.token else spaces_of(actor):
        demand_workspace(actor, "kinds", workspace_id)
        return workspace_id
    raise NotFound("workspace")


def _named(actor: Actor, name: str) -> Account:
    account: Account | None = Account.objects.filter(workspace_id=_workspace(actor), name=name).first()
    if account is None:
        raise NotFound("account")
    return account


def _ids(account: Account) -> dict[str, str]:
    return {"workspace_id": account.workspace_id, "account_id": account.pk}


def _answer(put: accounts.Put) -> HttpResponse:
    told = {"account": account_out(put.account), "secret": put.secret or None}
    return send(reply(201 if put.created else 200, told))


@router.put("/accounts/{name}", response={200: AccountAnswer, 201: AccountAnswer, WRITE: ProblemOut})
def put_account(request: HttpRequest, name: ShortKey, body: AccountIn) -> HttpResponse:
    """Add an account at a provider, or change it. The first answer alone holds its secret."""
    actor, new = actor_of(request), New(**body.model_dump())
    try:
        put = accounts.put_account(actor=actor, workspace_id=_workspace(actor), name=name, new=new)
    except BadAccount as error:
        raise invalid(error.field, error.why) from error
    return _answer(put)


@router.get("/accounts", response={200: AccountsOut, READ: ProblemOut})
def list_accounts(request: HttpRequest, cursor: Cursor = "", limit: Limit = 50) -> HttpResponse:
    """The accounts of the workspace, newest first."""
    rows = Account.objects.filter(workspace_id=_workspace(actor_of(request)))
    found, after = cursors.page(rows, cursor, limit)
    return send(reply(200, cursors.listed([account_out(one) for one in found], after)))


@router.get("/accounts/{name}", response={200: AccountOut, READ: ProblemOut})
def read_account(request: HttpRequest, name: ShortKey) -> HttpResponse:
    """One account, without its credential and its secrets."""
    return send(reply(200, account_out(_named(actor_of(request), name))))


@router.post("/accounts/{name}/rotate", response={200: AccountAnswer, WRITE: ProblemOut})
def rotate_account_secret(request: HttpRequest, name: ShortKey, body: Nothing) -> HttpResponse:
    """A new secret, in this answer only. Those before are taken too for 24 hours."""
    actor = actor_of(request)
    return _answer(accounts.rotate_secret(actor=actor, **_ids(_named(actor, name))))


@router.post("/accounts/{name}/end-old-secrets", response={200: AccountOut, WRITE: ProblemOut})
def end_old_account_secrets(request: HttpRequest, name: ShortKey, body: Nothing) -> HttpResponse:
    """Only the newest secret is taken from now on."""
    actor = actor_of(request)
    done = accounts.end_old_secrets(actor=actor, **_ids(_named(actor, name)))
    return send(reply(200, account_out(done)))


@router.delete("/accounts/{name}", response={204: None, WRITE: ProblemOut})
def remove_account(request: HttpRequest, name: ShortKey) -> HttpResponse:
    """Remove it, with its credential, its secrets and its list of webhooks, unless a kind names it."""
    actor = actor_of(request)
    accounts.remove(actor=actor, **_ids(_named(actor, name)))
    return HttpResponse(status=204)


@router.get("/accounts/{name}/webhooks", response={200: WebhooksOut, READ: ProblemOut})
def list_webhooks(
    request: HttpRequest, name: ShortKey, cursor: Cursor = "", limit: Limit = 50
) -> HttpResponse:
    """What came from it in the last 30 days and was genuine, newest first."""
    rows = Inbound.objects.filter(account=_named(actor_of(request), name)).defer("body")
    found, after = cursors.page(rows, cursor, limit)
    told = [WebhookOut.model_validate(one, from_attributes=True).wire() for one in found]
    return send(reply(200, cursors.listed(told, after)))
