"""What was declared against what would be sent, line by line; told by signs and words, not by colour.

Secrets are hidden on both sides, and compared as they are: a hidden value that differs is shown twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from dashboard import words
from dashboard.pages import as_written
from dashboard.pages.as_written import Pairs
from dashboard.pages.hiding import hidden, hide, sounds_secret

LINES, SIGNS = 200, 400  # lines of a body that a page shows, signs of one value
SAYS = {"+": "added", "-": "removed", " ": ""}


@dataclass(frozen=True)
class Part:
    """One named value of a call. `raw` is compared, `shown` is read."""

    name: str
    raw: str
    shown: str


@dataclass(frozen=True)
class Line:
    """One line of the difference: `sign` is a plus, a minus or nothing, and `says` the same in a word."""

    sign: str
    says: str
    name: str
    value: str


def part(name: str, value: object) -> Part:
    """A value that holds no secret by its name; what looks like one is hidden."""
    text = str(value)
    return Part(name, text, words.brief(hide(text), SIGNS))


def parts_of(body: bytes | str) -> list[Part]:
    """A body: the values of its JSON by their paths, else its lines."""
    try:
        text = body.decode() if isinstance(body, bytes) else body
    except UnicodeDecodeError:
        return [Part("body", repr(body), f"({len(body)} bytes that are no text)")]
    try:
        told = as_written.read(text)
    except (ValueError, RecursionError):
        return [part("", line) for line in text.splitlines()]
    try:
        return list(_flat("", told))
    except RecursionError:
        return [part("", text)]


def _flat(path: str, value: Any, secret: bool = False) -> Iterable[Part]:
    if isinstance(value, Pairs) and value:
        for name, one in value:
            yield from _flat(f"{path}.{name}" if path else name, one, secret or sounds_secret(name))
    elif isinstance(value, list) and value:
        for n, one in enumerate(value):
            yield from _flat(f"{path}[{n}]", one, secret)
    else:
        text = as_written.indented(value)
        bare = value if isinstance(value, str) else text
        shown = hidden(bare) if secret else words.brief(hide(bare), SIGNS)
        yield Part(words.brief(path, 80), f"{path}={text}", shown)


def diff(declared: Sequence[Part], exact: Sequence[Part]) -> list[Line]:
    """What was changed stands together, by its name: the removed line before the added one."""
    lines: list[Line] = []
    left, right = [(p.name, p.raw) for p in declared], [(p.name, p.raw) for p in exact]
    for what, a, b, c, d in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if what == "equal":
            lines += _lines(" ", exact[c:d])
        else:
            lines += _paired(declared[a:b], exact[c:d])
    return lines


def _paired(gone: Sequence[Part], new: Sequence[Part]) -> list[Line]:
    left, names = list(gone), [one.name for one in new]
    lines = _lines("-", [one for one in left if one.name not in names])
    for one in new:
        was = next((old for old in left if old.name == one.name and one.name), None)
        if was is not None:
            left.remove(was)
        lines += [*_lines("-", [was] if was else []), *_lines("+", [one])]
    again = [one for one in left if one.name in names]
    return [*_lines("-", again), *lines]


def _lines(sign: str, parts: Sequence[Part]) -> list[Line]:
    shown = "\N{MINUS SIGN}" if sign == "-" else sign.strip()
    return [Line(shown, SAYS[sign], words.clean(one.name), one.shown) for one in parts]


def says(lines: Sequence[Line]) -> str:
    """ "1 line filled in or changed, 1 added"; a removed line followed by an added one is a changed one."""
    gone = [line for line in lines if line.says == "removed"]
    new = [line for line in lines if line.says == "added"]
    both = {line.name for line in gone} & {line.name for line in new}
    counts = [
        (sum(line.name in both for line in new), "filled in or changed"),
        (sum(line.name not in both for line in new), "added"),
        (sum(line.name not in both for line in gone), "removed"),
    ]
    told = [(number, word) for number, word in counts if number]
    if not told:
        return "as it was declared"
    (number, word), *rest = told
    return ", ".join([f"{words.count(number, 'line')} {word}", *(f"{n} {w}" for n, w in rest)])
