"""Reading a request's body: bounded, strict JSON, no surprises for what comes after."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from django.http import HttpRequest

from .problems import Problem

LIMIT = 256 * 1024  # bytes
DEPTH = 32
TAKEN = "allstop.body"  # in request.META: the bytes, at most one more than the limit
PARSED = "allstop.json"  # and the object that they hold

_PARTS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


def take(request: HttpRequest) -> bytes:
    """The body, read once and never beyond the limit by more than a byte, whatever its headers say."""
    taken = request.META.get(TAKEN)
    if taken is None:
        taken = request.META[TAKEN] = request.read(LIMIT + 1)
    return bytes(taken)


def too_large(data: bytes) -> bool:
    """Whether `take` met a body beyond the limit."""
    return len(data) > LIMIT


def read(data: bytes) -> Any:
    """The JSON value of these bytes. Raises Problem: too-large or malformed-body."""
    if too_large(data):
        raise Problem("too-large", f"A body may have {LIMIT} bytes. Nothing was changed; send less.")
    try:
        text = data.decode()
        _check_depth(text)
        value = json.loads(text, parse_constant=_no_such_number, parse_float=_finite)
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise _malformed(error) from error
    return value


def read_object(data: bytes) -> dict[str, Any]:
    """As `read`, for a body that must be an object; an empty one counts as {}."""
    value = read(data) if data else {}
    if not isinstance(value, dict):
        raise Problem("malformed-body", "The body must be a JSON object. Nothing was changed.")
    return value


def object_of(request: HttpRequest) -> dict[str, Any]:
    """The request's body as an object, parsed once. Raises Problem."""
    if PARSED not in request.META:
        request.META[PARSED] = read_object(take(request))
    found: dict[str, Any] = request.META[PARSED]
    return found


def _malformed(error: Exception) -> Problem:
    where = f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
    why = error.args[0] if isinstance(error, Refused) else f"It is not JSON in UTF-8{where}."
    return Problem("malformed-body", f"{why} Nothing was changed; correct it and send it again.")


class Refused(ValueError):
    """JSON to Python's parser, but nothing that may be stored."""


def _check_depth(text: str) -> None:
    """Before parsing, so that no nesting reaches the parser's recursion."""
    if text.count("[") + text.count("{") <= DEPTH:
        return
    depth = 0
    for part in _PARTS.finditer(text):
        sign = part.group()
        depth += 1 if sign in "[{" else -1 if sign in "]}" else 0
        if depth > DEPTH:
            raise Refused(f"It is nested deeper than {DEPTH} levels.")


def _no_such_number(name: str) -> float:
    raise Refused(f"{name} is not a number in JSON.")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise Refused("It holds a number that is too large.")
    return value
