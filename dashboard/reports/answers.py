"""The five questions, in their order. An empty answer is written out.

No sentence says more than its lines: "confirmed" names its ground, "not found" is never "failed".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from effects.models import Settlement

from .ahead import what_a_person_can_do, will_it_do_more
from .known import what_had_completed, what_is_uncertain
from .model import Claim, Section
from .stopped import what_stopped
from .teller import Teller

Answer = Callable[[Teller], Iterable[Claim]]
# key, heading, who answers, and the settlements of which each effect has a sentence
QUESTIONS: list[tuple[Any, str, Answer, tuple[str, ...]]] = [
    ("stopped", "What stopped", what_stopped, ()),
    (
        "completed",
        "What had already completed",
        what_had_completed,
        (Settlement.CONFIRMED, Settlement.PARTIAL),
    ),
    (
        "uncertain",
        "What is uncertain",
        what_is_uncertain,
        (Settlement.UNKNOWN, Settlement.DISPATCHED, Settlement.ACCEPTED_UNKNOWN),
    ),
    ("more", "Will the system do anything more?", will_it_do_more, ()),
    ("next", "What a person can do next", what_a_person_can_do, ()),
]


def sections(t: Teller) -> list[Section]:
    """The five answers, each claim with an anchor of its own."""
    return [_section(t, number, *question) for number, question in enumerate(QUESTIONS, 1)]


def _section(
    t: Teller, number: int, key: Any, title: str, answer: Answer, states: tuple[str, ...]
) -> Section:
    claims = [replace(claim, anchor=f"{key}-{n}") for n, claim in enumerate(answer(t), 1)]
    left_out = sum(max(0, t.rows.count("effect", s) - len(t.rows.settled_as(s))) for s in states)
    return Section(number, key, title, claims, left_out)
