"""Kinds of effects: the six answers that are given before any effect of that kind may be declared."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from runs import redaction
from runs.access import Actor, NotFound, demand_workspace
from runs.evidence import Line, record
from runs.models import Workspace
from runs.saying import words_in
from runs.store import Now, verb

from . import presets
from .models import Account, Kind, Provider
from .new_kind import ANSWERS, BadKind, NewKind, is_own, on_wire
from .providers import PROVIDERS, own
from .providers.workspace import INSPECTED

# What no kind of a provider may be: each module's own check.
CHECKS = {name: provider.check for name, provider in PROVIDERS.items()}


@dataclass(frozen=True)
class Registered:
    """The kind; `created`: it was not there before."""

    kind: Kind
    created: bool


@verb
def register_kind(*, actor: Actor, workspace_id: str, name: str, new: NewKind) -> Registered:
    """Register a kind, or change the one with this name. Open effects are sent and looked up by the
    change at once; what is not found then proves nothing of those dispatched before it.

    The same again changes nothing and leaves no line. Raises NotFound, NotAllowed, BadKind.
    """
    locked = Workspace.objects.select_for_update(no_key=True)
    workspace = locked.filter(pk=workspace_id).first()
    if workspace is None:
        raise NotFound("workspace")
    demand_workspace(actor, "kinds", workspace_id)
    check(new)
    if new.account and not Account.objects.filter(workspace=workspace, name=new.account).exists():
        raise BadKind("account", "There is no account of this name; put it first")
    new = completed(new)
    known = Kind.objects.filter(workspace=workspace, name=name).first()
    if known is None:
        kind = Kind.objects.create(workspace=workspace, name=name, **vars(new))
        record(workspace, Line("kind.registered", actor.id, {"name": name, **vars(new)}))
        return Registered(Kind.objects.get(pk=kind.pk), created=True)
    changed = {one: value for one, value in vars(new).items() if getattr(known, one) != value}
    if changed:
        was = {one: getattr(known, one) for one in changed}
        looks = (
            {} if set(changed) == {"due_after"} else {"updated_at": Now()}
        )  # what was not found still counts
        Kind.objects.filter(pk=known.pk).update(**changed, **({"updated_at": Now()} if looks else {}))
        record(workspace, Line("kind.changed", actor.id, {"name": name, "now": changed, "was": was}))
    return Registered(Kind.objects.get(pk=known.pk), created=False)


def _texts_hold_secret(value: Any) -> bool:
    """Told by their form alone: a call may have a field that is named password, filled in when it is sent."""
    if isinstance(value, dict | list):
        return any(map(_texts_hold_secret, [*value, *(value.values() if isinstance(value, dict) else ())]))
    return isinstance(value, str) and redaction.holds_secret(value)


def check(new: NewKind) -> None:
    """What no kind may be. Raises BadKind, which names the field by its name on the wire."""
    if new.provider not in CHECKS:
        raise BadKind("provider", "There is no such provider on this server")
    for name in ANSWERS:
        said = getattr(new, name)
        texts = [said] if isinstance(said, str) else said
        missing = not said and not getattr(PROVIDERS[new.provider].QUESTIONS, name)
        if missing or (said and not all(words_in(text) for text in texts)):
            raise BadKind(on_wire(name), "This is one of the six answers; it may not be empty")
    if new.retry_after_s and new.provider == Provider.OUTSIDE:
        raise BadKind("retry_after_s", "Only what our executor sends is tried again by it")
    presets.check(new)
    CHECKS[new.provider](new)
    if is_own(new.lookup):
        own.check(new)
    for name in ("send", "lookup", "compensate"):
        if _texts_hold_secret(getattr(new, name)):
            raise BadKind(name, "It holds what looks like a secret; credentials are given to its account")


def completed(new: NewKind) -> NewKind:
    """What follows from the provider: files can be looked at, and an attempt that is late be barred."""
    if new.provider != Provider.WORKSPACE:
        return new
    return replace(new, lookup=INSPECTED, key_fencing=True)


@dataclass(frozen=True)
class Said:
    """One of the six answers; `default`: the provider's own, because the kind left it out."""

    name: str
    texts: list[str]
    default: bool

    @property
    def text(self) -> str:
        return " · ".join(self.texts)


def answers_of(kind: Kind) -> list[Said]:
    """The six answers of a kind, in their order, by their names in the table."""
    return [_said(kind, name) for name in ANSWERS]


def answer_of(kind: Kind, name: str) -> str:
    """One of the six answers as a text: the kind's own, or its provider's."""
    return _said(kind, name).text


def _said(kind: Kind, name: str) -> Said:
    own = getattr(kind, name)
    provider = PROVIDERS.get(kind.provider)
    said = own or (getattr(provider.QUESTIONS, name) if provider else "")
    return Said(name, [said] if isinstance(said, str) else list(said), default=not own)


__all__ = [
    "ANSWERS",
    "CHECKS",
    "BadKind",
    "NewKind",
    "Registered",
    "Said",
    "answer_of",
    "answers_of",
    "check",
    "completed",
    "register_kind",
]
