"""The parts that every page is made of. Each one carries a word; none relies on colour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from django import template
from django.templatetags.static import static
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from dashboard import scope_words, words
from dashboard.words import Term
from runs.policies import Match

register = template.Library()

THEMES = {"light", "dark"}
DASH = "\N{EN DASH}"
NIL = format_html('<span class="nil">{}</span>', DASH)
MARKS = {
    "known": "m-known",
    "partial": "m-partial",
    "denied": "m-denied",
    "unknown": "m-unknown",
    "none": "m-none",
    "flight": "m-flight",
}
STRIP_MAX = 24  # marks drawn, in proportion; the text beside them counts all


@register.filter
def clean(text: object) -> str:
    """A stranger's text without control, bidi and invisible characters."""
    return words.clean(text)


@register.filter
def span(seconds: float) -> str:
    """Seconds as "4 min 01 s"."""
    return words.span(seconds)


SAYINGS = {
    "not recorded": words.NOT_RECORDED,
    "not recorded yet": words.NOT_RECORDED_YET,
    "may still start": words.MAY_STILL_START,
    "perhaps recorded": words.PERHAPS_RECORDED,
    "same key": words.SAME_KEY,
    "unknown whether": words.UNKNOWN_WHETHER,
    "no preview": words.PREVIEW_UNAVAILABLE,
}


@register.simple_tag
def say(name: str) -> str:
    """One sentence of the lexicon."""
    return SAYINGS[name]


@register.simple_tag
def described(match: Match) -> str:
    """A policy's match in words."""
    return scope_words.described(match)


@register.simple_tag
def icon(name: str, extra: str = "") -> SafeString:
    """One symbol of the sprite, hidden from readers: the word beside it says the same."""
    return format_html(
        '<svg class="i {}" aria-hidden="true"><use href="{}#{}"/></svg>', extra, static("icons.svg"), name
    )


@register.simple_tag
def chip(term: Term) -> SafeString:
    """Icon, word and border of a state."""
    return format_html('<span class="st {}">{}{}</span>', term.css, icon(term.icon), term.word)


@register.simple_tag
def drill_mark() -> SafeString:
    """The mark of everything that a drill made."""
    return mark_safe('<b class="stamp stamp-drill">DRILL</b>')


@register.simple_tag(takes_context=True)
def theme(context: dict[str, Any]) -> SafeString:
    """` data-theme="dark"` from the cookie; nothing when the system decides."""
    request = context.get("request")
    chosen = request.COOKIES.get("theme", "") if request else ""
    return format_html(' data-theme="{}"', chosen) if chosen in THEMES else mark_safe("")


@register.simple_tag
def versions(
    left: object, right: object, left_word: str = "carried", right_word: str = "current"
) -> SafeString:
    """Two versions side by side: the proof of a refusal."""
    return format_html(
        '<span class="ver"><span><span class="w">{} </span>v{}</span>'
        '<span><span class="w">{} </span>v{}</span></span>',
        left_word,
        DASH if left is None else left,
        right_word,
        DASH if right is None else right,
    )


@register.simple_tag
def ev(seq: int | None, run_id: str) -> SafeString:
    """A link to one evidence line of a run, `e-204`."""
    if not seq:
        return mark_safe("")
    url = reverse("evidence", args=[run_id])
    return format_html('<a class="ev" href="{}?at={}#e-{}">e-{}</a>', url, seq, seq, seq)


@register.simple_tag
def evs(seqs: Iterable[int], run_id: str) -> SafeString:
    """Links to several evidence lines."""
    return format_html_join(" ", "{}", ((ev(seq, run_id),) for seq in seqs))


FORMATS = {
    "ms": "%H:%M:%S.%f",
    "s": "%H:%M:%S",
    "min": "%H:%M",
    "day": "%-d %b %Y, %H:%M:%S",
    "date": "%-d %b %Y",
}


@register.simple_tag
def moment(at: datetime | None, precision: str = "s", near: datetime | None = None) -> SafeString:
    """A server time in UTC; its day is written too when it differs from that of `near`."""
    if at is None:
        return NIL
    utc = at.astimezone(UTC)
    text = utc.strftime(FORMATS[precision])
    if precision == "ms":
        text = text[:-3]
    if near and precision not in ("day", "date") and utc.date() != near.astimezone(UTC).date():
        text = f"{utc.strftime('%-d %b')} {text}"
    return format_html('<time datetime="{}">{}</time>', utc.isoformat(timespec="milliseconds"), text)


@register.simple_tag
def moment_text(at: datetime) -> str:
    """A server time in UTC as plain text, for attributes."""
    return at.astimezone(UTC).strftime(FORMATS["s"])


@register.simple_tag
def nil() -> SafeString:
    """An empty value, written out."""
    return NIL


@register.simple_tag
def ago(at: datetime | None, now: datetime, suffix: str = " ago") -> SafeString:
    """ "4 min ago", counted on by the page; the absolute time stands beside it or in the table."""
    if at is None:
        return NIL
    text = words.span(int((now - at).total_seconds()))
    return format_html(
        '<span class="nw" data-ago="{}" data-suffix="{}">{}{}</span>',
        at.astimezone(UTC).isoformat(timespec="milliseconds"),
        suffix,
        text,
        suffix,
    )


def _marks(kinds: list[str], size: int) -> SafeString:
    pitch = size + 4
    squares = [
        format_html(
            '<rect class="{}" x="{}" y="1" width="{}" height="{}"/>', MARKS[kind], 1 + i * pitch, size, size
        )
        for i, kind in enumerate(kinds)
    ]
    halves = [
        format_html('<path class="m-half" d="M{} 1h{}l-{} {}z"/>', 1 + i * pitch, size, size, size)
        for i, kind in enumerate(kinds)
        if kind == "partial"
    ]
    bars = [
        format_html('<path class="m-denied" d="M{} {}h{}"/>', 1 + i * pitch, 1 + size / 2, size)
        for i, kind in enumerate(kinds)
        if kind == "denied"
    ]
    return format_html_join("", "{}", ((part,) for part in squares + halves + bars))


def sample(marks: list[str], most: int) -> list[str]:
    """So many marks that each kind keeps its share, and the rarest at least one."""
    if len(marks) <= most:
        return marks
    counts = Counter(marks)
    share = {kind: max(1, number * most // len(marks)) for kind, number in counts.items()}
    share[max(share, key=lambda kind: share[kind])] += most - sum(share.values())
    return [kind for kind, number in share.items() for _ in range(number)]


@register.simple_tag
def strip(marks: list[str], label: str, size: int = 11, most: int = STRIP_MAX) -> SafeString:
    """One mark per thing, `most` of them; filled known, half partly, barred not applied, dashed unknown,
    hollow not started."""
    shown = sample(marks, most)
    across, down = len(shown) * (size + 4), size + 2
    return format_html(
        '<svg class="strip" width="{}" height="{}" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>',
        *(across, down, across, down),
        label,
        _marks(shown, size),
    )


@register.simple_tag
def strip_mark(kind: str) -> SafeString:
    """One mark for a legend; its word stands beside it."""
    drawn = _marks([kind], 9)
    return format_html('<svg class="strip" width="13" height="11" aria-hidden="true">{}</svg>', drawn)
