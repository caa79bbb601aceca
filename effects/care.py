"""Who looks after an unknown, and that people are told when it is overdue: lines in its run's stream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from runs.access import ROLE_MAY, SYSTEM, Actor, NotAllowed, NotFound, demand
from runs.evidence import Line, record
from runs.guard import lock_run
from runs.models import Membership, Run, User
from runs.store import Now, database_time, verb

from .models import Care
from .unknowns import UNKNOWN, Unknown, due_of, find, row_of, state_of
from .verdicts import NotResolved

MAY_RESOLVE = [role for role, rights in ROLE_MAY.items() if "resolve" in rights]


def take(*, actor: Actor, subject_id: str) -> Unknown | NotResolved:
    """Look after it from now on. Refused while somebody else does. Raises NotFound, NotAllowed."""
    why = _take(actor, subject_id)
    return NotResolved(why) if why else find(subject_id, actor)


@verb
def _take(actor: Actor, subject_id: str) -> str:
    run, matter, row = _locked(actor, subject_id)
    if actor.user is None:
        return "token"
    care = _care_of(run, matter, subject_id)
    if care.person_id not in (None, actor.user.pk):
        return "taken"
    if care.person_id is None:
        _give_to(run, row, care, actor, actor.user)
    return ""


def give_back(*, actor: Actor, subject_id: str) -> Unknown | NotResolved:
    """Look after it no more. Raises NotFound, NotAllowed."""
    why = _give_back(actor, subject_id)
    return NotResolved(why) if why else find(subject_id, actor)


@verb
def _give_back(actor: Actor, subject_id: str) -> str:
    run, _, row = _locked(actor, subject_id)
    care = Care.objects.filter(pk=subject_id).first()
    if actor.user is None or care is None or care.person_id != actor.user.pk:
        return "not_taken"
    _give_to(run, row, care, actor, None)
    return ""


def assign_many(*, actor: Actor, subject_ids: Iterable[str], person_id: int | None) -> dict[str, str]:
    """Have a member look after each (None: nobody): id → "" or a key of WHY_NOT ("not_found" too)."""
    return {one: each_one(_assign, actor, one, person_id) for one in dict.fromkeys(subject_ids)}


@verb
def _assign(actor: Actor, subject_id: str, person_id: int | None) -> str:
    run, matter, row = _locked(actor, subject_id)
    if actor.user is None:
        return "token"
    person = None if person_id is None else _member(run, person_id)
    if person_id is not None and person is None:
        return "no_member"
    care = _care_of(run, matter, subject_id)
    if care.person_id != person_id:
        _give_to(run, row, care, actor, person)
    return ""


def _member(run: Run, person_id: int) -> User | None:
    """The person, if they may resolve what is unknown there."""
    here = {"workspace_id": run.workspace_id, "role__in": MAY_RESOLVE, "user__is_active": True}
    found = Membership.objects.filter(user_id=person_id, **here).select_related("user").first()
    return found.user if found else None


def each_one(work: Any, actor: Actor, subject_id: str, *more: Any) -> str:
    """One of several: what it came to, also where it may not be seen or touched."""
    try:
        said: str = work(actor, subject_id, *more)
    except NotFound:
        return "not_found"
    except NotAllowed:
        return "not_allowed"
    return said


def _locked(actor: Actor, subject_id: str) -> tuple[Run, str, Any]:
    run = lock_run(row_of(subject_id)[1].run_id)
    demand(actor, "resolve", run)
    return run, *row_of(subject_id)


def _care_of(run: Run, matter: str, subject_id: str) -> Care:
    made, _ = Care.objects.get_or_create(
        pk=subject_id, defaults={"workspace_id": run.workspace_id, "run": run, "matter": matter}
    )
    return made


def _give_to(run: Run, row: Any, care: Care, actor: Actor, person: User | None) -> None:
    told = {"subject": row.pk, "was": f"user:{care.person_id}" if care.person_id else ""}
    Care.objects.filter(pk=care.pk).update(person=person, taken_at=database_time() if person else None)
    told |= {"person": f"user:{person.pk}"} if person else {}
    kind = "unknown.taken" if person else "unknown.given_back"
    said = {name: value for name, value in told.items() if value}
    record(run, Line(kind, actor.id, said, effect_key=row.key))


@verb
def tell_overdue(subject_id: str) -> bool:
    """Say once, each time that it became unknown, that it is past its due time. Again changes nothing."""
    run = lock_run(row_of(subject_id)[1].run_id)
    matter, row = row_of(subject_id)
    due = due_of(row)
    since = row.unknown_since
    if state_of(row) != UNKNOWN or since is None or due is None or due > database_time():
        return False
    care = _care_of(run, matter, subject_id)
    if care.overdue_told_at is not None and care.overdue_told_at >= since:
        return False
    Care.objects.filter(pk=subject_id).update(overdue_told_at=Now())
    told = {"subject": subject_id, "since": since.isoformat(), "due": due.isoformat()}
    record(run, Line("unknown.overdue", SYSTEM.id, told, effect_key=row.key))
    return True
