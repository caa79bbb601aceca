"""Reading a provider's answer: as data, at a path, and fit to be kept.

Answers are strangers' text. What is compared is read as it came; what is stored is limited,
freed of what a database can't hold, and without what looks like a secret.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from runs import redaction

KEPT_BYTES = 64 * 1024
KEPT_TEXT = 2_000
DEEPEST = 32
UNKEEPABLE = re.compile("[\x00\ud800-\udfff]")


class NotData(ValueError):
    """The answer is no JSON: a page, a text, nothing, or cut off."""


def read(body: bytes) -> Any:
    """The JSON value of an answer, as it came. Raises NotData."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise NotData(str(error)[:200]) from error


def is_page(content_type: str, body: bytes) -> bool:
    """Whether the answer is HTML, whatever it says of itself."""
    start = body.lstrip()[:15].lower()
    return "html" in content_type.lower() or start.startswith((b"<!doctype", b"<html"))


def at(value: Any, path: str) -> Any:
    """The value at a dotted path (`data.0.id`), or None where the path leads nowhere."""
    for name in path.split("."):
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


def same(found: Any, wanted: Any) -> bool:
    """Equal as JSON: 1 and 1.0 are, 1 and true are not."""
    return isinstance(found, bool) == isinstance(wanted, bool) and bool(found == wanted)


def keep(body: bytes) -> Any:
    """What is stored of an answer: JSON if it is JSON and small enough, else the start of its text."""
    try:
        kept = tidy(read(body))
        if len(json.dumps(kept, ensure_ascii=False).encode()) <= KEPT_BYTES:
            return kept
    except NotData:
        pass
    return tidy(body.decode(errors="replace"))


def tidy(value: Any, depth: int = 0) -> Any:
    """The same value as any database and any JSON reader takes it, without secrets."""
    if isinstance(value, str):
        text = redaction.text(UNKEEPABLE.sub("\ufffd", value))
        return text if len(text) <= KEPT_TEXT else text[:KEPT_TEXT] + "…"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict | list) and depth >= DEEPEST:
        return "[deeper than is kept]"
    if isinstance(value, list):
        return [tidy(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {tidy(name, depth + 1): member(name, item, depth) for name, item in value.items()}
    return value


def member(name: str, value: Any, depth: int = 0) -> Any:
    """A value as it is kept under this name: nothing of it when the name says that it is a secret."""
    kept = redaction.redact({name: value})[redaction.text(name)]
    return tidy(kept, depth + 1)
