"""What a field of a request may hold: kinds of text, versions, moments. Strict: nothing is converted.

Keys are compared, so they hold printable characters only, and nothing that looks like a secret: those are
refused, never changed. Names and titles are kept as they were sent, without control characters and without
secrets (runs/redaction.py); pages strip what could mislead the eye.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
)
from pydantic_core import PydanticCustomError

from . import redaction

BIGGEST = 2**63 - 1
_DATE = re.compile(r"\d{4}-\d\d-\d\d[Tt ]")


def without(categories: frozenset[str], what: str, allowed: str = "") -> Callable[[str], str]:
    """A check that a text holds no character of these Unicode categories, but for those allowed."""

    def check(text: str) -> str:
        if any(unicodedata.category(sign) in categories and sign not in allowed for sign in text):
            raise PydanticCustomError("characters", "Input may hold no {what}", {"what": what})
        return text

    return check


CONTROL = frozenset({"Cc", "Cs"})
UNSEEN = CONTROL | {"Cf", "Co", "Zl", "Zp"}
visible = without(UNSEEN, "control, bidi or invisible characters")
plain = without(CONTROL, "control characters")
lines = without(CONTROL, "control characters but line breaks and tabs", "\n\t")


def trimmed(text: str) -> str:
    """A key that begins or ends with a space looks like another one."""
    if text != text.strip():
        raise PydanticCustomError("spaces", "Input may not begin or end with a space")
    return text


def unsecret(text: str) -> str:
    """A key is never changed silently: one that looks like a secret is refused."""
    if redaction.holds_secret(text):
        raise PydanticCustomError(
            "secret", "Input looks like a secret, which is not kept here: use a plain key"
        )
    return text


def sized(longest: int, shortest: int = 0) -> StringConstraints:
    """A length in characters, and no conversion from other types."""
    return StringConstraints(strict=True, min_length=shortest, max_length=longest)


def rfc_3339(value: object) -> object:
    """Dates as text only: a bare number would be read as seconds since 1970."""
    if not isinstance(value, str) or not _DATE.match(value):
        raise PydanticCustomError("moment", "Input should be an RFC 3339 date and time with its zone")
    return value


def in_utc(moment: datetime) -> datetime:
    """A worker's clock, as far as a database can keep it."""
    try:
        moved = moment.astimezone(UTC)
    except OverflowError:
        moved = datetime.min.replace(tzinfo=UTC)
    if moved.year < 1970:
        raise PydanticCustomError("moment", "Input should be a moment between 1970 and 9999")
    return moved


said = AfterValidator(redaction.redact)
known = AfterValidator(unsecret)
AnyKey = Annotated[str, sized(200, 1), AfterValidator(visible), AfterValidator(trimmed)]  # as a stop names it
Key = Annotated[AnyKey, known]
OptionalKey = Annotated[str, sized(200), AfterValidator(visible), AfterValidator(trimmed), known]
ShortKey = Annotated[str, sized(120, 1), AfterValidator(visible), AfterValidator(trimmed), known]
Name = Annotated[str, sized(300), AfterValidator(plain), said]
ShortName = Annotated[str, sized(120), AfterValidator(plain), said]
Worker = Annotated[str, sized(120, 1), AfterValidator(plain), known]
Note = Annotated[str, sized(4000), AfterValidator(lines), said]
Token = Annotated[str, sized(64, 1), AfterValidator(visible)]
OptionalToken = Annotated[str, sized(64), AfterValidator(visible)]
Version = Annotated[int, Field(strict=True, ge=1, le=BIGGEST)]
Seconds = Annotated[float, Field(strict=True, ge=1, le=3600)]
Moment = Annotated[AwareDatetime, BeforeValidator(rfc_3339), AfterValidator(in_utc)]
Class = Literal[
    "model_turn",
    "read",
    "workspace_change",
    "external_job",
    "external_write",
    "approval_wait",
    "browser_action",
    "delivery",
]


class In(BaseModel):
    """A body: unknown fields are an error."""

    model_config = ConfigDict(extra="forbid")


class Out(BaseModel):
    """An answer."""

    def wire(self) -> dict[str, Any]:
        """As JSON values, under the wire's names; times in UTC."""
        return self.model_dump(mode="json", by_alias=True)
