"""A report as JSON values and back. What is frozen, and so what the digest covers, is `document()`."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from functools import cache
from types import UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from .model import Report

T = TypeVar("T")


def document(report: Report) -> dict[str, Any]:
    """What is frozen and digested: everything but names (they live in the person's row) and `issue`."""
    return {name: plain(getattr(report, name)) for name in _kept()}


@cache
def _kept() -> tuple[str, ...]:
    return tuple(f.name for f in fields(Report) if not f.metadata.get("beside"))


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind))


def plain(value: Any) -> Any:
    """JSON values only: RFC 3339 times, objects as their fields."""
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, list):
        return [plain(one) for one in value]
    if is_dataclass(value):
        kind: Any = type(value)
        return {name: plain(getattr(value, name)) for name in _names(kind)}
    return value


def moment(value: datetime) -> str:
    """2026-11-27T15:02:13.412Z, in UTC."""
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def revive(kind: type[T], value: Any) -> T:
    """The object of this type from its JSON value; fields it does not know are passed over."""
    return cast(T, _revive(kind, value))


def _revive(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, UnionType):
        return _revive(next(one for one in get_args(kind) if one is not type(None)), value)
    if get_origin(kind) is list:
        (inner,) = get_args(kind)
        return [_revive(inner, one) for one in value] if is_dataclass(inner) else value
    if is_dataclass(kind):
        made: Any = kind
        return made(**{name: _revive(hint, value[name]) for name, hint in _hints(made) if name in value})
    return datetime.fromisoformat(value) if kind is datetime else value


@cache
def _hints(kind: Any) -> tuple[tuple[str, Any], ...]:
    return tuple(get_type_hints(kind).items())
