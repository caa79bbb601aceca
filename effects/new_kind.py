"""A kind as it is registered, and what the checks of all providers share."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any

from runs.models import OperationClass

from . import outbound
from .models import DUE_AFTER, Provider

KEY, REF = "{key}", "{ref}"  # the effect key; the provider's own number, once it is known


class BadKind(ValueError):
    """A field of this kind can't be used. Nothing was changed."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}")
        self.field, self.why = field, why


@dataclass(frozen=True)
class NewKind:
    """A kind as it is registered. The six answers stand first; times are in seconds.

    An answer that is left out is its provider's own (`QUESTIONS` of the provider's module).
    """

    commits: str = ""
    tells_apart: list[str] = field(default_factory=list)
    idempotency: str = ""
    compensation: str = ""
    durable_before_pause: str = ""
    when_unknown: str = ""
    op_class: str = ""
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
    account: str = ""
    reversible: str = ""
    compensate: dict[str, Any] = field(default_factory=dict)
    due_after: timedelta = DUE_AFTER


ANSWERS = tuple(one.name for one in fields(NewKind))[:6]


@dataclass(frozen=True)
class Questions:
    """What a provider answers to the six questions for each kind of it that doesn't say otherwise."""

    commits: str = ""
    tells_apart: tuple[str, ...] = ()
    idempotency: str = ""
    compensation: str = ""
    durable_before_pause: str = ""
    when_unknown: str = ""


def on_wire(name: str) -> str:
    """The wire calls the idempotency answer `key` and the class `class`."""
    return {"idempotency": "key", "op_class": "class"}.get(name, name)


def is_own(lookup: dict[str, Any]) -> bool:
    """Whether an agent itself answers these look-ups (providers/own.py)."""
    return "callback" in lookup or "poll" in lookup


def check_class(new: NewKind, op_class: str) -> None:
    """Raises BadKind unless the kind is of the one class that its provider has."""
    if new.op_class != op_class:
        raise BadKind("class", f"A kind of provider {new.provider} is of class {op_class}")


def check_lookup(new: NewKind) -> None:
    """A look-up over http, where there is one, and what it says of jobs and keys. Raises BadKind."""
    if not new.lookup or is_own(new.lookup):
        return
    check_url("lookup.url", new.lookup.get("url", ""), needs_key=True)
    job = new.lookup.get("job") or {}
    if job and new.op_class != OperationClass.EXTERNAL_JOB:
        raise BadKind("lookup.job", "Only a kind of class external_job goes on at its provider")
    if job.get("url"):
        check_url("lookup.job.url", job["url"], needs_key=True, needs=(KEY, REF))
    if new.lookup.get("fence") and new.retry_after_s:
        raise BadKind("retry_after_s", "A key that a look-up bars for good is not sent again")


def check_cancel(new: NewKind) -> None:
    """How its provider is asked to cancel, where it can be. Raises BadKind."""
    cancel = new.send.get("cancel")
    if cancel:
        check_url("send.cancel.url", cancel.get("url", ""), needs_key=True, needs=(KEY, REF))


def check_url(field: str, url: str, *, needs_key: bool, needs: tuple[str, ...] = (KEY,)) -> None:
    """An address that our own calls may use: https, or an origin that the installation lists.

    `{key}` stands for the effect key, in the path or the query; `needs`: what may be filled in, and with
    `needs_key` one of it is. All rules of outbound.call() hold at each call again, on the address that the
    name then has. Raises BadKind.
    """
    try:
        target = outbound.target_of(url)
    except outbound.Refused as error:
        raise BadKind(field, f"It can't be called: {error}") from error
    if target.origin not in outbound.exempt_origins():
        _check_target(field, target)
    filled, named = target.path, " or ".join(needs)
    for one in needs:
        filled = filled.replace(one, "")
    if "#" in url or "{" in target.origin or set("{}") & set(filled):
        raise BadKind(field, f"Only {named} is filled in, in the path or the query, and no #fragment is sent")
    if needs_key and filled == target.path:
        raise BadKind(field, f"It needs {named} where the effect key goes")


def _check_target(field: str, target: outbound.Target) -> None:
    if target.scheme != "https":
        raise BadKind(field, "Only https is called, and the origins in ALLSTOP_OUTBOUND_ORIGINS")
    try:
        why = outbound.forbidden(ipaddress.ip_address(target.host))
    except ValueError:
        return  # a name: its addresses are looked at when it is called
    if why:
        raise BadKind(field, f"It names an address which {why}")
