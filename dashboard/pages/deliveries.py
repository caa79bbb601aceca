"""The run page's table of the run's own messages."""

from __future__ import annotations

from dataclasses import dataclass

from dashboard import words
from dashboard.pages.facts import Facts
from dashboard.pages.stages import clock
from dashboard.words import Term
from effects.deliveries import shown_target
from effects.models import Delivery

BY = {"webhook": "Allstop, webhook", "email": "Allstop, e-mail", "outside": "Its agent"}
ROOM = 120  # signs of a stranger's text in a cell


@dataclass(frozen=True)
class Row:
    """One message. `line` is its newest evidence."""

    delivery: Delivery
    term: Term
    by: str
    target: str
    evidence: str
    line: int | None


class Deliveries:
    """The messages of a run: how many stand where, and the rows that are shown."""

    def __init__(self, facts: Facts) -> None:
        self.total = facts.messages.total()
        self.says = words.messages(facts.messages)
        self.rows = [row(delivery) for delivery in facts.deliveries]

    @property
    def left_out(self) -> int:
        return self.total - len(self.rows)


def row(delivery: Delivery) -> Row:
    """A message with what its state stands on; of a webhook's address the origin only."""
    at = delivery.settled_at or delivery.unknown_since or delivery.dispatched_at or delivery.queued_at
    why = words.brief(delivery.detail, ROOM)
    evidence = f"{why[0].upper()}{why[1:]}, {clock(at)}" if why else clock(at)
    line: int | None = getattr(delivery, "line", None)
    target = words.brief(shown_target(delivery), ROOM)
    return Row(delivery, words.DELIVERY[delivery.state], BY[delivery.channel], target, evidence, line)
