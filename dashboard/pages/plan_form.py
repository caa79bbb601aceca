"""What the form of a planned stop asks for: of what, how, when. What can't be read is refused, and said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from pydantic import TypeAdapter, ValidationError

from dashboard import plan_words
from dashboard.pages.stop_form import wish_of
from runs import schedules
from runs.fields import Key
from runs.models import Policy, Run, ScopeKind, Workspace
from runs.presses import Wish
from runs.schedules import LONGEST, Moment, UnknownZone, What

FIELDS = ("what", "run", "session", "policy", "mode", "deadline_s", "reason", "note", "date", "time", "zone")
_key: TypeAdapter[str] = TypeAdapter(Key)


class NoPlan(ValueError):
    """Why nothing can be planned from these fields."""


@dataclass(frozen=True)
class Plan:
    """A stop that could be kept."""

    what: What
    wish: Wish
    when: Moment


def read_plan(workspace: Workspace, sent: Mapping[str, str], now: datetime) -> Plan:
    """Raises NoPlan, saying what to put right."""
    what, when = _what(workspace, sent), _when(sent)
    wish = wish_of(sent)
    if wish.ignored:
        raise NoPlan(f"This could not be read: {', '.join(wish.ignored)}.")
    if not now < when.at <= now + LONGEST:
        raise NoPlan(f"That moment, {plan_words.ahead_words(when.at, now)}")
    return Plan(what, wish, when)


def _what(workspace: Workspace, sent: Mapping[str, str]) -> What:
    scope = sent.get("what", "")
    if scope == ScopeKind.WORKSPACE:
        return What(scope)
    if scope == ScopeKind.POLICY:
        found = Policy.objects.filter(workspace=workspace, pk=_text(sent, "policy")).first()
        if found is None:
            raise NoPlan("Choose a policy.")
        return What(scope, found.pk)
    if scope == ScopeKind.SESSION:
        return What(scope, session_key=_named(sent, "session"))
    if scope == ScopeKind.RUN:
        return What(scope, run_key=_run_key(workspace, _named(sent, "run")))
    raise NoPlan("Choose what is to be stopped.")


def _named(sent: Mapping[str, str], scope: str) -> str:
    """The key of a run or a session, as it could be registered."""
    typed = _text(sent, scope).strip()
    if not typed:
        raise NoPlan(f"Which {scope}? Give its key.")
    try:
        return _key.validate_python(typed)
    except ValidationError as error:
        why = "at most 200 characters, none of them invisible, and nothing that looks like a secret"
        raise NoPlan(f"No {scope} can have this key: {why}.") from error


def _run_key(workspace: Workspace, typed: str) -> str:
    """A run's key, or the key of the run that has this id."""
    found = Run.objects.filter(workspace=workspace, pk=typed).first()
    return found.key if found else typed


def _when(sent: Mapping[str, str]) -> Moment:
    try:
        local = datetime.fromisoformat(f"{_text(sent, 'date')}T{_text(sent, 'time')}")
        if local.tzinfo is not None or local.microsecond:
            raise ValueError
        return schedules.read_clock(local, _text(sent, "zone"))
    except UnknownZone as error:
        raise NoPlan("Choose a time zone from the list.") from error
    except (ValueError, OverflowError) as error:
        raise NoPlan("Give a date and a time, as 2027-03-28 and 14:30.") from error


def _text(sent: Mapping[str, str], name: str) -> str:
    return sent.get(name, "")[:300].replace("\0", "")
