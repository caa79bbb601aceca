"""Accounts at providers: the verbs that add, change, rotate and remove them, and what our calls show.

A credential goes to the exact origin of its account and to no other; where the origin changes it is gone.
No line, no page and no answer holds one; a secret stands in the answer that made it, and nowhere else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from runs import redaction
from runs.access import Actor, NotFound, demand_workspace
from runs.evidence import Line, record
from runs.models import Workspace
from runs.store import Now, database_time, verb

from . import outbound, reads, signing
from .models import Account, Kind

MOST = 50  # accounts of one workspace
HEADER = "Authorization"
NAMED = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,59}")
# What a call says of itself; a credential in their place would make another call of it.
OURS = re.compile(
    r"host|connection|content-.*|transfer-.*|accept.*|user-agent|idempotency-key|expect|upgrade|te|trailer"
    r"|proxy-.*|webhook-.*",
    re.IGNORECASE,
)
SHORTEST, LONGEST = 8, 4_000  # characters of a credential


class BadAccount(ValueError):
    """A field of this account can't be used. Nothing was changed."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}")
        self.field, self.why = field, why


class TooMany(ValueError):
    """A workspace has at most 50 accounts. Nothing was changed."""


class InUse(ValueError):
    """A kind names this account. Give the kind another one first; nothing was changed."""


@dataclass(frozen=True)
class New:
    """An account as it is put. `credential`: None leaves the one that is there, "" takes it away."""

    origin: str = ""
    header: str = HEADER
    credential: str | None = None
    reads: dict[str, Any] | None = None


@dataclass(frozen=True)
class Put:
    """The account as it stands. `secret` is told only where one was made by this very call."""

    account: Account
    secret: str = ""
    created: bool = False


# verbs ----------------------------------------------------------------------------------------------


def _locked(actor: Actor, workspace_id: str) -> Workspace:
    """The workspace, locked, for whoever may manage its kinds. Raises NotFound, NotAllowed."""
    workspace = Workspace.objects.select_for_update(no_key=True).filter(pk=workspace_id).first()
    if workspace is None:
        raise NotFound("workspace")
    demand_workspace(actor, "kinds", workspace_id)
    return workspace


def _found(workspace: Workspace, account_id: str) -> Account:
    account: Account | None = Account.objects.filter(pk=account_id, workspace=workspace).first()
    if account is None:
        raise NotFound("account")
    return account


def _told(workspace: Workspace, what: str, actor: Actor, account: Account, **more: Any) -> None:
    told = {"account": account.pk, "name": account.name, **more}
    record(workspace, Line(f"account.{what}", actor.id, told))


@verb
def put_account(*, actor: Actor, workspace_id: str, name: str, new: New) -> Put:
    """A new account with its first secret, or other facts for the one with this name.

    Another origin takes the credential away, unless this call brings one: it was given for the first.
    Raises NotFound, NotAllowed, BadAccount, TooMany.
    """
    new = checked(new)
    workspace = _locked(actor, workspace_id)
    known: Account | None = Account.objects.filter(workspace=workspace, name=name).first()
    return _add(workspace, actor, name, new) if known is None else _change(workspace, actor, known, new)


def _add(workspace: Workspace, actor: Actor, name: str, new: New) -> Put:
    if Account.objects.filter(workspace=workspace).count() >= MOST:
        raise TooMany
    kept, secret = signing.first()
    if new.credential and not new.origin:
        raise BadAccount("origin", "A credential is sent to one place alone: say which")
    made = Account.objects.create(
        workspace=workspace,
        name=name,
        origin=new.origin,
        header=new.header,
        credential=_sealed(new.credential),
        reads=new.reads or {},
        secrets=kept,
    )
    _told(workspace, "added", actor, made, origin=new.origin, credential=bool(new.credential))
    return Put(_found(workspace, made.pk), secret, created=True)


def _sealed(credential: str | None) -> str:
    return signing.seal(credential) if credential else ""


def _change(workspace: Workspace, actor: Actor, known: Account, new: New) -> Put:
    wanted: dict[str, Any] = {"origin": new.origin, "header": new.header}
    if new.reads is not None:
        wanted["reads"] = new.reads
    changed = {name: value for name, value in wanted.items() if getattr(known, name) != value}
    if new.credential is not None:
        changed["credential"] = _sealed(new.credential)
    elif "origin" in changed and known.credential:
        changed["credential"] = ""
    if changed.get("credential") and not new.origin:
        raise BadAccount("origin", "A credential is sent to one place alone: say which")
    if changed:
        moved = {"moved_at": Now()} if _moves(known, changed, new) else {}
        Account.objects.filter(pk=known.pk).update(updated_at=Now(), **moved, **changed)
        now = _found(workspace, known.pk)
        told: dict[str, Any] = {"changed": sorted(changed), "origin": now.origin}
        _told(workspace, "changed", actor, now, **told, credential=bool(now.credential))
    return Put(_found(workspace, known.pk))


def _moves(known: Account, changed: dict[str, Any], new: New) -> bool:
    """Whether our calls go elsewhere by this change, or show something else: what is not found there from
    then on says nothing of what was sent before. The same credential, given again, is no other one."""
    if "origin" in changed or "header" in changed:
        return True
    return "credential" in changed and _shown_by(known) != (new.credential or "")


def _shown_by(account: Account) -> str | None:
    """Its credential; None: it can't be read any more."""
    try:
        return signing.unseal(account.credential) if account.credential else ""
    except signing.Unreadable:
        return None


@verb
def rotate_secret(*, actor: Actor, workspace_id: str, account_id: str) -> Put:
    """A new secret. Those before are taken too for a day, so that no webhook is lost meanwhile."""
    workspace = _locked(actor, workspace_id)
    account = _found(workspace, account_id)
    kept, secret = signing.rotated(account.secrets, database_time())
    Account.objects.filter(pk=account.pk).update(secrets=kept, updated_at=Now())
    _told(workspace, "rotated", actor, account)
    return Put(_found(workspace, account.pk), secret)


@verb
def end_old_secrets(*, actor: Actor, workspace_id: str, account_id: str) -> Account:
    """Only the newest secret is taken from now on: for one that became known to others."""
    workspace = _locked(actor, workspace_id)
    account = _found(workspace, account_id)
    Account.objects.filter(pk=account.pk).update(secrets=account.secrets[-1:], updated_at=Now())
    _told(workspace, "old_secrets_ended", actor, account)
    return _found(workspace, account.pk)


@verb
def remove(*, actor: Actor, workspace_id: str, account_id: str) -> None:
    """The account, its credential, its secrets and its list of webhooks are gone; what they settled stays.

    Raises NotFound, NotAllowed, InUse.
    """
    workspace = _locked(actor, workspace_id)
    account = _found(workspace, account_id)
    if Kind.objects.filter(workspace=workspace, account=account.name).exists():
        raise InUse(account.name)
    told = Account(pk=account.pk, name=account.name)
    account.delete()
    _told(workspace, "removed", actor, told)


def live(account: Account) -> int:
    """How many of its secrets are in force now."""
    return len(signing.live(account.secrets, database_time()))


# what no account may be -----------------------------------------------------------------------------


def checked(new: New) -> New:
    """The account with its origin in full. Raises BadAccount, which names the field."""
    if not NAMED.fullmatch(new.header) or OURS.fullmatch(new.header):
        raise BadAccount("header", "This header can't carry a credential")
    _check_credential(new.credential or "")
    if new.reads:
        try:
            reads.check(new.reads)
        except reads.BadReads as error:
            raise BadAccount(f"reads.{error.field}", error.why) from error
    return replace(new, origin=_origin(new.origin) if new.origin else "")


def _check_credential(credential: str) -> None:
    if credential and not SHORTEST <= len(credential) <= LONGEST:
        raise BadAccount("credential", f"It should have {SHORTEST} to {LONGEST} characters")
    if credential != credential.strip() or not all(sign.isprintable() for sign in credential):
        raise BadAccount("credential", "It holds characters that can't stand in a header")


def _origin(text: str) -> str:
    try:
        target = outbound.target_of(text)
    except outbound.Refused as error:
        raise BadAccount("origin", f"It can't be called: {error}") from error
    if target.path != "/" or "#" in text:
        raise BadAccount("origin", "Give scheme, host and port alone")
    if target.scheme != "https" and target.origin not in outbound.exempt_origins():
        raise BadAccount("origin", "Only https is called, and the origins in ALLSTOP_OUTBOUND_ORIGINS")
    return target.origin


# what our calls show --------------------------------------------------------------------------------


def of_kind(kind: Kind) -> Account | None:
    """The account that a kind names, in its own workspace."""
    if not kind.account:
        return None
    rows = Account.objects.filter(workspace_id=kind.workspace_id, name=kind.account)
    found: Account | None = rows.first()
    return found


def credential_for(kind: Kind, url: str) -> dict[str, str]:
    """The header that a call of this kind to this address shows: none, or that of the kind's account.

    Only where scheme, host and port are exactly those of the account. Raises outbound.Refused where the
    credential can't be read any more: a call without it would be another call.
    """
    account = of_kind(kind)
    if account is None or not account.credential or outbound.target_of(url).origin != account.origin:
        return {}
    try:
        return {account.header: signing.unseal(account.credential)}
    except signing.Unreadable as error:
        raise outbound.Refused("the credential of its account can't be read; give it anew") from error


def call(kind: Kind, request: outbound.Request, ready: Callable[[], None] = lambda: None) -> outbound.Answer:
    """`outbound.call` with the credential of the kind's account; what comes back holds nothing of it.

    A provider may repeat what it was shown, and answers are kept. Raises as `outbound.call` does.
    """
    shown = credential_for(kind, request.url)
    answer = outbound.call(replace(request, headers={**request.headers, **shown}), ready)
    return replace(answer, body=without(answer.body, shown))


def without(body: bytes, shown: dict[str, str]) -> bytes:
    """The bytes of an answer without the credentials that were shown, plain or as JSON writes them."""
    for value in shown.values():
        for part in (value, value.rpartition(" ")[2]):  # `Bearer abc` is often repeated as `abc`
            for text in (part, json.dumps(part)[1:-1]):
                if len(text) >= SHORTEST:
                    body = body.replace(text.encode(), redaction.marker("credential", part).encode())
    return body
