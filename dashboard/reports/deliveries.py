"""What the report says of the run's own messages: handed over · held · unknown."""

from __future__ import annotations

from collections.abc import Iterator

from dashboard import words
from effects.models import DeliveryState
from runs.models import RunStatus

from .model import Claim
from .teller import Teller, say

NOT_UNSENT = "Cancelling the run does not prove a notification unsent."


def _count(t: Teller, *states: str) -> int:
    return t.rows.count("delivery", *states)


def _line(t: Teller, state: str) -> int | None:
    """The newest line that says so."""
    found: int | None = t.rows.tally["delivery_line"].get(f"delivery.{state.lower()}")
    return found


def held_back(t: Teller) -> Iterator[Claim]:
    """Question 1: what the stop kept here."""
    withheld, held = _count(t, DeliveryState.WITHHELD), _count(t, DeliveryState.HELD)
    if withheld:
        were = words.count(withheld, "message was", "messages were")
        yield say(f"{were} withheld and will not be handed over.", _line(t, DeliveryState.WITHHELD))
    if held:
        are = words.count(held, "message is", "messages are")
        text = f"{are} held by the pause; a resume queues {'it' if held == 1 else 'them'} again."
        yield say(text, _line(t, DeliveryState.HELD))


def handed_over(t: Teller) -> Iterator[Claim]:
    """Question 2: what nobody calls back."""
    over, failed = _count(t, DeliveryState.HANDED_OVER), _count(t, DeliveryState.NOT_HANDED_OVER)
    if over:
        were = words.count(over, "message was", "messages were")
        yield say(f"{were} handed over. {NOT_UNSENT}", _line(t, DeliveryState.HANDED_OVER))
    if failed:
        were = words.count(failed, "message is", "messages are")
        text = f"{were} known not to have been handed over."
        yield say(text, _line(t, DeliveryState.NOT_HANDED_OVER))


def unknown(t: Teller) -> Iterator[Claim]:
    """Question 3: what may have been handed over."""
    doubtful = _count(t, DeliveryState.UNKNOWN, DeliveryState.DISPATCHED)
    if doubtful:
        were = words.count(doubtful, "message", "messages")
        text = f"{were} may have been handed over; no word of it came back yet. {NOT_UNSENT}"
        states = [s for s in (DeliveryState.UNKNOWN, DeliveryState.DISPATCHED) if _count(t, s)]
        yield say(text, *(_line(t, state) for state in states))
    accepted = _count(t, DeliveryState.ACCEPTED_UNKNOWN)
    if accepted:
        of = words.count(accepted, "message")
        text = f"Two people accepted that it cannot be determined whether {of} left."
        yield say(text, _line(t, DeliveryState.ACCEPTED_UNKNOWN))


def ask(t: Teller) -> Iterator[Claim]:
    """Question 5: only its receiver can tell whether an unknown message came."""
    number = _count(t, DeliveryState.UNKNOWN)
    if number:
        whom = "the receiver" if number == 1 else "the receivers"
        text = (
            f"Ask {whom} of {words.count(number, 'message')} whether it came; the run’s page names where to."
        )
        yield say(text, _line(t, DeliveryState.UNKNOWN))


def queued(t: Teller) -> Iterator[Claim]:
    """Question 4: what may still be handed over, also of a run that has ended."""
    number = _count(t, DeliveryState.QUEUED)
    if number and t.run.status in (RunStatus.ACTIVE, RunStatus.COMPLETED, RunStatus.FAILED):
        are = words.count(number, "message is", "messages are")
        text = f"{are} queued to be handed over; the gate is asked first, and a stop withholds what is left."
        yield say(text, _line(t, DeliveryState.QUEUED))
