"""A one-time link: whoever holds the machine lets a person in, once, within minutes. On record.

The link is signed and kept nowhere. It names the person's last sign-in as it was when the link was made;
any sign-in moves that on, so the link works once, and never after the person has come in otherwise.
"""

from __future__ import annotations

from datetime import datetime

from django.core import signing
from django.db.models import QuerySet

from .access import SET_UP, Actor, NotFound
from .evidence import Line, record
from .models import User, Workspace
from .store import Now, verb

LASTS_S = 600
SALT = "allstop.sign-in"
IN_VAIN = "This link is over: it was used, is older than ten minutes, or the person came in otherwise since."


@verb
def make_link(*, email: str) -> tuple[User, str]:
    """The person with this address, and the text of a link for them. For whoever holds the machine.

    Raises NotFound for an unknown address or an account that was switched off.
    """
    user = User.objects.filter(email=email.strip().lower(), is_active=True).first()
    if user is None:
        raise NotFound("person")
    _on_record(user, SET_UP, "link.issued")
    last = user.last_login.isoformat() if user.last_login else ""
    return user, signing.dumps([user.pk, last], salt=SALT)


def person_of_link(text: str) -> User | None:
    """Whom the link would let in now; None when it is over. Looking uses nothing up."""
    try:
        user_id, last = signing.loads(text, salt=SALT, max_age=LASTS_S)
    except (signing.BadSignature, ValueError):
        return None
    return _not_in_since(user_id, datetime.fromisoformat(last) if last else None).first()


def _not_in_since(user_id: int, last: datetime | None) -> QuerySet[User]:
    """The person, unless they came in after that moment, or may not come in at all."""
    people = User.objects.filter(pk=user_id, is_active=True)
    return people.filter(last_login=last) if last else people.filter(last_login__isnull=True)


@verb
def use_link(*, text: str, address: str) -> User | None:
    """Use it up: of two that come with the same link one gets in, and the other gets None."""
    user = person_of_link(text)
    if user is None:
        return None
    _lock(user)
    same = User.objects.filter(pk=user.pk, is_active=True)
    same = (
        same.filter(last_login=user.last_login) if user.last_login else same.filter(last_login__isnull=True)
    )
    if not same.update(last_login=Now()):
        return None
    actor = Actor(f"user:{user.pk}", user=user, via="page", address=address)
    _on_record(user, actor, "link.used")
    return User.objects.get(pk=user.pk)


def _lock(user: User) -> list[Workspace]:
    mine = Workspace.objects.select_for_update(no_key=True).filter(memberships__user=user)
    return list(mine.order_by("pk"))


def _on_record(user: User, actor: Actor, kind: str) -> None:
    """On the stream of each workspace that the person belongs to."""
    for workspace in _lock(user):
        record(workspace, Line(kind, actor.id, {"member": f"user:{user.pk}"}))
