"""JSON as it is written: every pair of an object, also of a name that comes twice, and numbers to the digit.

Whoever gets a body may read the first of two equal names, or count on digits that a float drops; so a page
that shows what json.loads() makes of it does not show what is sent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

STEP = "  "
DEEPEST = 64  # brackets alone would fill a page with spaces


class Pairs(list[tuple[str, Any]]):
    """An object: its pairs, in order, none of them left out."""


class Number(str):
    """A number, as it is written."""

    __slots__ = ()


def read(text: str) -> Any:
    """Raises ValueError and RecursionError, as json.loads() does."""
    numbers: dict[str, Any] = dict.fromkeys(("parse_int", "parse_float", "parse_constant"), Number)
    return json.loads(text, object_pairs_hook=Pairs, **numbers)


def indented(value: Any, room: str = "") -> str:
    """As json.dumps(indent=2) writes it. Raises RecursionError for what is nested deeper than DEEPEST."""
    if len(room) > DEEPEST * len(STEP):
        raise RecursionError
    if not isinstance(value, list) or not value:
        return "{}" if isinstance(value, Pairs) else leaf(value)
    inner, (begin, end) = room + STEP, "{}" if isinstance(value, Pairs) else "[]"
    return f"{begin}\n" + ",\n".join(inner + one for one in _inside(value, inner)) + f"\n{room}{end}"


def _inside(value: list[Any], room: str) -> Iterator[str]:
    for one in value:
        if isinstance(value, Pairs):
            yield f"{leaf(one[0])}: {indented(one[1], room)}"
        else:
            yield indented(one, room)


def leaf(value: Any) -> str:
    """A text in its quotes, a number as it is written, true, false or null."""
    return value if isinstance(value, Number) else json.dumps(value, ensure_ascii=False)
