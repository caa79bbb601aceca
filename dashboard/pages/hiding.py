"""What pages hide of calls and bodies: the values of names that sound secret, and what looks like a key."""

from __future__ import annotations

import re
from typing import Any

from dashboard import words
from dashboard.pages import as_written
from dashboard.pages.as_written import Number, Pairs
from runs import redaction

BODY_MAX = 8_000  # signs of a body that a page shows; the digest covers all of it
ALL_OF_IT = 1_000_000  # the same where somebody says yes to it: a call of an agent has 256 KiB at most
SECRET = re.compile(
    r"pass(word|wd|phrase)|secret|token|authorization|cookie|credential|private|api.?key|cvv|cvc|^pin$|card.?num",
    re.IGNORECASE,
)


def body_lines(body: bytes, most: int = BODY_MAX) -> list[str]:
    """A body as a person reads it: JSON indented, one pair a line, each as it is written; the values of
    secrets are hidden.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return [f"({len(body)} bytes that are no text)"]
    try:
        text = as_written.indented(hide_in(as_written.read(text)))
    except (ValueError, RecursionError):
        text = hide(text)
    shown = text[:most]
    lines = [words.clean_end(line) for line in shown.splitlines()]
    left = len(text) - len(shown)
    return [*lines, f"… and {left} more characters"] if left else lines


def hide_in(value: Any) -> Any:
    """JSON with the values of secret names hidden, at any depth; pages hide those of more names than are kept
    back: who reads must not see them, and they had to be sent.
    """
    if isinstance(value, dict):
        return dict(_hide_pair(*pair) for pair in value.items())
    if isinstance(value, Pairs):
        return Pairs(_hide_pair(*pair) for pair in value)
    if isinstance(value, list):
        return [hide_in(one) for one in value]
    if isinstance(value, Number):
        return hide_number(value)
    return redaction.redact(value)


def _hide_pair(name: str, value: Any) -> tuple[str, Any]:
    return redaction.text(name), hidden(value) if sounds_secret(name) else hide_in(value)


def hide_number(value: Number) -> str:
    """As it is written, unless it is one that is no number."""
    return redaction.text(value) if redaction.holds_secret(str(value)) else value


def sounds_secret(name: str) -> bool:
    """Whether a page hides what stands under this name."""
    return SECRET.search(name) is not None or redaction.is_secret_name(name)


def hidden(value: Any) -> str:
    """What stands in its place: with a keyed digest, so that equal ones are seen to be equal."""
    text = value if isinstance(value, str) else as_written.indented(value)
    return text if redaction.MARKER.fullmatch(text) else redaction.marker("field", text)


def hide(text: str) -> str:
    """Text with what looks like a secret hidden."""
    return redaction.text(text)


def hides(text: str) -> bool:
    """Whether anything of a body would be hidden."""
    try:
        told = as_written.read(text)
        return bool(hide_in(told) != told)
    except (ValueError, RecursionError):
        return hide(text) != text
