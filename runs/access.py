"""Who may do what: roles of people, scopes of tokens. Asked again inside each verb."""

from __future__ import annotations

import binascii
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Q, QuerySet, Subquery

from .models import Membership, Role, Run, Token, User, Workspace
from .store import Now


class NotFound(LookupError):
    """There is no such thing here, or you may not know of it: the same answer for both."""


class NotAllowed(PermissionError):
    """You may see this, but not do that to it. `workspace_id`: where, as far as it is known."""

    workspace_id = ""


def _denied(action: str, workspace_id: str) -> NotAllowed:
    denied = NotAllowed(action)
    denied.workspace_id = workspace_id
    return denied


ROLE_MAY: dict[str, frozenset[str]] = {
    Role.VIEWER: frozenset({"read"}),
    Role.OPERATOR: frozenset({"read", "sign", "stop", "resume", "resolve", "demo"}),
    Role.REVIEWER: frozenset({"read", "sign", "stop", "resume", "resolve", "demo", "approve", "release"}),
    Role.ADMIN: frozenset(
        {"read", "sign", "stop", "resume", "resolve", "demo", "approve", "release", "admin"}
        | {"kinds", "rules", "notices"}
    ),
}
SCOPE_MAY: dict[str, frozenset[str]] = {
    "runs:read": frozenset({"read"}),
    "runs:write": frozenset({"read", "write"}),
    "stop:write": frozenset({"read", "stop"}),
    "resume:write": frozenset({"read", "resume"}),
    "kinds:write": frozenset({"read", "kinds"}),
    "rules:write": frozenset({"read", "rules"}),
    "notices:write": frozenset({"read", "notices"}),
    "gate:write": frozenset({"read", "stop", "release"}),
}


@dataclass(frozen=True)
class Actor:
    """Who acts: a person, a token or the system; `id` is what evidence keeps."""

    id: str
    user: User | None = None
    token: Token | None = None
    via: str = "api"
    address: str = ""


DRILLS = "drills"  # the slug of the workspace in which drills run: nobody's first one
SYSTEM = Actor("system", via="system")
EXECUTOR = Actor("system:executor", via="system")  # our own runtime, when it claims, sends and reports
SET_UP = Actor("system:set-up", via="system")  # whoever holds the machine: commands, demo, seeds
OURS: dict[str, tuple[Actor, frozenset[str]]] = {
    SYSTEM.id: (SYSTEM, frozenset({"read", "write", "stop"})),
    EXECUTOR.id: (EXECUTOR, frozenset({"read", "write", "stop"})),
    SET_UP.id: (SET_UP, frozenset({"admin", "kinds", "rules"})),
}


def person(user: User, address: str = "") -> Actor:
    """A signed-in person on a page."""
    return Actor(f"user:{user.pk}", user=user, via="page", address=address)


def staff(user: User, address: str = "") -> Actor:
    """Someone who runs this installation, in its own admin: they manage who may come in, everywhere."""
    return Actor(f"user:{user.pk}", user=user, via="staff", address=address)


def agent(token: Token, address: str = "") -> Actor:
    """An agent that showed its token."""
    return Actor(f"token:{token.pk}", token=token, via="api", address=address)


def rights(actor: Actor, workspace_id: str) -> frozenset[str]:
    """What the actor may do in the workspace, read afresh; empty means: it does not exist."""
    if actor.token is not None:
        token = live_tokens().filter(pk=actor.token.pk, workspace_id=workspace_id).first()
        return _of_scopes(token.scopes) if token else frozenset()
    if actor.user is not None and actor.via == "staff":
        runs_it = User.objects.filter(pk=actor.user.pk, is_active=True, is_staff=True)
        return frozenset({"admin"}) if runs_it.exists() else frozenset()
    if actor.user is not None:
        member = Membership.objects.filter(
            user_id=actor.user.pk, user__is_active=True, workspace_id=workspace_id
        ).first()
        return ROLE_MAY[member.role] if member else frozenset()
    ours, theirs = OURS.get(actor.id, (None, frozenset[str]()))
    return theirs if actor is ours else frozenset()  # the very object: an id alone is forged too easily


def _of_scopes(scopes: list[str]) -> frozenset[str]:
    return frozenset().union(*(SCOPE_MAY.get(scope, frozenset()) for scope in scopes))


def may(actor: Actor, action: str, run: Run) -> bool:
    """Whether the actor may do this to this run. Raises NotFound when it may not know of it."""
    return _may(actor, action, run, rights(actor, run.workspace_id))


def _may(actor: Actor, action: str, run: Run, allowed: frozenset[str]) -> bool:
    bound = actor.token.run_id if actor.token else None
    if not allowed or (bound is not None and bound != run.pk):
        raise NotFound("run")
    if bound is not None and action == "resume":
        return False  # what is held must not let itself go on
    owns = actor.user is not None and run.owner_id == actor.user.pk
    return action in allowed or (owns and action == "stop")


def granted(actor: Actor, workspace_id: str) -> dict[str, Subquery]:
    """A token's scopes as they are now, to be read in a statement that is made anyway."""
    if actor.token is None:
        return {}
    mine = live_tokens().filter(pk=actor.token.pk, workspace_id=workspace_id)
    return {"granted": Subquery(mine.values("scopes")[:1])}


def demand_granted(actor: Actor, action: str, run: Run, seen: Mapping[str, Any]) -> None:
    """As `demand`, from what `granted` read; others than tokens are asked for here."""
    if actor.token is None:
        demand(actor, action, run)
    elif not _may(actor, action, run, _of_scopes(seen["granted"] or [])):
        raise _denied(action, run.workspace_id)


def demand(actor: Actor, action: str, run: Run) -> None:
    """As `may`, raising NotAllowed instead of answering False."""
    if not may(actor, action, run):
        raise _denied(action, run.workspace_id)


def demand_workspace(actor: Actor, action: str, workspace_id: str) -> None:
    """Raises NotFound for outsiders, NotAllowed for members without that right.

    A token that is bound to one run may only read here.
    """
    allowed = rights(actor, workspace_id)
    if not allowed:
        raise NotFound("workspace")
    bound = actor.token is not None and actor.token.run_id is not None
    if action not in allowed or (bound and action != "read"):
        raise _denied(action, workspace_id)


def find_run(actor: Actor, run_id: str, action: str = "read") -> Run:
    """The run, for those who may do this to it; else NotFound or, for readers, NotAllowed."""
    run: Run | None = Run.objects.select_related("workspace", "session", "owner").filter(pk=run_id).first()
    if run is None:
        raise NotFound("run")
    demand(actor, action, run)
    return run


def can_read_run(user: User, run_id: str) -> bool:
    """Whether this person may read this run now."""
    return Membership.objects.filter(
        user_id=user.pk, user__is_active=True, workspace__runs__pk=run_id
    ).exists()


def can_read_workspace(user: User, workspace_id: str) -> bool:
    """Whether this person is a member of this workspace now."""
    return Membership.objects.filter(
        user_id=user.pk, user__is_active=True, workspace_id=workspace_id
    ).exists()


def workspaces_of(user: User) -> list[Workspace]:
    """The person's workspaces, by name; that of drills last."""
    found = Workspace.objects.filter(memberships__user_id=user.pk).order_by("name", "pk")
    return sorted(found, key=lambda workspace: workspace.slug == DRILLS)


@dataclass(frozen=True)
class Minted:
    """A token's text, and the two parts of it that are kept."""

    lookup: str
    digest: str
    text: str


def mint() -> Minted:
    """256 random bits as a token's text."""
    lookup, secret = secrets.token_hex(4), secrets.token_hex(32)
    return Minted(lookup, _digest(secret), f"als_{lookup}_{secret}_{_check(lookup + secret)}")


def check_scopes(scopes: list[str]) -> None:
    """Raises ValueError unless there are scopes, all of them known."""
    unknown = set(scopes) - set(SCOPE_MAY)
    if unknown or not scopes:
        raise ValueError(f"scopes are {', '.join(SCOPE_MAY)}; not: {', '.join(sorted(unknown))}")


def live_tokens() -> QuerySet[Token]:
    """Tokens neither revoked nor expired, by the database's clock."""
    return Token.objects.filter(revoked_at__isnull=True).filter(
        Q(expires_at__isnull=True) | Q(expires_at__gt=Now())
    )


def token_of(text: str) -> Token | None:
    """The live token with this text, compared in constant time; else None."""
    parts = text.split("_")
    if len(parts) != 4 or parts[0] != "als" or _check(parts[1] + parts[2]) != parts[3]:
        return None
    token = live_tokens().filter(lookup=parts[1]).first()
    if token is None or not hmac.compare_digest(token.digest, _digest(parts[2])):
        return None
    return token


def note_use(token: Token) -> None:
    """Keep when a token was last used, at most once a minute."""
    Token.objects.filter(pk=token.pk).filter(
        Q(last_used_at__isnull=True) | Q(last_used_at__lt=Now() - timedelta(minutes=1))
    ).update(last_used_at=Now())


def note_first_use(token: Token) -> bool:
    """Keep that a token was used for the first time; False when it was used before."""
    unused = Token.objects.filter(pk=token.pk, last_used_at__isnull=True)
    return bool(unused.update(last_used_at=Now()))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _check(text: str) -> str:
    return f"{binascii.crc32(text.encode()):08x}"
