"""Releasing a stop that stands: a decision with its reason, which opens the gate and starts nothing.

It waits until every run of the scope was reached, so that no run from before finds the gate open at its old
version. Where the rules ask for it a second person decides with the first; never so for a stop.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

from . import scopes
from .access import SYSTEM, Actor, NotAllowed, NotFound, person, rights
from .evidence import Line, record
from .models import Gate, Release, StopRequest, User, Workspace
from .presses import RELEASED, close
from .rules import rules_of
from .saying import words_in
from .scopes import RESTORED, Scope
from .store import Now, alongside, database_time, verb

log = logging.getLogger(__name__)
END_DATE = "its end date"


class NoReason(ValueError):
    """A release needs a reason. Nothing was changed."""


class NotStanding(ValueError):
    """This stop holds nothing any more, or never stood. Nothing was changed."""


class NotFenced(ValueError):
    """Its runs are still being fenced. Release it once each was reached. Nothing was changed."""

    def __init__(self, done: int = 0, total: int = 0) -> None:
        super().__init__(f"Still being fenced: {done} of {total}. Nothing was changed.")
        self.done, self.total = done, total


class SamePerson(ValueError):
    """You asked for this release: a second person has to grant it. Nothing was changed."""


class TwoPeople(NotAllowed):
    """Two people release a stop here, each signed in; a token is nobody. Nothing was changed."""


class InThePast(ValueError):
    """That moment is over: a review lies ahead. Nothing was changed."""


@dataclass(frozen=True)
class Released:
    """The gate is open, or the stop that only observed has ended; nothing was started."""

    stop: StopRequest
    release: Release


@dataclass(frozen=True)
class Asked:
    """The first of two people wants it released; the gate stays shut until a second one grants it."""

    stop: StopRequest
    release: Release


def release(*, actor: Actor, stop_id: str, reason: str) -> Released | Asked:
    """Open the gate that this stop holds shut, or end its observation. Starts nothing: paused runs stay
    paused, runs may be admitted.

    Under the rule `release_by_two` the first person only asks. After a restore this is for an admin. Raises
    NotFound, NotAllowed, NoReason, NotStanding, NotFenced, SamePerson, TwoPeople.
    """
    answer = _release(actor, stop_id, words_in(reason))
    _close_if_over(answer)
    return answer


@verb
def _release(actor: Actor, stop_id: str, reason: str) -> Released | Asked:
    workspace, scope, stop = _locked(stop_id)
    right = "admin" if stop.via == RESTORED else "release"
    scopes.demand(actor, right, workspace.pk, "stop")
    if not reason:
        raise NoReason
    _demand_standing(stop)
    _demand_fenced(stop)
    if stop.observes or not rules_of(workspace.pk).release_by_two:
        return _by_one(workspace, scope, stop, actor, reason)
    return _by_two(workspace, scope, stop, actor, right, reason)


def release_with_all(*, actor: Actor, stop_id: str, reason: str) -> None:
    """The part of one workspace in a release of all of them, whose right was asked for there (everywhere.py).

    Where two people release, it is the wish of the first; somebody else's wish is left alone.
    Raises NotFenced.
    """
    answer = _release_with_all(actor, stop_id, reason)
    if answer is not None:
        _close_if_over(answer)


@verb
def _release_with_all(actor: Actor, stop_id: str, reason: str) -> Released | Asked | None:
    workspace, scope, stop = _locked(stop_id)
    if stop.released_at is not None or stop.superseded_by_id is not None:
        return None
    _demand_fenced(stop)
    if not rules_of(workspace.pk).release_by_two:
        return _by_one(workspace, scope, stop, actor, reason)
    return None if open_wish(stop) else _ask(workspace, stop, actor, reason)


def _locked(stop_id: str) -> tuple[Workspace, Scope, StopRequest]:
    found = StopRequest.objects.filter(pk=stop_id).first()
    if found is None:
        raise NotFound("stop")
    if found.scope not in scopes.MODELS:
        raise NotStanding
    workspace, scope = scopes.lock(scopes.target_of(found))
    return workspace, scope, StopRequest.objects.get(pk=stop_id)


def _demand_standing(stop: StopRequest) -> None:
    if stop.released_at is not None or stop.superseded_by_id is not None:
        raise NotStanding


def _demand_fenced(stop: StopRequest) -> None:
    if stop.observes or stop.fenced_at is not None:
        return
    from . import fanout

    progress = fanout.progress(stop)
    raise NotFenced(progress.done, progress.total)


def _by_one(workspace: Workspace, scope: Scope, stop: StopRequest, actor: Actor, reason: str) -> Released:
    """By one, at once; a wish from when the rules asked for two is over with it."""
    lines = scopes.void_wish(stop, actor)
    return _open(workspace, scope, stop, _decided(stop, actor, reason), actor, *lines)


def _decided(stop: StopRequest, actor: Actor, reason: str) -> Release:
    return Release.objects.create(stop=stop, asked_by=actor.id, reason=reason, granted_at=database_time())


# by two -------------------------------------------------------------------------------------------


def _by_two(
    workspace: Workspace, scope: Scope, stop: StopRequest, actor: Actor, right: str, reason: str
) -> Released | Asked:
    if actor.user is None:
        raise TwoPeople
    asked = open_wish(stop)
    if asked is None:
        return _ask(workspace, stop, actor, reason)
    if asked.asked_by == actor.id:
        raise SamePerson
    if not _still_may(asked.asked_by, right, workspace.pk):
        lines = scopes.void_wish(stop, actor)
        return _ask(workspace, stop, actor, reason, *lines)
    rows = Release.objects.filter(pk=asked.pk, granted_at__isnull=True, void_at__isnull=True)
    rows.update(granted_by=actor.id, granted_at=Now())
    return _open(workspace, scope, stop, Release.objects.get(pk=asked.pk), actor, also=reason)


def open_wish(stop: StopRequest) -> Release | None:
    """The release of this stop that waits for its second person, if any."""
    return Release.objects.filter(stop=stop, granted_at__isnull=True, void_at__isnull=True).first()


def _ask(workspace: Workspace, stop: StopRequest, actor: Actor, reason: str, *lines: Line) -> Asked:
    wish = Release.objects.create(stop=stop, asked_by=actor.id, reason=reason)
    record(workspace, *lines, Line("gate.release_asked", actor.id, {"reason": reason}, stop_id=stop.pk))
    return Asked(stop, Release.objects.get(pk=wish.pk))


def _still_may(actor_id: str, right: str, workspace_id: str) -> bool:
    """Whether the first of the two could decide it still: a right is read again when it is used."""
    user = User.objects.filter(pk=actor_id.removeprefix("user:")).first()
    return user is not None and right in rights(person(user), workspace_id)


# the end of it ------------------------------------------------------------------------------------


def _open(
    workspace: Workspace,
    scope: Scope,
    stop: StopRequest,
    decision: Release,
    actor: Actor,
    *lines: Line,
    also: str = "",
) -> Released:
    """Open the gate under its lock, with the evidence; its epoch stays, so runs from before stay refused."""
    told: dict[str, Any] = {"reason": decision.reason, "epoch": scope.epoch, **scopes.named(scope)}
    if decision.granted_by:
        told |= {"asked_by": decision.asked_by, "granted_by": decision.granted_by, "and": also}
    if not stop.observes:
        rows: Any = type(scope)._default_manager.filter(pk=scope.pk)
        rows.update(gate=Gate.OPEN)
    StopRequest.objects.filter(pk=stop.pk).update(released_at=database_time())
    kind = "observation.ended" if stop.observes else "gate.released"
    opened = Line(kind, actor.id, told, stop_id=stop.pk)
    record(workspace, *lines, opened, *_closed_at_once(stop, actor))
    return Released(StopRequest.objects.get(pk=stop.pk), decision)


def _closed_at_once(stop: StopRequest, actor: Actor) -> list[Line]:
    """What only observed has no runs whose ends it could wait for."""
    if not stop.observes:
        return []
    close(stop, RELEASED)
    return [Line("stop.closed", actor.id, {"because": RELEASED}, stop_id=stop.pk)]


def _close_if_over(answer: Released | Asked) -> None:
    """After the commit: at once where no run of it is open; the sweep closes the others."""
    if isinstance(answer, Asked) or answer.stop.closed_at is not None:
        return
    from . import fanout

    try:
        with alongside(lambda result: None):  # the caller's answer is that of the release
            fanout.close_if_over(answer.stop.pk)
    except Exception:
        log.exception("stop %s is released and not closed yet; the sweep does it", answer.stop.pk)


# its review, its end date -------------------------------------------------------------------------


@verb
def extend(*, actor: Actor, stop_id: str, review_at: datetime) -> StopRequest:
    """Look at a standing stop again at another moment. For whoever may stop here.

    Raises NotFound, NotAllowed, NotStanding, InThePast.
    """
    workspace, _, stop = _locked(stop_id)
    scopes.demand(actor, "stop", workspace.pk, "stop")
    _demand_standing(stop)
    if review_at <= database_time():
        raise InThePast
    StopRequest.objects.filter(pk=stop.pk).update(review_at=review_at)
    told = {"was": stop.review_at.isoformat() if stop.review_at else "", "now": review_at.isoformat()}
    record(workspace, Line("gate.extended", actor.id, told, stop_id=stop.pk))
    return StopRequest.objects.get(pk=stop.pk)


def over(limit: int = 100) -> list[str]:
    """Ids of standing stops whose end date has passed, and that may be released: the sweep does it."""
    return list(_over().order_by("ends_at").values_list("pk", flat=True)[:limit])


def _over() -> QuerySet[StopRequest]:
    rows = StopRequest.objects.filter(scopes.in_force(), ends_at__lte=database_time())
    return rows.filter(Q(fenced_at__isnull=False) | Q(observes=True))


def end(stop_id: str) -> Released | None:
    """Release a stop at the end date that was set when it was pressed; again changes nothing."""
    answer = _end(stop_id)
    if answer is not None:
        _close_if_over(answer)
    return answer


@verb
def _end(stop_id: str) -> Released | None:
    workspace, scope, _ = _locked(stop_id)
    stop = _over().filter(pk=stop_id).first()
    if stop is None:
        return None
    return _by_one(workspace, scope, stop, SYSTEM, END_DATE)
