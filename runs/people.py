"""Who may come in: the verbs that give tokens and memberships, and take them away. All on record.

Each locks the workspace's row, asks the actor's right under that lock, and leaves its line on the
workspace's stream. Lines name people and tokens by id; no line holds a secret, a name or an address.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from django.contrib.auth.hashers import make_password
from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from . import access
from .access import Actor, NotFound, demand_workspace
from .evidence import Line, record
from .models import Membership, Role, Run, Token, User, Workspace
from .store import Now, after, verb

DAY_S = 86_400


class MayNotCome(ValueError):
    """This can't be done. Nothing was changed."""

    def __str__(self) -> str:
        return type(self).__doc__ or ""


class LastAdmin(MayNotCome):
    """A workspace keeps at least one admin: make someone else an admin first."""


class AlreadyMember(MayNotCome):
    """This person is a member already: change the role in the list."""


class Inactive(MayNotCome):
    """This account was switched off by the staff of this installation, who alone can open it again."""


class NoAddress(MayNotCome):
    """This is not an e-mail address."""


class NoRole(MayNotCome):
    """There is no such role."""


@dataclass(frozen=True)
class Added:
    """A new member. `password` is shown once; empty when the account was there and keeps its own."""

    member: Membership
    password: str


def _administered(actor: Actor, workspace_id: str) -> Workspace:
    """The workspace, locked, for whoever may administer it. Raises NotFound, NotAllowed."""
    locked = Workspace.objects.select_for_update(no_key=True)
    workspace = locked.filter(pk=workspace_id).first()
    if workspace is None:
        raise NotFound("workspace")
    demand_workspace(actor, "admin", workspace_id)
    return workspace


# tokens -----------------------------------------------------------------------------------------


@verb
def issue_token(
    *,
    actor: Actor,
    workspace_id: str,
    name: str,
    scopes: list[str],
    run: Run | None = None,
    days: float | None = 90,
) -> tuple[Token, str]:
    """A new token and its text, which is kept nowhere and can't be shown again.

    `run` binds it to one run of the workspace. Raises NotFound, NotAllowed; ValueError for unknown scopes.
    """
    access.check_scopes(scopes)
    workspace = _administered(actor, workspace_id)
    minted = access.mint()
    token = Token.objects.create(
        workspace=workspace,
        run=run,
        name=name,
        lookup=minted.lookup,
        digest=minted.digest,
        scopes=scopes,
        created_by=actor.user,
        expires_at=after(days * DAY_S) if days else None,
    )
    told = {"token": token.pk, "scopes": scopes, "run": run.pk if run else None, "days": days}
    record(workspace, Line("token.issued", actor.id, told))
    return Token.objects.get(pk=token.pk), minted.text


@verb
def revoke_token(*, actor: Actor, workspace_id: str, token_id: str) -> Token:
    """Nobody gets in with it from the commit on. Again changes nothing. Raises NotFound, NotAllowed."""
    workspace = _administered(actor, workspace_id)
    tokens = Token.objects.filter(pk=token_id, workspace=workspace)
    if tokens.filter(revoked_at__isnull=True).update(revoked_at=Now()):
        record(workspace, Line("token.revoked", actor.id, {"token": token_id}))
    found = tokens.first()
    if found is None:
        raise NotFound("token")
    return found


# members ----------------------------------------------------------------------------------------


def add_member(*, actor: Actor, workspace_id: str, email: str, role: str, name: str = "") -> Added:
    """A person by e-mail address; one that is new here gets a password for the first sign-in.

    Raises NotFound, NotAllowed, MayNotCome.
    """
    try:
        validate_email(email.strip())
    except ValidationError as error:
        raise NoAddress from error
    password = secrets.token_urlsafe(12)
    # Hashing takes a while on purpose; the workspace's lock does not wait for it.
    return _add_member(
        actor, workspace_id, email.strip().lower(), role, name, password, make_password(password)
    )


@verb
def _add_member(
    actor: Actor, workspace_id: str, email: str, role: str, name: str, password: str, hashed: str
) -> Added:
    workspace = _administered(actor, workspace_id)
    first = {"name": name, "password": hashed, "password_once": True}
    user, new = User.objects.get_or_create(email=email, defaults=first)
    if not new and _is_free(user):
        User.objects.filter(pk=user.pk).update(password=hashed)
        new = True
    return Added(enrol(actor, workspace, user, role), password if new else "")


def _is_free(user: User) -> bool:
    """Whether nobody ever signed in to this account and it opens nothing: it may get a new first password."""
    return user.password_once and user.last_login is None and not user.memberships.exists()


@verb
def change_role(*, actor: Actor, workspace_id: str, user_id: int, role: str) -> Membership:
    """Another role from the next request on. Raises NotFound, NotAllowed, MayNotCome."""
    workspace = _administered(actor, workspace_id)
    return give_role(actor, workspace, _member(workspace, user_id), role)


@verb
def remove_member(*, actor: Actor, workspace_id: str, user_id: int) -> None:
    """The workspace does not exist for this person from the next request on. The account stays.

    Raises NotFound, NotAllowed, LastAdmin.
    """
    workspace = _administered(actor, workspace_id)
    dismiss(actor, workspace, _member(workspace, user_id))


def _member(workspace: Workspace, user_id: int) -> Membership:
    found: Membership | None = Membership.objects.filter(workspace=workspace, user_id=user_id).first()
    if found is None:
        raise NotFound("member")
    return found


# moves: for a caller that holds the workspace's lock ----------------------------------------------


def enrol(actor: Actor, workspace: Workspace, user: User, role: str) -> Membership:
    """A new membership and its line. Raises MayNotCome."""
    _check_role(role)
    if not user.is_active:
        raise Inactive
    member, new = Membership.objects.get_or_create(user=user, workspace=workspace, defaults={"role": role})
    if not new:
        raise AlreadyMember
    record(workspace, Line("member.added", actor.id, {"member": f"user:{user.pk}", "role": role}))
    return member


def give_role(actor: Actor, workspace: Workspace, member: Membership, role: str) -> Membership:
    """Another role and its line; the same role again leaves none. Raises MayNotCome."""
    _check_role(role)
    was = member.role
    if was == role:
        return member
    if role != Role.ADMIN:
        _keep_an_admin(workspace, member)
    Membership.objects.filter(pk=member.pk).update(role=role)
    told = {"member": f"user:{member.user_id}", "role": role, "was": was}
    record(workspace, Line("member.changed", actor.id, told))
    return Membership.objects.get(pk=member.pk)


def dismiss(actor: Actor, workspace: Workspace, member: Membership) -> None:
    """The end of a membership and its line. Raises LastAdmin."""
    _keep_an_admin(workspace, member)
    Membership.objects.filter(pk=member.pk).delete()
    told = {"member": f"user:{member.user_id}", "was": member.role}
    record(workspace, Line("member.removed", actor.id, told))


def _check_role(role: str) -> None:
    if role not in Role.values:
        raise NoRole


def _keep_an_admin(workspace: Workspace, member: Membership) -> None:
    """Whether the workspace has an admin besides this one, who can sign in. Raises LastAdmin."""
    admins = Membership.objects.filter(workspace=workspace, role=Role.ADMIN, user__is_active=True)
    if member.role == Role.ADMIN and not admins.exclude(pk=member.pk).exists():
        raise LastAdmin
