"""The form of a verdict as somebody left it: read from what was sent, and kept while they attach a file."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from django.http import HttpRequest, QueryDict

from dashboard.unknown_words import VERDICT, items_of
from effects.resolve import TEXT_MAX
from runs import redaction

KEPT = "unknown_draft"


@dataclass(frozen=True)
class Draft:
    """What was typed. `error` says why it is not recorded, `field` which part of the form that is about.

    `meanwhile`: somebody recorded something since the form was opened.
    """

    verdict: str = ""
    evidence: str = ""
    items: str = ""
    attachments: tuple[str, ...] = ()
    lines: tuple[int, ...] = ()
    seen: int = 0
    error: str = ""
    field: str = ""
    meanwhile: bool = False

    @property
    def parts(self) -> list[str]:
        return items_of(self.items)

    @property
    def verdict_says(self) -> str:
        return VERDICT.get(self.verdict, "no verdict yet")

    @classmethod
    def read(cls, sent: QueryDict) -> Draft:
        """Anything unreadable is as if it were not there; the verb judges the rest."""
        verdict = sent.get("verdict", "")
        return cls(
            verdict=verdict if verdict in VERDICT else "",
            evidence=_text(sent, "evidence"),
            items=_text(sent, "items"),
            attachments=tuple(one[:40] for one in sent.getlist("attachment")[:50] if "\0" not in one),
            lines=tuple(_number(one) for one in sent.getlist("line")[:50]),
            seen=_number(sent.get("seen", "")),
        )


def _text(sent: QueryDict, name: str) -> str:
    """Without secrets from the start: a draft is kept in the session."""
    return redaction.text(sent.get(name, "").replace("\0", "").replace("\r\n", "\n"))[:TEXT_MAX]


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0


def keep_draft(request: HttpRequest, subject_id: str, draft: Draft) -> None:
    """Until the item's page is opened next: in the session, in no address."""
    request.session[KEPT] = {"subject": subject_id, **asdict(draft)}


def taken_draft(request: HttpRequest, subject_id: str) -> Draft | None:
    """What was kept for this item, once."""
    kept: dict[str, Any] = request.session.get(KEPT) or {}
    if kept.pop("subject", "") != subject_id:
        return None
    del request.session[KEPT]
    told = {**kept, "attachments": tuple(kept["attachments"]), "lines": tuple(kept["lines"])}
    return Draft(**told)
