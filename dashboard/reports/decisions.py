"""What the report says of decisions that people take before an effect is sent, open ones and others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from dashboard import words
from effects.review_tables import Closed
from runs.models import RunStatus

from .model import Claim
from .rows import REVIEWS
from .sentences import name_of
from .teller import Teller, say

ENDED: dict[str, str] = {
    Closed.REJECTED: "was rejected by a reviewer and not sent",
    Closed.EXPIRED: "was not approved and sent in time, and is not sent",
    Closed.ENDED: "was still to be decided when its step or its run ended, and was not sent",
}


def _those(t: Teller, how: str) -> list[Any]:
    return [review for review in t.rows.reviews if review.closed_as == how]


def _rest(t: Teller) -> Iterator[Claim]:
    left = t.rows.count("review") - len(t.rows.reviews)
    if left > 0:
        yield say(f"{left} more reviews are not told here, the oldest {REVIEWS} are; the API lists all.")


def closed(t: Teller) -> Iterator[Claim]:
    """Question 1: what was not sent because of people, and what a stop took out of their hands."""
    for review in _those(t, Closed.CANCELLED):
        yield say(f"{name_of(review)} {_at_the_stop(review)}", review.line)
    for how, text in ENDED.items():
        for review in _those(t, how):
            yield say(f"{name_of(review)} {text}.", review.line)
    late = t.rows.count("late_yes")
    if late:
        came = words.count(late, "approval came", "approvals came")
        text = (
            f"{came} after the stop: kept as evidence, {'it starts' if late == 1 else 'they start'} nothing."
        )
        yield say(text, t.rows.count("late_yes_first"))
    yield from _rest(t)


def _at_the_stop(review: Any) -> str:
    """Whether it was decided before the stop."""
    if review.granted_at:
        return (
            "was approved before the stop and had not been sent: its approval is void, and it was not sent."
        )
    given = _told(review).get("approvals", 0)
    asked = f"{given} of {review.needed} had approved" if given else "nobody had approved"
    return f"was not decided before the stop ({asked}): its review was closed, and it was not sent."


def _told(review: Any) -> dict[str, Any]:
    try:
        found = json.loads(review.body or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def used(t: Teller) -> Iterator[Claim]:
    """Question 2: what people approved before it was sent."""
    for review in _those(t, Closed.USED):
        people = words.count(review.needed, "person", "people")
        after = bool(t.rows.effective_line) and review.line > t.rows.effective_line
        when = "" if not t.rows.effective_line else f", {'after' if after else 'before'} the stop"
        text = f"{name_of(review)} was approved by {people} before it was sent"
        yield say(f"{text}, at {t.at(review.granted_at)}{when}.", review.line)


def waits(t: Teller) -> Iterator[Claim]:
    """Question 4: what may still be sent, once people have decided."""
    held = "; the pause holds it" if t.run.status in (RunStatus.PAUSING, RunStatus.PAUSED) else ""
    for review in _those(t, ""):
        until = f"until {t.at(review.expires_at)}"
        if review.granted_at:
            text = f"{name_of(review)} is approved and may be sent {until}{held}."
        else:
            given = f"{review.given} of {review.needed} have approved"
            text = f"{name_of(review)} waits for people ({given}) {until}{held}. It is not sent before."
        yield say(text, review.line)


def decide(t: Teller) -> Iterator[Claim]:
    """Question 5: what people are asked."""
    for review in _those(t, ""):
        if not review.granted_at:
            yield say(f"Decide about {name_of(review)}: approve or reject it under Reviews.", review.line)
