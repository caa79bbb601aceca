"""What the `type` of a problem points at: its section of docs/problems.md, for who follows the address."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.http import require_GET

from runs.problems import PROBLEMS

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "problems.md"
HEAD = re.compile(r"^## `/problems/([a-z-]+)` · \d+$", re.M)


@dataclass(frozen=True)
class Problem:
    """One type: its status and title are those of the API, its text is the document's."""

    name: str
    status: int
    title: str
    lines: list[SafeString]


def in_html(line: str) -> SafeString:
    """A line of the document: its text, **bold** and `code`, and nothing else."""
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(line))
    return mark_safe(re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", text))  # noqa: S308


@cache
def sections() -> dict[str, list[SafeString]]:
    """The paragraphs of each type; empty where the document is not installed."""
    text = DOCUMENT.read_text(encoding="utf-8") if DOCUMENT.exists() else ""
    _, *parts = HEAD.split(text)
    bodies = zip(parts[::2], parts[1::2], strict=True)
    return {name: [in_html(line) for line in _lines(body)] for name, body in bodies}


def _lines(body: str) -> list[str]:
    """Its sentences as they were broken by sense: what it is, then what to do."""
    joined = " ".join(body.split())
    return [part.strip() for part in re.split(r"(?=\*\*What to do:\*\*)", joined) if part.strip()]


@require_GET
def problem_page(request: HttpRequest, name: str) -> HttpResponse:
    """GET /problems/<type> : what it means and what to do. It tells of nobody, so anybody may read it."""
    if name not in PROBLEMS:
        raise Http404
    status, title = PROBLEMS[name]
    told = Problem(name, status, title, sections().get(name, []))
    return render(request, "problem.html", {"problem": told})
