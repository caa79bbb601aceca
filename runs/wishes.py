"""Reading a press of Stop. Nothing refuses it: what can't be read is left out and named."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl

from pydantic import TypeAdapter, ValidationError

from . import bodies, redaction
from .fields import UNSEEN, AnyKey, Moment
from .idempotency import HEADER, unquoted
from .models import Mode
from .problems import Problem
from .stops import DEADLINE_S, Wish

NOTE, REASON, MODE = 2000, 40, 40  # characters that are kept
SHORTEST_S, LONGEST_S = 1, 86_400
NAMES_TOLD = 20
WHAT = frozenset({"scope", "run_key", "step", "session", "policy", "run_ids", "selection"})  # not how
KNOWN = WHAT | {"mode", "reason", "note", "deadline_s", "requested_at", "review_at", "ends_at", "observe"}
BUILT: tuple[str, ...] = (Mode.PAUSE, Mode.CANCEL, Mode.ABANDON)  # the first is the mildest
USUAL = Mode.CANCEL  # what a press means that says nothing of a mode
_moment: TypeAdapter[datetime] = TypeAdapter(Moment)
_key: TypeAdapter[str] = TypeAdapter(AnyKey)


def read_wish(request_body: bytes, headers: Mapping[str, str]) -> Wish:
    """The press in a request's body (JSON, or a form) and Idempotency-Key. Never raises."""
    ignored: list[str] = []
    fields = _fields_of(request_body, headers.get("Content-Type", ""), ignored)
    return wish_of(fields, headers.get(HEADER) or "", ignored)


def what_of(request_body: bytes, headers: Mapping[str, str]) -> Mapping[str, Any]:
    """What a press names in its body as the thing to stop. Never raises."""
    return _fields_of(request_body, headers.get("Content-Type", ""), [])


def key_in(what: Mapping[str, Any], name: str) -> str:
    """A key in there that a run or a session could have, else ""."""
    try:
        return _key.validate_python(what.get(name))
    except ValidationError:
        return ""


def wish_of(fields: Mapping[str, Any], key: str, ignored: list[str]) -> Wish:
    """The press in these fields; `ignored` holds what was left out before."""
    reader = _Reader(fields, ignored)
    requested, mode = reader.mode()
    wish = Wish(
        mode=mode,
        requested_mode=requested,
        reason=reader.reason(),
        note=reader.note(),
        deadline_s=reader.deadline(),
        key=_key_of(key, reader.ignored),
        reported_at=reader.moment("requested_at"),
        review_at=reader.moment("review_at"),
        ends_at=reader.moment("ends_at"),
        observe=reader.flag("observe"),
        ignored=reader.ignored,
    )
    reader.unknown()
    return wish


def _key_of(header: str, ignored: list[str]) -> str:
    key = unquoted(header)
    if header and not key:
        ignored.append("Idempotency-Key: 1 to 255 printable ASCII characters")
    if redaction.holds_secret(key):
        ignored.append("Idempotency-Key: it looks like a secret, and those are not kept")
        return ""
    return key


def _fields_of(data: bytes, kind: str, ignored: list[str]) -> Mapping[str, Any]:
    if bodies.too_large(data):
        ignored.append(f"body: larger than {bodies.LIMIT} bytes")
        return {}
    try:
        if kind.startswith("application/x-www-form-urlencoded"):
            return dict(parse_qsl(data.decode(), max_num_fields=100))
        return bodies.read_object(data)
    except (Problem, ValueError):
        ignored.append("body: it could not be read")
        return {}


@dataclass
class _Reader:
    fields: Mapping[str, Any]
    ignored: list[str] = field(default_factory=list)

    def mode(self) -> tuple[str, str]:
        """The mode as it was asked for, and the one that is recorded."""
        asked = self.fields.get("mode")
        if asked is None:  # nothing was said; or what was said can't be read, and then the mildest it is
            odd = bool(self.ignored) or not KNOWN.issuperset(self.fields)
            return "", BUILT[0] if odd else USUAL
        text = shown(asked, MODE) if isinstance(asked, str) else ""
        if text in BUILT:
            return text, text
        self.ignored.append(f"mode: recorded as {BUILT[0]}")
        return text, BUILT[0]

    def reason(self) -> str:
        return self._text("reason", REASON, shown) or "other"

    def note(self) -> str:
        return self._text("note", NOTE, storable)

    def _text(self, name: str, longest: int, clean: Callable[[str, int], str]) -> str:
        found = self.fields.get(name, "")
        if not isinstance(found, str):
            self.ignored.append(f"{name}: not a text")
            return ""
        plain = redaction.text(found)
        if plain != found:
            self.ignored.append(f"{name}: what looks like a secret was removed")
        kept = clean(plain, longest)
        if kept != plain:
            self.ignored.append(f"{name}: characters that can't be kept, or beyond {longest}")
        return kept

    def deadline(self) -> int:
        found = self.fields.get("deadline_s", DEADLINE_S)
        if isinstance(found, str) and found.isascii() and found.isdigit() and len(found) < 7:
            found = int(found)  # a form has only texts
        if isinstance(found, int) and not isinstance(found, bool) and SHORTEST_S <= found <= LONGEST_S:
            return found
        self.ignored.append(f"deadline_s: {SHORTEST_S} to {LONGEST_S} whole seconds; {DEADLINE_S} taken")
        return DEADLINE_S

    def moment(self, name: str) -> datetime | None:
        if self.fields.get(name) in (None, ""):  # a form sends what was left empty
            return None
        try:
            return _moment.validate_python(self.fields[name])
        except ValidationError:
            self.ignored.append(f"{name}: not a moment with its zone")
            return None

    def flag(self, name: str) -> bool:
        """True when it says so in as many words: whoever can't be read wants to stop, not to watch."""
        found = self.fields.get(name)
        if found in (True, "true", "on"):
            return True
        if found not in (None, False, "", "false", "off"):
            self.ignored.append(f"{name}: true or false; taken as false")
        return False

    def unknown(self) -> None:
        names = [name for name in self.fields if name not in KNOWN]
        self.ignored.extend(f"unknown field: {shown(name, 40)}" for name in names[:NAMES_TOLD])
        if len(names) > NAMES_TOLD:
            self.ignored.append(f"{len(names) - NAMES_TOLD} more unknown fields")


def shown(text: str, longest: int) -> str:
    """One line of a stranger's text, without what the eye can't see."""
    clean = redaction.text(text)
    kept = "".join(sign for sign in clean[: longest * 4] if unicodedata.category(sign) not in UNSEEN)
    return kept.strip()[:longest]


def storable(text: str, longest: int) -> str:
    """A note as far as it can be kept: line breaks and tabs stay, other control characters go."""
    kept = (s for s in text[:longest] if s in "\n\t" or unicodedata.category(s) not in ("Cc", "Cs"))
    return "".join(kept)
