"""Erasing a person: who they were is gone, what was done stays, by an id that nobody can read a name from.

Lines of evidence, verdicts, sign-offs and approvals hold ids, so none of them changes: two people stay two
people. Gone are the name, the address, the memberships, tokens, sessions and wishes for mail, and every body
and free text in which the full name or the e-mail address stands. An issued report never changes: it holds
ids where people act; a note that was quoted in it before stays as it was issued (docs/retention.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from django.apps import apps
from django.contrib.sessions.models import Session
from django.db import models, transaction
from django.db.models import Q

from dashboard.notices.models import NoMail, Posting, Subscription
from dashboard.retention import OPEN_EFFECTS, OPEN_REPAIRS
from effects.models import Attachment, Care, Compensation, Effect, Resolution, Settlement
from runs.access import Actor, NotFound
from runs.columns import Prose, Words
from runs.evidence import Line, record
from runs.models import FINAL, EvidencePayload, Membership, Token, User, Workspace
from runs.store import Now, verb

NOBODY = "a person who was erased"
REMOVED = f"[removed with {NOBODY}]"
UNDER = "erasure of a person"
AT_ONCE = 500
SHORTEST = 5  # letters of a name that is looked for in texts: shorter ones are words, too


# Words that we give them, not their own: a person may be called like one.
OURS = frozenset({"requested_mode", "content_type"})


class CannotErase(ValueError):
    """You can't erase yourself. Nothing was changed."""


class StillOpen(CannotErase):
    """Open effects or compensations name them; settle or decide those first. Nothing was changed."""


@dataclass
class Erased:
    """What an erasure comes to: numbers only, so that it can be told."""

    person: str
    memberships: int = 0
    tokens: int = 0
    bodies: int = 0
    texts: dict[str, int] = field(default_factory=dict)


def is_erased(user: User) -> bool:
    return user.email == _address(user)


def _address(user: User) -> str:
    return f"erased-{user.pk}@invalid.invalid"


def find(person: str) -> User:
    """By id or e-mail address. Raises NotFound."""
    named = Q(email=person.strip().lower())
    if person.isascii() and person.isdigit() and len(person) < 16:
        named |= Q(pk=int(person))
    user = User.objects.filter(named).first()
    if user is None:
        raise NotFound("person")
    return user


def preview(user: User) -> Erased:
    """How much names them, and what would end; nothing is changed."""
    told = Erased(f"user:{user.pk}")
    told.memberships = Membership.objects.filter(user=user).count()
    told.tokens = Token.objects.filter(created_by=user, revoked_at__isnull=True).count()
    told.bodies = _bodies(user).count()
    found = ((name, rows.count()) for name, _, rows in _texts(user))
    told.texts = {name: count for name, count in found if count}
    return told


def erase(*, actor: Actor, user_id: int) -> Erased:
    """Erase a person, texts first and the name last, in batches: if it dies on the way, do it again.

    Who may do it is the caller's to ask: a superuser's page, or whoever holds the machine. Raises NotFound,
    CannotErase, StillOpen.
    """
    user = User.objects.filter(pk=user_id).first()
    if user is None:
        raise NotFound("person")
    if actor.user is not None and actor.user.pk == user_id:
        raise CannotErase(user_id)
    told = preview(user)
    if any(rows.exists() for rows in _open(user)):
        raise StillOpen(user_id)
    while _empty_bodies(user):
        pass
    for _, column, rows in list(_texts(user)):
        while _blank(rows, column):
            pass
    _end_sessions(user)
    _erase_person(actor, user)
    return told


# what names them ----------------------------------------------------------------------------------


def _names(user: User) -> list[str]:
    """What is looked for in texts: the address, and the full name where it is long enough to be one."""
    names = [user.email] if not is_erased(user) else []
    return names + ([user.name] if len(user.name) >= SHORTEST and user.name != NOBODY else [])


def _naming(user: User, column: str) -> Q:
    told = Q(pk__in=[])
    for name in _names(user):
        told |= Q(**{f"{column}__icontains": name})
    return told


def _bodies(user: User) -> models.QuerySet[EvidencePayload]:
    found = Q()
    for name in _names(user):
        found |= Q(body__icontains=name)
    rows = EvidencePayload.objects.filter(removed_at__isnull=True)
    return rows.filter(found) if found else rows.none()


def _texts(user: User) -> Iterator[tuple[str, str, models.QuerySet[Any]]]:
    """(what, column, rows) of everything else that somebody typed and in which they are named."""
    for model in apps.get_models():
        for column in model._meta.concrete_fields:
            if isinstance(column, Words | Prose) and model is not User and column.name not in OURS:
                rows = model._default_manager.filter(_naming(user, column.name))
                yield f"{model._meta.verbose_name}: {column.name}", column.name, _still_there(rows)


def _open(user: User) -> Iterator[models.QuerySet[Any]]:
    """What names them and is still to be approved, sent or found out: an approval is bound to its words."""
    resting = Q(settlement=Settlement.DECLARED, run__status__in=FINAL)
    effects = Effect.objects.filter(settlement__in=OPEN_EFFECTS).exclude(resting)
    for rows in (effects, Compensation.objects.filter(state__in=OPEN_REPAIRS)):
        words = [column for column in rows.model._meta.concrete_fields if isinstance(column, Words | Prose)]
        named = Q(pk__in=[])
        for column in words:
            named |= _naming(user, column.name)
        yield rows.filter(named)


def _still_there(rows: models.QuerySet[Any]) -> models.QuerySet[Any]:
    return rows.filter(removed_at__isnull=True) if rows.model is Attachment else rows


@verb
def _empty_bodies(user: User) -> int:
    keys = list(_bodies(user).order_by("pk").values_list("pk", flat=True)[:AT_ONCE])
    gone = {"body": "", "removed_at": Now(), "removed_under": UNDER}
    return EvidencePayload.objects.filter(pk__in=keys).update(**gone) if keys else 0


@verb
def _blank(rows: models.QuerySet[Any], column: str) -> int:
    """The whole text goes: what is left of a sentence without its name often still tells who it was."""
    keys = list(rows.order_by("pk").values_list("pk", flat=True)[:AT_ONCE])
    if not keys:
        return 0
    mine = rows.model._default_manager.filter(pk__in=keys)
    if rows.model is Attachment:
        gone = {"text": "", "content": b"", "file_name": NOBODY, "removed_at": Now(), "removed_under": UNDER}
    else:
        gone = {column: REMOVED}
    return int(mine.update(**gone))


# the person ---------------------------------------------------------------------------------------


@verb
def _erase_person(actor: Actor, user: User) -> None:
    """The row keeps its id and loses everything else; one line in each workspace that knew them."""
    for workspace in _places(user):
        record(workspace, Line("person.erased", actor.id, {"person": f"user:{user.pk}"}))
    Membership.objects.filter(user=user).delete()
    Token.objects.filter(created_by=user, revoked_at__isnull=True).update(revoked_at=Now())
    Care.objects.filter(person=user).update(person=None, taken_at=None)
    for model in (Subscription, NoMail, Posting):
        model._default_manager.filter(user=user).delete()
    _forget_addresses(user)
    user.set_unusable_password()
    User.objects.filter(pk=user.pk).update(
        name=NOBODY,
        email=_address(user),
        password=user.password,
        is_active=False,
        is_staff=False,
        is_superuser=False,
        last_login=None,
    )


def _places(user: User) -> Iterable[Workspace]:
    known = Q(memberships__user=user) | Q(tokens__created_by=user)
    judged = Resolution.objects.filter(Q(person=user) | Q(second=user)).values("workspace_id")
    ids = Workspace.objects.filter(known | Q(pk__in=judged)).values_list("pk", flat=True).distinct()
    return Workspace.objects.select_for_update(no_key=True).filter(pk__in=list(ids)).order_by("pk")


def _forget_addresses(user: User) -> None:
    """What the sign-in and the installation's own admin remember of them."""
    for label in ("account.EmailAddress", "admin.LogEntry"):
        apps.get_model(label)._default_manager.filter(user_id=user.pk).delete()


def _end_sessions(user: User) -> None:
    """Theirs are found by what is in them; any that is left is refused with the next request."""
    for session in Session.objects.iterator(AT_ONCE):
        if str(session.get_decoded().get("_auth_user_id")) == str(user.pk):
            with transaction.atomic():
                session.delete()
