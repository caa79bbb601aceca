"""Who gets notices: the verbs that add, change, rotate and remove endpoints, and the wishes of people.

Each change of an endpoint is asked under the workspace's lock and leaves its line there. No line and no
answer but the first holds a secret; no line holds an address, whose path is often a secret itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db import transaction

from effects import signing
from effects.deliveries import check_url
from runs import wake
from runs.access import Actor, NotFound, demand_workspace
from runs.evidence import Line, record
from runs.models import User, Workspace
from runs.store import Now, database_time, verb

from . import postings
from .models import Endpoint, Event, NoMail, Notice, Posting, Subscription
from .outbox import TELL, body_of
from .sending import give_up_waiting

MOST = 50  # endpoints of one workspace
EVENTS = [str(event) for event in Event if event != Event.TEST]


class CantBeDone(ValueError):
    """This can't be done. Nothing was changed."""

    def __str__(self) -> str:
        return type(self).__doc__ or ""


class NoSuchEvent(CantBeDone):
    """There is no such event. Nothing was changed."""


class TooMany(CantBeDone):
    """A workspace has at most 50 endpoints. Nothing was changed."""


class IsOff(CantBeDone):
    """This endpoint is off: turn it on first. Nothing was sent."""


@dataclass(frozen=True)
class Put:
    """The endpoint as it stands. `secret` is told only where one was made by this very call."""

    endpoint: Endpoint
    secret: str = ""
    created: bool = False


def _locked(actor: Actor, workspace_id: str) -> Workspace:
    """The workspace, locked, for whoever may manage its endpoints. Raises NotFound, NotAllowed."""
    workspace = Workspace.objects.select_for_update(no_key=True).filter(pk=workspace_id).first()
    if workspace is None:
        raise NotFound("workspace")
    demand_workspace(actor, "notices", workspace_id)
    return workspace


def live(endpoint: Endpoint) -> int:
    """How many of its secrets sign now."""
    return len(signing.live(endpoint.secrets, database_time()))


def _found(workspace: Workspace, endpoint_id: str) -> Endpoint:
    endpoint: Endpoint | None = Endpoint.objects.filter(pk=endpoint_id, workspace=workspace).first()
    if endpoint is None:
        raise NotFound("endpoint")
    return endpoint


def _told(workspace: Workspace, what: str, actor: Actor, endpoint_id: str, **more: Any) -> None:
    record(workspace, Line(f"endpoint.{what}", actor.id, {"endpoint": endpoint_id, **more}))


@verb
def put(*, actor: Actor, workspace_id: str, name: str, url: str, events: list[str]) -> Put:
    """A new endpoint with its secret, or another address or other events for the one with this name.

    Raises NotFound, NotAllowed, BadTarget, NoSuchEvent, TooMany.
    """
    check_url(url)
    if not events or set(events) - set(EVENTS):
        raise NoSuchEvent
    workspace = _locked(actor, workspace_id)
    wanted = {"url": url, "events": sorted(set(events), key=EVENTS.index)}
    known: Endpoint | None = Endpoint.objects.filter(workspace=workspace, name=name).first()
    if known is not None:
        changed = [field for field, value in wanted.items() if getattr(known, field) != value]
        if changed:
            Endpoint.objects.filter(pk=known.pk).update(**wanted)
            _told(workspace, "changed", actor, known.pk, changed=changed, events=wanted["events"])
        return Put(_found(workspace, known.pk))
    return _add(workspace, actor, name, wanted)


def _add(workspace: Workspace, actor: Actor, name: str, wanted: dict[str, Any]) -> Put:
    if Endpoint.objects.filter(workspace=workspace).count() >= MOST:
        raise TooMany
    kept, secret = signing.first()
    made = Endpoint.objects.create(workspace=workspace, name=name, secrets=kept, **wanted)
    _told(workspace, "added", actor, made.pk, events=wanted["events"])
    return Put(_found(workspace, made.pk), secret, created=True)


@verb
def rotate(*, actor: Actor, workspace_id: str, endpoint_id: str) -> Put:
    """A new secret. Those before sign too for a day, so that no receiver misses a notice meanwhile."""
    workspace = _locked(actor, workspace_id)
    endpoint = _found(workspace, endpoint_id)
    kept, secret = signing.rotated(endpoint.secrets, database_time())
    Endpoint.objects.filter(pk=endpoint.pk).update(secrets=kept)
    _told(workspace, "rotated", actor, endpoint.pk)
    return Put(_found(workspace, endpoint.pk), secret)


@verb
def end_old_secrets(*, actor: Actor, workspace_id: str, endpoint_id: str) -> Endpoint:
    """Only the newest secret signs from now on: for one that became known to others."""
    workspace = _locked(actor, workspace_id)
    endpoint = _found(workspace, endpoint_id)
    Endpoint.objects.filter(pk=endpoint.pk).update(secrets=endpoint.secrets[-1:])
    _told(workspace, "old_secrets_ended", actor, endpoint.pk)
    return _found(workspace, endpoint.pk)


@verb
def turn(*, actor: Actor, workspace_id: str, endpoint_id: str, on: bool) -> Endpoint:
    """On, with a clean count; or off: it is told nothing until it is turned on again."""
    workspace = _locked(actor, workspace_id)
    endpoint = _found(workspace, endpoint_id)
    rows = Endpoint.objects.filter(pk=endpoint.pk, off_at__isnull=not on)
    if on:
        clean: dict[str, Any] = {"failures": 0, "failing_since": None, "rest_until": None}
        moved = rows.update(off_at=None, off_because="", **clean)
    else:
        moved = rows.update(off_at=Now(), off_because="an admin turned it off")
        give_up_waiting(endpoint.pk)
    if moved:
        _told(workspace, "turned_on" if on else "turned_off", actor, endpoint.pk)
    return _found(workspace, endpoint.pk)


@verb
def remove(*, actor: Actor, workspace_id: str, endpoint_id: str) -> None:
    """The endpoint, its secrets and its log are gone; what happened stays in the evidence."""
    workspace = _locked(actor, workspace_id)
    endpoint = _found(workspace, endpoint_id)
    endpoint.delete()
    _told(workspace, "removed", actor, endpoint_id)


@verb
def test(*, actor: Actor, workspace_id: str, endpoint_id: str) -> Posting:
    """Send this endpoint a notice that says it is a test. Raises IsOff."""
    workspace = _locked(actor, workspace_id)
    endpoint = _found(workspace, endpoint_id)
    if endpoint.off_at:
        raise IsOff
    notice = Notice.objects.create(workspace=workspace, event=Event.TEST, told_at=Now())
    notice.refresh_from_db()
    Notice.objects.filter(pk=notice.pk).update(body=body_of(notice))
    Endpoint.objects.filter(pk=endpoint.pk).update(rest_until=None)
    posting = Posting.objects.create(notice=notice, endpoint=endpoint, next_at=Now())
    _wake()
    return Posting.objects.select_related("notice").get(pk=posting.pk)


@verb
def send_again(*, actor: Actor, workspace_id: str, posting_id: str) -> Posting:
    """Send a notice to its endpoint once more, under the same id. Raises NotFound, IsOff."""
    workspace = _locked(actor, workspace_id)
    rows = Posting.objects.filter(pk=posting_id, endpoint__workspace=workspace)
    posting: Posting | None = rows.select_related("endpoint").first()
    if posting is None or posting.endpoint is None:
        raise NotFound("posting")
    if posting.endpoint.off_at:
        raise IsOff
    postings.queue_again(posting)
    _told(workspace, "sent_again", actor, posting.endpoint.pk, notice=posting.notice_id)
    _wake()
    return Posting.objects.get(pk=posting.pk)


def _wake() -> None:
    transaction.on_commit(partial(wake.run_soon, TELL), robust=True)


# people -----------------------------------------------------------------------------------------------------


@verb
def subscribe(*, actor: Actor, workspace_id: str, events: list[str]) -> None:
    """Which events of this workspace a member wants by e-mail; none ends it. Raises NotFound, NoSuchEvent."""
    demand_workspace(actor, "read", workspace_id)
    if set(events) - set(EVENTS) or actor.user is None:
        raise NoSuchEvent
    wanted = {"events": sorted(set(events), key=EVENTS.index)}
    Subscription.objects.update_or_create(user=actor.user, workspace_id=workspace_id, defaults=wanted)


@verb
def switch_mail(*, user: User, on: bool) -> None:
    """A person's own switch for all e-mail of Allstop, in every workspace."""
    if on:
        NoMail.objects.filter(user=user).delete()
    else:
        NoMail.objects.get_or_create(user=user)
