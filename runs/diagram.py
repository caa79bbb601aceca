"""Prints a machine's arrows from the declarations that move its rows: a graph and a table."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from inspect import cleandoc
from typing import Any

from .machine import Machine


@dataclass(frozen=True)
class Arrow:
    """One move by name: `when` is the first sentence of its docstring."""

    name: str
    source: str
    target: str
    when: str


def arrows(model: type[Machine], field: str = "status") -> list[Arrow]:
    """Every arrow of a field, in the order of its states and then by name."""
    order = states(model, field)
    found = [
        Arrow(t.name, str(t.source), str(t.target), _first_sentence(t.method.__doc__))
        for t in _column(model, field).get_all_transitions(model)
    ]
    return sorted(found, key=lambda a: (order.index(a.source), order.index(a.target), a.name))


def states(model: type[Machine], field: str = "status") -> list[str]:
    """The field's states in the order of its choices."""
    return [str(value) for value, _ in _column(model, field).flatchoices]


def mermaid(model: type[Machine], field: str = "status") -> str:
    """The graph as a mermaid stateDiagram-v2 without a fence. Arrows side by side share one line."""
    drawn = arrows(model, field)
    names: dict[tuple[str, str], list[str]] = {}
    for arrow in drawn:
        names.setdefault((arrow.source, arrow.target), []).append(arrow.name)
    ends = [state for state in states(model, field) if state not in {arrow.source for arrow in drawn}]
    return "\n".join(
        [
            "stateDiagram-v2",
            f"    [*] --> {_column(model, field).get_default()}",
            *(f"    {source} --> {target}: {', '.join(n)}" for (source, target), n in names.items()),
            *(f"    {state} --> [*]" for state in ends),
        ]
    )


def table(model: type[Machine], field: str = "status") -> str:
    """The same arrows as a Markdown table, a name a row, with what its docstring says."""
    rows: dict[str, list[Arrow]] = {}
    for arrow in arrows(model, field):
        rows.setdefault(arrow.name, []).append(arrow)
    lines = [_row(name, same) for name, same in rows.items()]
    return "\n".join(["| arrow | from | to | when |", "|---|---|---|---|", *lines])


def _column(model: type[Machine], field: str) -> Any:
    """The FSMField; django-fsm has no types for it."""
    return model._meta.get_field(field)


def _row(name: str, same: list[Arrow]) -> str:
    sources, targets = _each(a.source for a in same), _each(a.target for a in same)
    return f"| `{name}` | {sources} | {targets} | {same[0].when.replace('|', chr(92) + '|')} |"


def _each(words: Iterable[str]) -> str:
    return " · ".join(dict.fromkeys(words))


def _first_sentence(docstring: str | None) -> str:
    text = " ".join(cleandoc(docstring or "").split())
    return re.split(r"(?<=\.)\s", text, maxsplit=1)[0]
