"""What Stop can and cannot do, for who is about to press it: the document itself, as a page."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString
from django.views.decorators.http import require_GET

from dashboard.pages.problems import in_html
from dashboard.pages.shell import page, signed_in

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "what-stop-can-and-cannot-do.md"


@dataclass(frozen=True)
class Part:
    """A heading with what stands under it, in its order. An entry is a paragraph, or the items of a list."""

    title: str
    paragraphs: list[SafeString] = field(default_factory=list)
    items: list[SafeString] = field(default_factory=list)


@cache
def parts(document: Path = DOCUMENT) -> list[Part]:
    """The parts of the document; the first has its title. Empty where it is not installed."""
    text = document.read_text(encoding="utf-8") if document.exists() else ""
    return [_part(section) for section in re.split(r"^##? ", text, flags=re.MULTILINE) if section.strip()]


def _part(section: str) -> Part:
    title, _, body = section.partition("\n")
    made = Part(title.strip())
    for block in re.split(r"\n\n+|\n(?=- )", body.strip()):
        said = " ".join(block.split())
        if said.startswith("- "):
            made.items.append(in_html(said[2:]))
        elif said:
            made.paragraphs.append(in_html(said))
    return made


@require_GET
@signed_in
def stop_page(request: HttpRequest) -> HttpResponse:
    """GET /help/what-stop-can-and-cannot-do : it tells of nobody; whoever is signed in may read it."""
    told = parts()
    return page(request, "help_stop.html", current="help", lead=told[0] if told else None, parts=told[1:])
