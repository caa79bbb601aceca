"""Kinds of effects: the six answers that are given before any effect of that kind may be declared."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from runs.access import Actor, NotFound, demand_workspace
from runs.evidence import Line, record
from runs.models import OperationClass, Workspace
from runs.store import Now, verb

from . import folder, outbound
from .models import Kind, Provider

KEY = "{key}"
INSPECTED = {"inspect": "files"}


class BadKind(ValueError):
    """A field of this kind can't be used. Nothing was changed."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}")
        self.field, self.why = field, why


@dataclass(frozen=True)
class NewKind:
    """A kind as it is registered. The six answers stand first; times are in seconds."""

    commits: str
    tells_apart: list[str]
    idempotency: str
    compensation: str
    durable_before_pause: str
    when_unknown: str
    op_class: str
    provider: str = Provider.OUTSIDE
    title: str = ""
    send: dict[str, Any] = field(default_factory=dict)
    lookup: dict[str, Any] = field(default_factory=dict)
    settle_window_s: int = 60
    check_every_s: list[float] = field(default_factory=list)
    check_for_s: int = 86_400
    key_fencing: bool = False
    key_retention_s: int = 86_400
    retry_after_s: list[float] = field(default_factory=list)


ANSWERS = tuple(one.name for one in fields(NewKind))[:6]


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
    new = completed(new)
    known = Kind.objects.filter(workspace=workspace, name=name).first()
    if known is None:
        kind = Kind.objects.create(workspace=workspace, name=name, **vars(new))
        record(workspace, Line("kind.registered", actor.id, {"name": name, **vars(new)}))
        return Registered(Kind.objects.get(pk=kind.pk), created=True)
    changed = {one: value for one, value in vars(new).items() if getattr(known, one) != value}
    if changed:
        was = {one: getattr(known, one) for one in changed}
        Kind.objects.filter(pk=known.pk).update(updated_at=Now(), **changed)
        record(workspace, Line("kind.changed", actor.id, {"name": name, "now": changed, "was": was}))
    return Registered(Kind.objects.get(pk=known.pk), created=False)


def check(new: NewKind) -> None:
    """What no kind may be. Raises BadKind, which names the field by its name on the wire."""
    for answer in ANSWERS:
        said = getattr(new, answer)
        texts = [said] if isinstance(said, str) else said
        if not texts or not all(text.strip() for text in texts):
            raise BadKind(on_wire(answer), "This is one of the six answers; it may not be empty")
    if new.retry_after_s and new.provider == Provider.OUTSIDE:
        raise BadKind("retry_after_s", "Only what our executor sends is tried again by it")
    CHECKS[new.provider](new)


def _check_http(new: NewKind) -> None:
    if "url" not in new.send:
        raise BadKind("send", "A kind of provider http says where it is sent to")
    check_url("send.url", new.send["url"], needs_key=False)
    _check_lookup(new)


def _check_outside(new: NewKind) -> None:
    if new.send:
        raise BadKind("send", "Only a kind of provider http or workspace is sent by us")
    _check_lookup(new)


def _check_lookup(new: NewKind) -> None:
    if new.lookup:
        check_url("lookup.url", new.lookup.get("url", ""), needs_key=True)


def _check_workspace(new: NewKind) -> None:
    if new.op_class != OperationClass.WORKSPACE_CHANGE:
        raise BadKind("class", "A kind of provider workspace is of class workspace_change")
    if "url" in new.send:
        raise BadKind("send", "A kind of provider workspace names a folder, no address")
    if new.lookup not in ({}, INSPECTED):
        raise BadKind("lookup", "Files of provider workspace are inspected; there is nothing to say about it")
    try:
        folder.parts_of(new.send.get("folder") or "files")
    except folder.Unusable as error:
        raise BadKind("send.folder", str(error)) from error


CHECKS: dict[str, Callable[[NewKind], None]] = {
    Provider.HTTP: _check_http,
    Provider.WORKSPACE: _check_workspace,
    Provider.OUTSIDE: _check_outside,
}


def completed(new: NewKind) -> NewKind:
    """What follows from the provider: files can be looked at, and an attempt that is late be barred."""
    if new.provider != Provider.WORKSPACE:
        return new
    return replace(new, lookup=INSPECTED, key_fencing=True)


def on_wire(name: str) -> str:
    """The wire calls the idempotency answer `key` and the class `class`."""
    return {"idempotency": "key", "op_class": "class"}.get(name, name)


def check_url(field: str, url: str, *, needs_key: bool) -> None:
    """An address that our own calls may use: https, or an origin that the installation lists.

    `{key}` stands for the effect key, in the path or the query. All rules of outbound.call() hold
    at each call again, on the address that the name then has. Raises BadKind.
    """
    try:
        target = outbound.target_of(url)
    except outbound.Refused as error:
        raise BadKind(field, f"It can't be called: {error}") from error
    if target.origin not in outbound.exempt_origins():
        _check_target(field, target)
    if "#" in url or "{" in target.origin or set("{}") & set(target.path.replace(KEY, "")):
        raise BadKind(field, "Only {key} is filled in, in the path or the query, and no #fragment is sent")
    if needs_key and KEY not in target.path:
        raise BadKind(field, "It needs {key} where the effect key goes")


def _check_target(field: str, target: outbound.Target) -> None:
    if target.scheme != "https":
        raise BadKind(field, "Only https is called, and the origins in ALLSTOP_OUTBOUND_ORIGINS")
    try:
        why = outbound.forbidden(ipaddress.ip_address(target.host))
    except ValueError:
        return  # a name: its addresses are looked at when it is called
    if why:
        raise BadKind(field, f"It names an address {why}")
