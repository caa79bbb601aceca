"""Lists page by id, newest first: a cursor names the last row seen, so nothing shifts under a reader."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, TypeVar

from django.db.models import Model, QuerySet

from .problems import invalid

M = TypeVar("M", bound=Model)
_ID = re.compile(r"[a-z]{2,3}_[0-9a-f]{32}")
LIMIT = 200


def page(rows: QuerySet[M, M], cursor: str, limit: int, by: str = "pk") -> tuple[list[M], str | None]:
    """The next `limit` rows by falling id, and the cursor after them (None: no more).

    `by`: the column of that id, of which no two rows have the same.
    """
    if cursor:
        rows = rows.filter(**{f"{by}__lt": _id_in(cursor)})
    found = list(rows.order_by(f"-{by}")[: limit + 1])
    more = len(found) > limit
    return found[:limit], _cursor_of(getattr(found[limit - 1], by)) if more else None


def listed(items: list[dict[str, Any]], next_cursor: str | None) -> dict[str, Any]:
    """A page as the wire has it."""
    return {"items": items, "next_cursor": next_cursor}


def is_one(cursor: str) -> bool:
    """Whether this could be a cursor of ours."""
    return bool(_ID.fullmatch(_text_of(cursor)))


def _cursor_of(row_id: object) -> str:
    return base64.urlsafe_b64encode(str(row_id).encode()).decode().rstrip("=")


def _id_in(cursor: str) -> str:
    text = _text_of(cursor)
    if not _ID.fullmatch(text):
        raise invalid("cursor", "This is not a cursor of ours; leave it out to begin anew")
    return text


def _text_of(cursor: str) -> str:
    try:
        return base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except (binascii.Error, ValueError):
        return ""
